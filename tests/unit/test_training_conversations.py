"""Training data as people bring it: what is read, what is skipped and why."""

import json

import pytest

from specpanel.core.errors import ConfigurationError
from specpanel.core.traffic.prompts import builtin_prompts
from specpanel.core.training.conversations import (
    Reading,
    read_lines,
    refuse_bad,
    without_duplicates,
)
from specpanel.core.training.prompt_set import builtin_conversations


def read(*entries: object, answers_needed: bool = True) -> Reading:
    lines = [entry if isinstance(entry, bytes) else json.dumps(entry).encode() for entry in entries]
    return read_lines(lines, "file", answers_needed=answers_needed)


CHAT = {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}
GPT = {"conversations": [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}]}


def test_s13_both_ways_to_name_roles_become_the_same_conversation() -> None:
    reading = read(CHAT, GPT)
    first, second = reading.conversations
    assert first.turns == second.turns
    assert reading.schemas == {"messages": 1, "conversations": 1}
    assert reading.converted == 1


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ([{"from": "human", "value": "x"}, {"from": "gpt", "value": "y"}], "a list where"),
        ({"conversations": [{"from": "human", "value": "x"}]}, "no assistant turn"),
        ({"text": "plain"}, "no answer"),
        ({"answer": "plain"}, "unknown schema (its keys: answer)"),
        ({"messages": [{"role": "user", "content": ""}]}, "a turn without text"),
        ({"messages": [{"role": "narrator", "content": "x"}]}, "unknown role 'narrator'"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "no turn of a user"),
        ({"messages": "hello"}, "no list of objects"),
        ("just text", "no JSON object"),
    ],
)
def test_s13_a_line_that_cannot_be_used_is_named_with_its_reason(
    entry: object, reason: str
) -> None:
    reading = read(CHAT, entry)
    (skipped,) = reading.skipped
    assert skipped.line == 2
    assert reason in skipped.reason
    assert not skipped.unreadable
    assert len(reading.conversations) == 1


def test_s13_rows_of_tools_are_counted_for_themselves() -> None:
    tool = {
        "messages": [
            {"role": "user", "content": "x"},
            {"role": "tool", "content": "{}"},
            {"role": "assistant", "content": None, "tool_calls": []},
        ]
    }
    reading = read(CHAT, tool)
    assert reading.tool_rows == 1
    assert "tools" in reading.skipped[0].reason


def test_s13_an_unreadable_line_is_skipped_and_a_blank_one_is_no_fault() -> None:
    reading = read(*[CHAT] * 30, b"", b'{"messages": [', b"\xff\xfe")
    assert [(one.line, one.unreadable) for one in reading.skipped] == [(32, True), (33, True)]
    assert reading.blank == 1
    with pytest.raises(ConfigurationError, match="2 of 32 lines cannot be read"):
        refuse_bad(reading, "file")


def test_five_percent_of_unreadable_lines_are_passed_over() -> None:
    reading = read(*[CHAT] * 19, b"{")
    refuse_bad(reading, "file")
    assert reading.unreadable == 1


def test_data_without_any_conversation_is_refused_with_the_usual_reason() -> None:
    reading = read({"conversations": [{"from": "human", "value": "x"}]})
    with pytest.raises(ConfigurationError, match="no assistant turn: nothing to train on"):
        refuse_bad(reading, "file")


def test_the_target_may_answer_what_has_no_answer() -> None:
    reading = read(
        {"prompt": "Why?"}, {"text": "How?", "system": "Be brief."}, answers_needed=False
    )
    assert [turn.role for turn in reading.conversations[1].turns] == ["system", "user"]


def test_a_question_asked_twice_is_trained_on_once() -> None:
    reading = read({"prompt": "Why  is it so?"}, {"prompt": "why is it SO?"}, answers_needed=False)
    kept, duplicates = without_duplicates(reading.conversations)
    assert (len(kept), duplicates) == (1, 1)


def test_the_built_in_prompts_are_of_the_measured_classes_and_none_of_the_measured() -> None:
    training = builtin_conversations()
    measured = builtin_prompts()
    assert {one.kind for one in training} == {one.kind for one in measured}
    assert not {one.turns[0].text for one in training} & {one.text for one in measured}
    counts = [sum(one.kind == kind for one in training[:100]) for kind in ("chat", "maths", "code")]
    assert min(counts) >= 15  # any beginning holds each class
