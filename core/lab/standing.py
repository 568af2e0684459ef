"""Whether speculation pays on a server now, from what experiments found before. ``judged`` is pure.

``evidence_for`` reads the store, once for a server; ``judged`` is asked as often as figures come.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from specpanel.core.lab.arms import launch_fingerprint
from specpanel.core.lab.store import DONE, INTERRUPTED, Experiment, Store, store_path
from specpanel.core.monitor.frame import Interval
from specpanel.core.settings.profile import Profile
from specpanel.core.speculation.breakeven import Required, interval_at, required_at
from specpanel.core.speculation.verdict import PHRASES, Source, Verdict, Word, word_of

NO_BASELINE = "no baseline yet: specpanel compare measures one"
SAME_LOAD = 1.25  # a ratio measured at 8 at a time holds from 6.4 to 10
# Drafters without weights: what they add to a step is next to nothing.
_FREE = frozenset({"ngram", "ngram_gpu", "suffix"})
# What two environments must share for a ratio to hold in both.
_SHARED = ("platform", "processor", "devices", "vllm_version")


@dataclass(frozen=True, slots=True)
class Ratio:
    """A measured time per output token with the drafter over without, at one load."""

    experiment: str
    started_unix: float
    concurrency: int
    ratio: float
    interval: Interval


@dataclass(frozen=True, slots=True)
class Curve:
    """Required acceptance lengths of a launch's target. ``plain_step_ms`` is by load."""

    experiment: str
    points: tuple[Required, ...]
    plain_step_ms: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the store knows of one launch; newest first. ``free``: its drafter costs next to nothing."""

    drafter: str
    k: int | None
    free: bool
    ratios: tuple[Ratio, ...] = ()
    curve: Curve | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """A verdict with where it came from. ``required`` is the break-even length at this load, if known."""

    word: Word
    sentence: str
    source: Source
    ratio: float | None = None
    interval: Interval | None = None
    required: float | None = None
    experiment: str | None = None
    concurrency: int | None = None  # that the ratio was measured at

    def as_verdict(self) -> Verdict:
        """The same for a summary."""
        return Verdict(
            self.word, self.sentence, self.ratio, self.interval, self.source, self.experiment
        )


# -- reading --------------------------------------------------------------------------------


def evidence_for(
    store: Store, profile: Profile, around: Mapping[str, Any] | None = None
) -> Evidence:
    """What experiments found about launches like ``profile``.

    Args:
        around: the environment's table; experiments on another machine, vLLM or device are passed over.
            None takes all.

    Raises:
        RecordingError: the store cannot be read.
    """
    plain, own = launch_fingerprint(profile.without_drafter()), launch_fingerprint(profile)
    ratios: list[Ratio] = []
    curve: Curve | None = None
    for found in store.experiments():
        if found.result is None or found.state not in (DONE, INTERRUPTED):
            continue
        if around is not None and any(found.environment.get(k) != around.get(k) for k in _SHARED):
            continue
        if found.kind == "compare":
            launches = {run.arm: run.launch for run in store.runs(found.id)}
            ratios += _of_compare(found, launches, plain, own)
        elif found.kind == "breakeven" and found.settings.get("plain_launch") == plain:
            curve = curve or _curve(found)
            if found.settings.get("own_launch") == own:
                ratios += _of_breakeven(found)
        elif found.kind == "run":
            launches = {run.arm: run.launch for run in store.runs(found.id)}
            if (launches.get("baseline"), launches.get("drafter")) == (plain, own):
                ratios += _of_run(found)
    method = profile.drafter.method
    return Evidence(method, profile.drafter.draft_tokens, method in _FREE, tuple(ratios), curve)


def stored_evidence(profile: Profile, around: Mapping[str, Any] | None = None) -> Evidence:
    """``evidence_for`` of the user's own store; nothing is known, and nothing made, where there is none."""
    if not store_path().exists():
        drafter = profile.drafter
        return Evidence(drafter.method, drafter.draft_tokens, drafter.method in _FREE)
    with Store() as store:
        return evidence_for(store, profile, around)


def _of_compare(
    found: Experiment, launches: Mapping[str, str], plain: str, own: str
) -> Iterator[Ratio]:
    result = found.result or {}
    for pairing in result.get("pairings", ()):
        if (launches.get(pairing["a"]), launches.get(pairing["b"])) != (plain, own):
            continue
        tpot = pairing["overall"][0]
        if tpot["value"] is not None and tpot["interval"] is not None:
            yield _ratio(found, result["concurrency"], tpot["value"], tpot["interval"])


def _of_breakeven(found: Experiment) -> Iterator[Ratio]:
    for point in (found.result or {}).get("real", ()):
        if point["tpot_ratio"] is not None and point["tpot_ratio_interval"] is not None:
            yield _ratio(
                found, point["concurrency"], point["tpot_ratio"], point["tpot_ratio_interval"]
            )


