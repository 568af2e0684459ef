"""Summing up a run: what counts, what is left out, and where each figure comes from."""

from pathlib import Path
from typing import Any

import pytest

from specpanel.core.engine.metrics import EngineCounters, parse_exposition
from specpanel.core.session.measurement import counter_delta
from specpanel.core.session.summary import CounterDelta, Leg, compare, judge, leg_summary
from specpanel.core.speculation.acceptance import POSITIONS_DISAGREE, VARIABLE_LENGTH
from specpanel.core.traffic.records import RequestRecord

DATA = Path(__file__).parents[1] / "data"
COUNTERS = CounterDelta(100, 400, 150, (80, 40, 20, 10), 250)


def request(index: int = 0, **known: Any) -> RequestRecord:
    fields: dict[str, Any] = {
        "index": index,
        "prompt_id": f"chat-{index:02}",
        "kind": "chat",
        "started_unix": 1.7e9,
        "started_s": float(index),
        "ttft_ms": 40.0,
        "tpot_ms": 10.0,
        "end_to_end_ms": 130.0,
        "prompt_tokens": 5,
        "output_tokens": 10,
        "finish_reason": "length",
        "text": "an answer",
    }
    return RequestRecord(**(fields | known))


def failed(index: int, error: str) -> RequestRecord:
    nothing = dict.fromkeys(("ttft_ms", "tpot_ms", "end_to_end_ms", "output_tokens"))
    return request(index, error=error, **nothing)


def leg(
    records: list[RequestRecord],
    drafter: str = "ngram",
    counters: CounterDelta | None = None,
    name: str = "drafter",
    elapsed_s: float = 2.0,
) -> Leg:
    return leg_summary(name, drafter, 4, records, elapsed_s, counters, 30.0, "requests")


# --- one leg ----------------------------------------------------------------------------------------


def test_tokens_and_rate_are_of_good_requests() -> None:
    found = leg([request(0), request(1, output_tokens=30), failed(2, "HTTP 500")])
    assert (found.requests, found.failed) == (3, 1)
    assert (found.output_tokens, found.output_tokens_per_s) == (40, 20.0)


def test_failures_are_counted_by_name() -> None:
    records = [failed(0, "HTTP 500"), failed(1, "no answer in time"), failed(2, "HTTP 500")]
    found = leg(records)
    assert found.failures == {"HTTP 500": 2, "no answer in time": 1}
    assert (found.requests, found.failed) == (3, 3)
    assert (found.ttft_ms, found.tpot_ms, found.end_to_end_ms) == ((), (), ())
    assert (found.output_tokens, found.output_tokens_per_s) == (0, None)


def test_warm_up_is_left_out_of_every_figure() -> None:
    slow = request(0, warmup=True, tpot_ms=999.0, ttft_ms=999.0, end_to_end_ms=999.0)
    broken = failed(1, "HTTP 500")
    warm = [slow, RequestRecord(**{**_fields(broken), "warmup": True})]
    measured = [request(2), request(3)]
    assert leg([*warm, *measured]) == leg(measured)


def test_warm_up_steps_are_left_out_of_the_acceptance() -> None:
    warm = request(0, warmup=True, drafted=(4,), accepted=(4,))
    found = leg([warm, request(1, drafted=(4, 4), accepted=(0, 2))]).acceptance
    assert found is not None
    assert (found.drafts, found.acceptance_length) == (2, 2.0)


def test_an_answer_without_its_number_of_tokens_makes_the_sum_unknown() -> None:
    found = leg([request(0), request(1, output_tokens=None)])
    assert (found.output_tokens, found.output_tokens_per_s) == (None, None)
    assert leg([], elapsed_s=0.0).output_tokens == 0
    assert leg([], elapsed_s=0.0).output_tokens_per_s is None


def test_quantiles_are_of_the_requests_that_have_the_figure() -> None:
    found = leg([request(0, tpot_ms=None), request(1, tpot_ms=20.0)])
    assert [(q.share, q.value_ms, q.count) for q in found.tpot_ms] == [
        (0.5, 20.0, 1), (0.9, 20.0, 1), (0.99, 20.0, 1),
    ]  # fmt: skip
    assert found.ttft_ms[0].count == 2


# --- acceptance -------------------------------------------------------------------------------------


def test_steps_of_requests_come_before_the_counters() -> None:
    records = [
        request(0, drafted=(4, 4), accepted=(4, 0)),
        request(1, drafted=(4,), accepted=(2,)),
    ]
    found = leg(records, counters=COUNTERS).acceptance
    assert found is not None
    assert (found.source, found.requests, found.drafts) == ("requests", 2, 3)
    assert found.acceptance_length == 1 + 6 / 3
    assert found.acceptance_length_interval is not None
    assert found.counters_acceptance_length == 2.5
    assert found.accepted_a_step == (1, 0, 1, 0, 1)
    assert [rate.accepted for rate in found.positions] == [2, 2, 1, 1]


def test_counters_speak_where_requests_do_not() -> None:
    found = leg([request(0), request(1)], counters=COUNTERS).acceptance
    assert found is not None
    assert (found.source, found.requests, found.drafts) == ("counters", None, 100)
    assert (found.acceptance_length, found.draft_acceptance_rate) == (2.5, 0.375)
    assert found.acceptance_length_interval is None
    assert [round(rate.rate.estimate, 3) for rate in found.positions] == [0.8, 0.4, 0.2, 0.1]
    assert found.notes == ()


def test_biases_of_the_counters_are_noted() -> None:
    shorter = CounterDelta(100, 350, 150, (80, 40, 20, 10), None)
    astray = CounterDelta(100, 400, 150, (80, 40, 20, 1), None)
    for counters, note in ((shorter, VARIABLE_LENGTH.format(k=4)), (astray, POSITIONS_DISAGREE)):
        found = leg([request(0)], counters=counters).acceptance
        assert found is not None
        assert found.notes == (note,)


