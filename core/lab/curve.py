"""What a break-even found, as records that can be shown and stored. Pure."""

from dataclasses import asdict, dataclass
from typing import Any

from specpanel.core.monitor.frame import Interval
from specpanel.core.speculation.breakeven import Holdout


@dataclass(frozen=True, slots=True)
class StepPoint:
    """One load and K, priced without any cost of drafting.

    ``required_length`` is the acceptance length above which a free drafter gains: the two step times'
    ratio. ``chosen_length`` is what the dice were set to, ``measured_length`` what vLLM accepted.
    """

    concurrency: int
    k: int
    plain_step_ms: float
    step_ms: float
    required_length: float
    required_interval: Interval | None
    chosen_length: float
    measured_length: float | None
    groups: int

    @property
    def sentence(self) -> str:
        return (
            f"{self.concurrency} at a time, K={self.k}: a step takes {self.step_ms:.1f} ms instead of "
            f"{self.plain_step_ms:.1f} ms: AL must be above {length_text(self)}"
        )


@dataclass(frozen=True, slots=True)
class RealPoint:
    """The profile's own drafter at one load. ``drafter_ms`` is what it adds to a step of the same K,
    None where it leaves steps without a draft, which are no such steps.

    ``length`` is the acceptance length of steps with a draft, ``tokens_a_step`` counts all steps.
    ``tpot_ratio`` is its time per output token over that without a drafter. ``conditional`` is the
    acceptance of each position, those before it accepted, in steps with a draft.
    """

    concurrency: int
    k: int | None
    step_ms: float | None
    plain_step_ms: float | None
    length: float | None
    tokens_a_step: float | None
    tpot_ratio: float | None
    tpot_ratio_interval: Interval | None
    drafter_ms: float | None
    drafter_ms_interval: Interval | None
    conditional: tuple[float, ...] = ()

    @property
    def sentence(self) -> str:
        length = "n/a" if self.length is None else f"{self.length:.2f}"
        ratio = "n/a" if self.tpot_ratio is None else f"{self.tpot_ratio:.3f}"
        between = self.tpot_ratio_interval
        known = "" if between is None else f" (95 % {between.low:.3f} … {between.high:.3f})"
        cost = (
            "" if self.drafter_ms is None else f"; drafting adds {self.drafter_ms:+.1f} ms a step"
        )
        return (
            f"{self.concurrency} at a time, the drafter itself: AL {length}, "
            f"{ratio}{known} times the time per output token{cost}"
        )


@dataclass(frozen=True, slots=True)
class BreakevenFound:
    """A curve of required acceptance lengths. ``holdouts`` are loads foretold from their neighbours."""

    drafter: str
    points: tuple[StepPoint, ...]
    real: tuple[RealPoint, ...]
    holdouts: tuple[Holdout, ...]
    rate: float
    max_tokens: int
    elapsed_s: float
    notes: tuple[str, ...]


def drafting_text(added_ms: float | None, between: Interval | None) -> str:
    """What drafting adds to a step, in words; noise is called that."""
    if added_ms is None:
        return "what drafting adds is not known"
    if between is None or between.low <= 0 <= between.high:
        return "drafting adds nothing beyond the noise"
    return f"drafting adds {added_ms:+.1f} ms a step (95 % {between.low:.1f} … {between.high:.1f})"


def length_text(point: StepPoint) -> str:
    """The required length with its interval."""
    between = point.required_interval
    known = "" if between is None else f" (95 % {between.low:.2f} … {between.high:.2f})"
    return f"{point.required_length:.2f}{known}"


def breakeven_table(found: BreakevenFound | None) -> dict[str, Any] | None:
    """The curve as the store keeps it."""
    if found is None:
        return None
    table = asdict(found)
    for entry, holdout in zip(table["holdouts"], found.holdouts, strict=True):
        entry["error"] = holdout.error
    return table


def breakeven_conclusion(found: BreakevenFound | None) -> str:
    """The cheapest K at the lowest and the highest load, in words."""
    if found is None:
        return "nothing was measured"
    loads = sorted({point.concurrency for point in found.points})
    parts: list[str] = []
    for load in dict.fromkeys((loads[0], loads[-1])):
        # What a full acceptance would gain decides which K is worth naming.
        best = max(
            (point for point in found.points if point.concurrency == load),
            key=lambda point: (point.k + 1) / point.required_length,
        )
        gains = f"speculation gains from AL {length_text(best)} on"
        between = best.required_interval
        if best.required_length <= 1 and between is not None and between.high > 1:
            gains = f"speculation gains from AL 1 on (95 % … {between.high:.2f}: little is certain)"
        elif best.required_length <= 1:
            gains = "speculation gains at any acceptance length"
        if best.required_interval is None:
            gains += ", as far as so few blocks tell: there is no interval"
        parts.append(f"at {load} at a time with K={best.k} {gains}")
    return "; ".join(parts)