def _of_run(found: Experiment) -> Iterator[Ratio]:
    """``run --baseline``: requests that arrive at a rate have no load of their own to be placed at."""
    result = found.result or {}
    judged_by = result.get("verdict") or {}
    if judged_by.get("source") == "baseline" and result.get("rate_per_s") is None:
        value, between = judged_by.get("ratio"), judged_by.get("interval")
        if value is not None and between is not None:
            yield _ratio(found, result["concurrency"], value, between)


def _ratio(found: Experiment, load: int, value: float, between: Mapping[str, float]) -> Ratio:
    return Ratio(found.id, found.started_unix, load, value, Interval(**between))


def _curve(found: Experiment) -> Curve:
    points = (found.result or {}).get("points", ())
    return Curve(
        found.id,
        tuple(
            Required(
                point["concurrency"],
                point["k"],
                point["required_length"],
                None
                if point["required_interval"] is None
                else Interval(**point["required_interval"]),
            )
            for point in points
        ),
        {point["concurrency"]: point["plain_step_ms"] for point in points},
    )


# -- judging --------------------------------------------------------------------------------


def required_now(evidence: Evidence, concurrency: float | None) -> float | None:
    """The acceptance length that is needed at this load with the launch's K; None where not measured."""
    if evidence.curve is None or evidence.k is None or not concurrency:
        return None
    return required_at(evidence.curve.points, evidence.k, concurrency)


def judged(
    evidence: Evidence,
    *,
    tokens_a_step: float | None,
    concurrency: float | None,
    drafted_share: float = 1.0,
) -> Standing:
    """Whether speculation pays at this load.

    Args:
        tokens_a_step: tokens that a step of the target yields now; the acceptance length, for a drafter
            that drafts in every step.
        concurrency: requests that run together now.
        drafted_share: of the steps, 0..1. A step without a draft costs as a plain one, so the break-even
            of a drafter that drafts now and then lies lower in that proportion.
    """
    if evidence.drafter == "none":
        return Standing("unknown", "plain decoding: there is nothing to judge", "none")
    required = required_now(evidence, concurrency)
    near = [
        ratio
        for ratio in evidence.ratios
        if concurrency and 1 / SAME_LOAD <= max(1.0, concurrency) / ratio.concurrency <= SAME_LOAD
    ]
    if near:
        return _measured(max(near, key=lambda ratio: ratio.started_unix), required)
    if evidence.curve is not None and required is not None and concurrency and tokens_a_step:
        share = min(1.0, max(0.0, drafted_share))
        return _foretold(evidence, evidence.curve, required, tokens_a_step, concurrency, share)
    if evidence.ratios or evidence.curve is not None:
        loads = sorted(
            {ratio.concurrency for ratio in evidence.ratios}
            | {point.concurrency for point in (evidence.curve.points if evidence.curve else ())}
        )
        return Standing(
            "unknown",
            f"unknown at this load: measured at {', '.join(map(str, loads))} at a time; "
            "specpanel breakeven measures it",
            "none",
            required=required,
        )
    return Standing("unknown", NO_BASELINE, "none")


def _measured(found: Ratio, required: float | None) -> Standing:
    word = word_of(found.interval)
    return Standing(
        word,
        f"{PHRASES[word]}: {found.ratio:.2f} times the time per output token without the drafter "
        f"(95 % interval {found.interval.low:.2f} to {found.interval.high:.2f}, measured at "
        f"{found.concurrency} at a time, {found.experiment})",
        "measured",
        found.ratio,
        found.interval,
        required,
        found.experiment,
        found.concurrency,
    )


def _foretold(
    evidence: Evidence,
    curve: Curve,
    required: float,
    length: float,
    concurrency: float,
    share: float,
) -> Standing:
    """From the break-even curve: the mean step's ratio over what a step yields."""
    between = interval_at(curve.points, evidence.k or 0, concurrency)
    assert between is not None
    required, low, high = (1 + share * (step - 1) for step in (required, between.low, between.high))
    ratio = required / length
    interval = Interval(ratio, low / length, high / length)
    word = word_of(interval)
    need = f"{length:.2f} tokens a step, {required:.2f} needed at {concurrency:g} at a time"
    if not evidence.free and word in ("pays", "neutral"):
        return Standing(
            "unknown",
            f"unknown: {need}, and what drafting itself takes is not measured; "
            "specpanel breakeven measures it",
            "break-even",
            None,
            None,
            required,
            curve.experiment,
        )
    return Standing(
        word,
        f"{PHRASES[word]}: {need}, so about {ratio:.2f} times the time per output token "
        f"(foretold from {curve.experiment})",
        "break-even",
        ratio,
        interval,
        required,
        curve.experiment,
    )