def test_no_drafts_are_no_acceptance_length_and_not_zero() -> None:
    found = leg([request(0)], counters=CounterDelta(0, 0, 0, (), 10)).acceptance
    assert found is not None
    assert (found.acceptance_length, found.draft_acceptance_rate) == (None, None)
    assert found.positions == ()


def test_without_steps_and_counters_there_is_no_acceptance() -> None:
    assert leg([request(0)]).acceptance is None


def test_plain_decoding_has_no_acceptance_whatever_the_counters_say() -> None:
    assert leg([request(0)], drafter="none", counters=COUNTERS).acceptance is None


# --- the verdict ------------------------------------------------------------------------------------


def both(ratio: float, count: int = 12) -> list[tuple[Leg, list[RequestRecord]]]:
    plain = [request(n, tpot_ms=20.0 + n % 3) for n in range(count)]
    drafted = [
        request(n, tpot_ms=(20.0 + n % 3) * ratio, drafted=(4,), accepted=(2,))
        for n in range(count)
    ]
    return [
        (leg(plain, drafter="none", name="baseline"), plain),
        (leg(drafted, name="drafter"), drafted),
    ]


@pytest.mark.parametrize(("ratio", "word"), [(0.6, "pays"), (1.5, "costs"), (1.0, "neutral")])
def test_the_verdict_is_about_time_against_the_baseline(ratio: float, word: str) -> None:
    legs = both(ratio)
    comparison = compare(legs, greedy=True)
    assert comparison is not None
    assert comparison.paired.ratio == pytest.approx(ratio)
    assert judge([one for one, _ in legs], comparison).word == word


def test_acceptance_alone_is_no_verdict() -> None:
    legs = both(0.5)[1:]
    assert compare(legs, greedy=True) is None
    assert judge([legs[0][0]], None).word == "unknown"


def test_plain_decoding_alone_has_nothing_to_judge() -> None:
    verdict = judge([both(1.0)[0][0]], None)
    assert verdict.word == "unknown"
    assert "plain decoding" in verdict.sentence
    assert "plain decoding" not in judge([], None).sentence


def test_answers_are_compared_only_where_they_are_greedy() -> None:
    legs = both(1.0)
    greedy, sampled = compare(legs, greedy=True), compare(legs, greedy=False)
    assert greedy is not None
    assert greedy.agreement is not None
    assert greedy.agreement.identical == 12
    assert sampled is not None
    assert sampled.agreement is None


# --- counters at both ends --------------------------------------------------------------------------


def scraped(name: str) -> EngineCounters:
    return parse_exposition((DATA / name).read_text(encoding="utf-8")).counters


def counters(
    drafts: int | str, began: float = 1.0, positions: tuple[int, ...] = ()
) -> EngineCounters:
    lines = [
        f"spec_decode_num_drafts_total{{}} {drafts}",
        f"spec_decode_num_drafts_created{{}} {began}",
        "spec_decode_num_draft_tokens_total{} 400",
        "spec_decode_num_accepted_tokens_total{} 150",
    ]
    lines += [
        f'spec_decode_num_accepted_tokens_per_pos_total{{position="{place}"}} {count}'
        for place, count in enumerate(positions)
    ]
    return parse_exposition("".join(f"vllm:{text}\n" for text in lines)).counters


def test_counters_of_a_real_server_give_what_it_did_in_between() -> None:
    earlier = scraped("metrics_vllm_0_32_ngram_earlier.txt")
    later = scraped("metrics_vllm_0_32_ngram.txt")
    found = counter_delta(earlier, later)
    assert found is not None
    then, now = earlier.total, later.total
    assert (now.drafts, now.accepted_by_position) == (16, (7, 7, 7, 4))
    assert then.drafts is not None
    assert found.drafts == 16 - then.drafts > 0
    assert sum(found.accepted_by_position) == found.accepted_tokens
    assert found.draft_tokens == 4 * found.drafts
    assert counter_delta(later, earlier) is None  # counters that fell


def test_counters_that_stand_still_gained_nothing() -> None:
    found = counter_delta(counters(7, positions=(5, 2)), counters(7, positions=(5, 2)))
    assert found == CounterDelta(0, 0, 0, (0, 0), None)


def test_positions_that_appear_in_between_began_at_zero() -> None:
    found = counter_delta(counters(7), counters(9, positions=(5, 2)))
    assert found is not None
    assert found.accepted_by_position == (5, 2)


def test_speculation_that_appears_in_between_began_at_zero() -> None:
    nothing = parse_exposition("vllm:num_requests_running 0\n").counters
    found = counter_delta(nothing, counters(9))
    assert found is not None
    assert found.drafts == 9


@pytest.mark.parametrize("broken", ["NaN", "-1"])
def test_a_counter_that_cannot_be_read_at_an_end_gives_nothing(broken: str) -> None:
    assert counter_delta(counters(broken), counters(9)) is None
    assert counter_delta(counters(7), counters(broken)) is None


def test_a_restart_in_between_gives_nothing_even_where_the_counters_are_larger() -> None:
    assert counter_delta(counters(7, began=1.0), counters(9, began=2.0)) is None


def test_a_failed_scrape_or_a_server_without_a_drafter_gives_nothing() -> None:
    plain = parse_exposition("vllm:num_requests_running 0\n").counters
    assert counter_delta(None, counters(9)) is None
    assert counter_delta(counters(9), None) is None
    assert counter_delta(plain, plain) is None


def _fields(record: RequestRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}
