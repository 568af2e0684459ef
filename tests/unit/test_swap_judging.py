"""When a candidate is better, when it is worse, and what the audit log keeps of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from specpanel.core.errors import RecordingError
from specpanel.core.traffic.records import RequestRecord
from specpanel.core.training import audit
from specpanel.core.training.audit import Promotion
from specpanel.core.training.judging import gain, outcome, train_to_serve


def answer(prompt: str, accepted: tuple[int, ...]) -> RequestRecord:
    return RequestRecord(
        index=0,
        prompt_id=prompt,
        kind="chat",
        started_unix=0.0,
        started_s=0.0,
        ttft_ms=1.0,
        tpot_ms=1.0,
        end_to_end_ms=1.0,
        prompt_tokens=3,
        output_tokens=sum(accepted) + len(accepted),
        finish_reason="length",
        drafted=(3,) * len(accepted),
        accepted=accepted,
    )


def answers(*each: tuple[int, ...]) -> list[RequestRecord]:
    return [answer(f"p-{number}", accepted) for number, accepted in enumerate(each)]


WEAK = answers(*[(0, 1, 0, 0)] * 8)
STRONG = answers(*[(2, 3, 1, 2)] * 4, *[(3, 3, 1, 2)] * 4)


def test_a_gain_whose_lower_bound_clears_the_margin_is_better() -> None:
    found = gain(WEAK, STRONG)
    assert found.before == 1.25
    assert found.candidate == pytest.approx(3.125)
    assert outcome(found)[0] == "better"


def test_a_gain_that_noise_explains_is_not_shown() -> None:
    mixed = answers((0, 1, 0, 0), (3, 3, 3, 3), *[(0, 0, 0, 1)] * 3, *[(0, 0, 0, 0)] * 3)
    shown, reason = outcome(gain(WEAK, mixed))
    assert shown == "not shown"
    assert "not above the margin" in reason


def test_a_gain_within_the_margin_is_not_shown() -> None:
    assert outcome(gain(WEAK, STRONG), margin=2.0)[0] == "not shown"


def test_a_loss_beyond_the_margin_is_worse_and_a_small_one_is_not() -> None:
    assert outcome(gain(STRONG, WEAK))[0] == "worse"
    assert outcome(gain(WEAK, WEAK))[0] == "not shown"
    assert outcome(gain(STRONG, WEAK), margin=2.0)[0] == "not shown"


def test_only_prompts_of_both_sides_count() -> None:
    assert gain(WEAK, STRONG[:6]).prompts == 6


def test_too_few_prompts_give_no_promotion() -> None:
    shown, reason = outcome(gain(WEAK[:3], STRONG[:3]))
    assert shown == "not shown"
    assert "without an interval" in reason


def test_a_drafter_that_drafts_nothing_is_not_compared() -> None:
    found = gain(WEAK, [replace(one, drafted=None, accepted=None) for one in WEAK])
    assert found.difference is None
    assert outcome(found)[0] == "not shown"


def test_a_gap_between_training_and_serving_names_what_to_look_at() -> None:
    found = gain(WEAK, STRONG)
    assert train_to_serve(None, found) is None
    small = train_to_serve(3.2, found)
    assert small is not None
    assert small.endswith("(-2%)")
    large = train_to_serve(4.0, found)
    assert large is not None
    assert "(-22%): look whether chat template" in large


def promotion(**changes: object) -> Promotion:
    base = Promotion(
        unix=1.0,
        server="bench",
        url="http://127.0.0.1:1",
        way="in place",
        result="promoted",
        reason="because",
        before="/a",
        candidate="/b",
        fingerprint_before="1",
        fingerprint_after="2",
        gain=gain(WEAK, STRONG),
        predicted=3.3,
        margin=0.02,
        paused_s=0.25,
        took_s=9.0,
        user="someone",
    )
    return replace(base, **changes)


def test_the_audit_log_gives_back_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "promotions.ndjson"
    assert audit.read(path) == ()
    written = (promotion(), promotion(result="refused", gain=None, paused_s=None, unix=2.0))
    for one in written:
        audit.write(one, path)
    assert audit.read(path) == written


def test_a_line_cut_short_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "promotions.ndjson"
    audit.write(promotion(), path)
    whole = path.read_bytes()
    path.write_bytes(b'{"kind": "other"}\n[]\n' + whole + whole[: len(whole) // 2])
    assert audit.read(path) == (promotion(),)


def test_a_log_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordingError, match=r"audit log .*file/promotions.ndjson cannot be writ"):
        audit.write(promotion(), tmp_path / "file" / "promotions.ndjson")
