"""Required acceptance lengths, and the verdict that the store gives."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from specpanel.core.lab.arms import launch_fingerprint
from specpanel.core.lab.breakeven_plan import BreakevenPlan
from specpanel.core.lab.curve import BreakevenFound, StepPoint, breakeven_conclusion
from specpanel.core.lab.standing import NO_BASELINE, evidence_for, judged, required_now
from specpanel.core.lab.store import DONE, Store
from specpanel.core.monitor.frame import Interval
from specpanel.core.settings.profile import Profile
from specpanel.core.speculation.breakeven import (
    Required,
    expected_length,
    holdouts,
    interval_at,
    required_at,
)
from specpanel.core.speculation.contrast import STEP, Sums, contrast, sums_of
from specpanel.core.traffic.records import Prompt, RequestRecord

AROUND = {"platform": "cpu", "processor": "a", "devices": None, "vllm_version": "0.32.0"}
LINE = [
    Required(1, 4, 1.0, Interval(1.0, 0.9, 1.1)),
    Required(4, 4, 1.4, None),
    Required(16, 4, 2.2, Interval(2.2, 2.0, 2.5)),
    Required(16, 8, 3.0, None),
]


def test_a_block_holds_enough_requests_at_every_load_and_blocks_follow_each_other() -> None:
    prompts = tuple(Prompt(f"p{n}", "chat", "text") for n in range(16))
    target = Profile.model_validate({"name": "p", "target": {"model": "/t"}})
    plan = BreakevenPlan(profile=target, prompts=prompts)
    assert [len(plan.block(0, load)) for load in (1, 2, 3, 4, 8)] == [4, 4, 6, 8, 16]
    assert plan.block(0, 1) + plan.block(1, 1) == prompts[:8]
    assert plan.block(4, 1) == prompts[:4], "over and over"
    assert [len(turn) for turn in plan.rounds(0, 1)] == [1, 1, 1, 1]
    assert plan.rounds(1, 4) == (prompts[8:12], prompts[12:]), "as many together as run at a time"


def test_the_required_length_is_interpolated_between_measured_loads_and_nowhere_else() -> None:
    assert required_at(LINE, 4, 4) == 1.4
    assert required_at(LINE, 4, 2) == pytest.approx(1.2)
    assert required_at(LINE, 4, 8) == pytest.approx(1.8)
    assert required_at(LINE, 4, 32) is None
    assert required_at(LINE, 8, 8) is None
    between = interval_at(LINE, 4, 8)
    assert between is not None
    assert between.low == pytest.approx((1.4 + 2.0) / 2)
    assert between.high == pytest.approx((1.4 + 2.5) / 2)


def test_a_load_with_neighbours_is_foretold_without_itself() -> None:
    [held] = holdouts(LINE)
    assert (held.concurrency, held.measured) == (4, 1.4)
    assert held.foretold == pytest.approx(1.6)
    assert held.error == pytest.approx(1.6 / 1.4 - 1)


@pytest.mark.parametrize(
    ("between", "told"),
    [
        (Interval(0.96, 0.48, 1.91), "gains from AL 1 on (95 % … 1.91: little is certain)"),
        (Interval(0.96, 0.93, 0.99), "gains at any acceptance length"),
        (None, "there is no interval"),
    ],
)
def test_a_length_below_one_is_as_certain_as_its_interval(
    between: Interval | None, told: str
) -> None:
    point = StepPoint(1, 4, 140.0, 134.4, 0.96, between, 2.8, 2.4, 6)
    found = BreakevenFound("ngram", (point,), (), (), 0.7, 24, 60.0, ())
    assert told in breakeven_conclusion(found)


def test_expected_length_adds_up_what_is_accepted_in_a_row() -> None:
    assert expected_length(0.9, 4) == pytest.approx(4.0951)
    assert expected_length(0.0, 8) == 1.0
    assert expected_length(1.0, 8) == 9.0


def record(
    tpot_ms: float, tokens: int, accepted: tuple[int, ...] = (), k: int = 4
) -> RequestRecord:
    return RequestRecord(
        *(0, "p", "chat", 0.0, 0.0, 50.0, tpot_ms, 1000.0, 9, tokens, "length"),
        drafted=(k,) * len(accepted) if accepted else None,
        accepted=accepted or None,
    )


def test_steps_are_those_with_a_draft_and_those_of_one_token() -> None:
    plain = sums_of([record(100, 21)])
    assert (plain.steps, plain.decode_tokens, plain.decode_ms) == (20, 20, 2000)
    drafted = sums_of([record(60, 21, (4, 0, 2))])
    assert (drafted.drafts, drafted.draft_tokens, drafted.accepted) == (3, 12, 6)
    assert drafted.steps == 3 + (20 - 9)
    clipped = sums_of([record(60, 4, (4,))])
    assert clipped.steps == 1, "a last step that is reported past the answer's end"


def test_the_ratio_of_step_times_is_the_required_length() -> None:
    plain = {group: sums_of([record(100, 21)]) for group in range(6)}
    treated: dict[int, Sums] = {group: sums_of([record(80, 21, (1,) * 10)]) for group in range(6)}
    found = contrast(STEP, plain, treated)
    # 20 tokens in ten steps of two, 1600 ms: 160 ms a step instead of 100.
    assert found.value == pytest.approx(1.6)


def profile(method: str = "ngram", **more: Any) -> Profile:
    return Profile.model_validate(
        {
            "name": "p",
            "target": {"model": "/m"},
            "drafter": {"method": method, **({} if method == "none" else {"k": 4}), **more},
        }
    )


def keep_curve(store: Store, own: Profile, around: dict[str, Any] = AROUND) -> str:
    settings = {
        "plain_launch": launch_fingerprint(own.without_drafter()),
        "own_launch": launch_fingerprint(own),
    }
    name = store.begin("breakeven", "p", settings, around, 0)
    points = [
        {
            "concurrency": one.concurrency,
            "k": one.k,
            "required_length": one.length,
            "required_interval": None if one.interval is None else asdict(one.interval),
            "plain_step_ms": 100.0,
        }
        for one in LINE
    ]
    store.finish(name, DONE, "", {"points": points, "real": []})
    return name


def keep_comparison(store: Store, own: Profile, value: float, around: Any = AROUND) -> str:
    name = store.begin("compare", "a · b", {}, around, 0)
    for arm, one in (("a", own.without_drafter()), ("b", own)):
        store.add_run(name, arm, one.drafter.method, None, launch_fingerprint(one), {}, 1.0)
    tpot = {
        "value": value,
        "interval": {"estimate": value, "low": value - 0.05, "high": value + 0.05},
    }
    store.finish(
        name,
        DONE,
        "",
        {"concurrency": 8, "pairings": [{"a": "a", "b": "b", "overall": [tpot]}]},
    )
    return name


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store(tmp_path / "r.sqlite") as opened:
        yield opened


def test_without_results_the_verdict_is_unknown_and_names_the_key(store: Store) -> None:
    found = judged(evidence_for(store, profile(), AROUND), tokens_a_step=3.0, concurrency=8)
    assert (found.word, found.sentence, found.source) == ("unknown", NO_BASELINE, "none")


def test_a_measured_baseline_at_this_load_decides(store: Store) -> None:
    keep_curve(store, profile())
    name = keep_comparison(store, profile(), 0.6)
    evidence = evidence_for(store, profile(), AROUND)
    found = judged(evidence, tokens_a_step=1.1, concurrency=8)
    assert (found.word, found.source, found.experiment) == ("pays", "measured", name)
    assert found.ratio == 0.6
    keep_comparison(store, profile(), 1.4)
    newer = judged(evidence_for(store, profile()), tokens_a_step=1.1, concurrency=8)
    assert newer.word == "costs"


def test_away_from_the_measured_load_the_curve_foretells(store: Store) -> None:
    keep_curve(store, profile())
    keep_comparison(store, profile(), 0.6)
    evidence = evidence_for(store, profile(), AROUND)
    assert required_now(evidence, 2) == pytest.approx(1.2)
    pays = judged(evidence, tokens_a_step=2.4, concurrency=2)
    assert (pays.word, pays.source) == ("pays", "break-even")
    assert pays.ratio == pytest.approx(0.5)
    costs = judged(evidence, tokens_a_step=1.0, concurrency=16)
    assert costs.word == "costs"
    beyond = judged(evidence, tokens_a_step=2.0, concurrency=64)
    assert beyond.word == "unknown"
    assert "measured at 1, 4, 8, 16 at a time" in beyond.sentence


def test_a_drafter_that_drafts_now_and_then_needs_less_in_that_proportion(store: Store) -> None:
    keep_curve(store, profile())
    evidence = evidence_for(store, profile(), AROUND)
    always = judged(evidence, tokens_a_step=1.08, concurrency=2)
    seldom = judged(evidence, tokens_a_step=1.08, concurrency=2, drafted_share=0.25)
    assert (always.word, seldom.word) == ("costs", "pays")
    # A quarter of the steps costs 1.2 plain ones, the others cost one.
    assert seldom.required == pytest.approx(1.05)
    assert seldom.ratio == pytest.approx(1.05 / 1.08)


@pytest.mark.parametrize("rate", [None, 2.0])
def test_a_run_with_its_own_baseline_is_evidence_unless_its_load_was_nobodys_choice(
    store: Store, rate: float | None
) -> None:
    own = profile()
    name = store.begin("run", "p", {}, AROUND, 0)
    for leg, one in (("baseline", own.without_drafter()), ("drafter", own)):
        store.add_run(name, leg, one.drafter.method, None, launch_fingerprint(one), {}, 1.0)
    found = {
        "source": "baseline",
        "ratio": 0.7,
        "interval": {"estimate": 0.7, "low": 0.6, "high": 0.8},
    }
    store.finish(name, DONE, "", {"concurrency": 4, "rate_per_s": rate, "verdict": found})
    standing = judged(evidence_for(store, own, AROUND), tokens_a_step=None, concurrency=4)
    assert standing.word == ("pays" if rate is None else "unknown")
    verdict = standing.as_verdict()
    assert (verdict.source, verdict.ratio) == (
        ("measured", 0.7) if rate is None else ("none", None)
    )


def test_a_drafter_whose_own_time_is_not_known_is_never_said_to_pay(store: Store) -> None:
    own = profile("eagle3", model="/d")
    keep_curve(store, own)
    evidence = evidence_for(store, own, AROUND)
    assert judged(evidence, tokens_a_step=3.0, concurrency=4).word == "unknown"
    assert judged(evidence, tokens_a_step=1.05, concurrency=16).word == "costs"


def test_results_of_another_machine_another_launch_and_no_drafter_are_not_used(
    store: Store,
) -> None:
    keep_comparison(store, profile(), 0.6, {**AROUND, "processor": "b"})
    assert evidence_for(store, profile(), AROUND).ratios == ()
    assert len(evidence_for(store, profile()).ratios) == 1
    other = profile(prompt_lookup_max=6)
    assert evidence_for(store, other).ratios == ()
    plain = judged(evidence_for(store, profile("none")), tokens_a_step=None, concurrency=8)
    assert "nothing to judge" in plain.sentence


def test_name_port_and_traffic_do_not_make_another_launch_but_k_does() -> None:
    one = profile()
    other = one.model_copy(
        update={
            "name": "q",
            "engine": one.engine.model_copy(update={"port": 9}),
            "traffic": one.traffic.model_copy(update={"concurrency": 9}),
        }
    )
    assert launch_fingerprint(one) == launch_fingerprint(other)
    assert launch_fingerprint(one) != launch_fingerprint(profile(k=5))
