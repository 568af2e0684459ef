"""What serving shows beside what the trainer foretold: averages, and causes of a gap. Pure."""

import dataclasses

import pytest

from specpanel.core.traffic.records import RequestRecord
from specpanel.core.training.evaluation import acceptance_of, gap, token_weighted
from specpanel.core.training.gap_causes import Circumstances, causes, is_large

CALM = Circumstances(
    tokenizer_then="a",
    tokenizer_now="a",
    prompt_tokens=((12, 12), (20, 20)),
    answers="target",
    temperature=0.0,
    seq_length=512,
    truncated_share=0.0,
    longest_row=200,
    served_tokens=90.0,
    quantization=None,
    window=None,
    mapping_then="m",
    mapping_now="m",
    coverage=1.0,
    served_length=1.6,
    token_weighted=1.62,
    predicted=1.9,
)


def record(name: str, accepted: tuple[int, ...], error: str | None = None) -> RequestRecord:
    return RequestRecord(
        *(0, name, "chat", 0.0, 0.0, 1.0, 1.0, 1.0, 5, 1 + len(accepted) + sum(accepted), "stop"),
        error=error,
        drafted=(3,) * len(accepted),
        accepted=accepted,
    )


def test_hard_prompts_take_more_drafts_than_their_share_of_tokens() -> None:
    easy, hard = record("easy", (2,) * 10), record("hard", (0,) * 30)  # 30 tokens each
    found = acceptance_of([easy, hard, record("failed", (), "timed out")], None)
    assert found.acceptance_length == pytest.approx(1.5)
    assert found.token_weighted == pytest.approx(2.0)
    assert (found.prompts, found.failed, found.drafts) == (3, 1, 40)


def test_without_drafts_nothing_is_known() -> None:
    assert token_weighted([record("a", ())]) is None
    assert gap(None, 1.9) is None
    assert gap(1.9, None) is None
    assert gap(1.9, 2.0) == pytest.approx(-0.05)
    assert not is_large(None)
    assert not is_large(-0.04)
    assert is_large(-0.06)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"tokenizer_now": "b"}, "chat template"),
        ({"prompt_tokens": ((12, 30),)}, "chat template"),
        ({"answers": "given"}, "answers"),
        ({"temperature": 0.8}, "answers"),
        ({"truncated_share": 0.2}, "lengths"),
        ({"served_tokens": 900.0}, "lengths"),
        ({"quantization": "awq"}, "quantised target"),
        ({"window": 64}, "sliding window"),
        ({"mapping_now": "n"}, "draft vocabulary"),
        ({"served_length": 1.01, "token_weighted": 1.01}, "draft vocabulary"),
        ({"coverage": 0.8}, "draft vocabulary"),
        ({"token_weighted": 1.85}, "averaging"),
    ],
)
def test_each_known_cause_is_told_and_no_other(change: dict[str, object], cause: str) -> None:
    found = causes(dataclasses.replace(CALM, **change))  # type: ignore[arg-type]
    assert [one.cause for one in found if one.state == "differs"] == [cause]
    assert found[0].cause == cause


def test_where_nothing_differs_every_cause_says_so() -> None:
    found = causes(CALM)
    assert {one.state for one in found} == {"same"}
    assert len({one.cause for one in found}) == 7
