"""Server-sent events and the answer that they carry, on a stream that vLLM 0.32 sent and on broken ones."""

import json
from pathlib import Path

import pytest

from specpanel.core.traffic.answer import Answer
from specpanel.core.traffic.events import EVENT_LIMIT_BYTES, Event, EventStream, EventTooLargeError

# SmolLM2-135M, n-gram drafter with K = 4, greedy, return_token_ids and include_usage,
# --per-request-spec-decode-metrics detailed. Copied as it came.
REAL = (Path(__file__).parents[1] / "data" / "vllm_0_32_stream.txt").read_bytes()


def _events(raw: bytes, size: int) -> list[Event]:
    stream = EventStream()
    pieces = [raw[start : start + size] for start in range(0, len(raw), size)]
    return [event for piece in pieces for event in stream.feed(piece)] + list(stream.end())


def _answer(*chunks: object) -> Answer:
    """The answer of chunks that arrive a second apart, from second 1 on."""
    answer = Answer(sent_s=0.0)
    for at_s, chunk in enumerate(chunks, 1):
        data = chunk if isinstance(chunk, str) else json.dumps(chunk)
        answer.take(Event(data), float(at_s))
    return answer


def _delta(content: str, **choice: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {"content": content}, **choice}]}


def test_a_real_vllm_stream_is_read_in_full() -> None:
    answer = Answer(sent_s=0.0)
    for at_s, event in enumerate(_events(REAL, 4096)):
        answer.take(event, float(at_s))
    assert answer.text == "The alphabet in small letters, separated by spaces, three times."
    assert answer.token_ids == (
        504,
        12567,
        281,
        1165,
        5073,
        28,
        9075,
        411,
        5600,
        28,
        1296,
        1711,
        30,
        2,
    )
    assert (answer.prompt_tokens, answer.output_tokens) == (44, 14)
    assert answer.finish_reason == "stop"
    assert answer.drafted == (4, 4, 4)
    assert answer.accepted == (4, 4, 2)
    assert answer.done
    assert answer.error is None
    # The chunk with the role is no token; six chunks with tokens follow it, from second 1 to 6.
    assert (answer.first_s, answer.last_s) == (1.0, 6.0)
    assert answer.tpot_ms == pytest.approx(5000 / 13)


@pytest.mark.parametrize("size", [1, 2, 7, 4096])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_events_are_the_same_wherever_the_bytes_were_cut(size: int, line_end: bytes) -> None:
    raw = 'event: note\ndata: {"a": "é漢😀"}\n\n: alive\n\ndata:one\ndata: two\n\ndata: [DONE]\n'
    assert _events(raw.encode().replace(b"\n", line_end), size) == [
        Event('{"a": "é漢😀"}', "note"),
        Event("one\ntwo"),
        Event("[DONE]"),
    ]


@pytest.mark.parametrize("piece", [b"x" * 1024, b"data: " + b"x" * 1018 + b"\n"])
def test_an_event_without_end_is_refused_before_it_fills_the_memory(piece: bytes) -> None:
    stream = EventStream()
    endless = (event for _ in range(10 * EVENT_LIMIT_BYTES) for event in stream.feed(piece))
    with pytest.raises(EventTooLargeError):
        next(endless)


def test_many_events_together_may_be_larger_than_the_limit_for_one() -> None:
    stream = EventStream()
    piece = b"data: " + b"x" * 1_000_000 + b"\n\n"
    assert sum(1 for _ in range(10) for _ in stream.feed(piece)) == 10
    assert sum(1 for _ in stream.feed(piece * 10)) == 10


def test_time_per_token_leaves_out_the_tokens_that_came_with_the_first_chunk() -> None:
    answer = _answer(
        _delta("abc", token_ids=[1, 2, 3]),
        _delta("de", token_ids=[4, 5]),
        _delta("", token_ids=[6], finish_reason="stop"),
        {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 6}},
    )
    assert answer.first_chunk_tokens == 3
    assert answer.tpot_ms == pytest.approx(2000 / 3)
    assert answer.ttft_ms == 1000


def test_without_token_ids_one_token_is_taken_for_the_first_chunk() -> None:
    answer = _answer(
        _delta("a"),
        _delta("b"),
        _delta("", finish_reason="stop"),
        {"choices": [], "usage": {"completion_tokens": 5}},
    )
    assert answer.first_chunk_tokens is None
    assert answer.token_ids is None
    assert answer.tpot_ms == pytest.approx(2000 / 4)


def test_what_is_not_known_is_absent() -> None:
    one = _answer(_delta("a", token_ids=[1], finish_reason="length"), "[DONE]")
    assert one.tpot_ms is None
    assert one.output_tokens == 1
    assert one.drafted is None
    uncounted = _answer(_delta("a"), _delta("b", finish_reason="stop"))
    assert uncounted.output_tokens is None
    assert uncounted.tpot_ms is None


def test_token_ids_that_are_not_all_there_are_absent() -> None:
    answer = _answer(
        _delta("a", token_ids=[1]),
        _delta("b", finish_reason="stop"),
        {"choices": [], "usage": {"completion_tokens": 2}},
    )
    assert answer.token_ids is None


@pytest.mark.parametrize(
    "steps",
    [
        {"per_step_drafted": [4], "per_step_accepted": [5]},
        {"per_step_drafted": [4, 4], "per_step_accepted": [1]},
        {"per_step_drafted": [4], "per_step_accepted": ["1"]},
        {"per_step_drafted": [4], "per_step_accepted": [-1]},
        {"per_step_drafted": [True], "per_step_accepted": [True]},
        {"per_step_drafted": {}, "per_step_accepted": None},
        [],
    ],
)
def test_steps_that_cannot_be_are_absent(steps: object) -> None:
    answer = _answer({"choices": [], "metrics": {"speculative_decoding": steps}})
    assert (answer.drafted, answer.accepted) == (None, None)
    assert answer.error is None


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": "x"},
        {"choices": ["x"]},
        {"choices": [{"delta": "x", "finish_reason": 3, "token_ids": ["1"]}]},
        {"choices": [{"delta": {"content": 3}}]},
        {"choices": [], "usage": {"completion_tokens": "many", "prompt_tokens": -1}},
        {"choices": [], "usage": [], "metrics": "x"},
    ],
)
def test_fields_of_a_wrong_type_count_as_absent(chunk: object) -> None:
    answer = _answer(chunk)
    assert answer.error is None
    assert answer.empty


@pytest.mark.parametrize(
    ("chunk", "named"),
    [
        ({"error": {"message": "out of\nmemory\x1b[31m", "code": 500}}, "out of memory"),
        ({"error": "broken"}, "broken"),
        ({"object": "error", "message": "gone"}, "gone"),
        ("{not json", "unreadable chunk: {not json"),
        ("[" * 100_000, "unreadable chunk"),
    ],
)
def test_an_error_in_the_stream_is_named_in_one_printable_line(chunk: object, named: str) -> None:
    answer = _answer(_delta("a"), chunk, "[DONE]")
    assert answer.error is not None
    assert named in answer.error
    assert answer.error.isprintable()
    assert len(answer.error) < 300


def test_reasoning_is_part_of_the_answer_and_of_its_timing() -> None:
    answer = _answer(
        {"choices": [{"delta": {"reasoning": "hm", "reasoning_content": "hm"}}]},
        _delta("yes", finish_reason="stop"),
    )
    assert answer.first_s == 1.0
    assert answer.text == "hmyes"
