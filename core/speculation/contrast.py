"""Two configurations on the same groups of prompts: ratios, differences, and what they show. Pure.

A group is the prompts that were sent together as one block. Groups are resampled, not single prompts:
what disturbs the machine disturbs a whole block, and prompts within it are not independent of each other.
A group that was sent several times stays one unit: its sums are added up.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from specpanel.core.monitor.frame import Interval
from specpanel.core.speculation.few_units import FEWEST, relative_half_width, resampled_interval
from specpanel.core.speculation.intervals import RESAMPLES
from specpanel.core.traffic.records import RequestRecord

# A mean, and the moment of stopping: in a simulation counting one covers 94.5 %, both 95.1 %.
_SPENT = 2

Shown = Literal["better", "worse", "no difference shown", "unknown"]


@dataclass(slots=True)
class Sums:
    """What one configuration did in one group, added up. Times in ms unless named otherwise.

    ``elapsed_s`` is 0 where only a part of the group's prompts is looked at: throughput is the group's.
    """

    decode_ms: float = 0.0
    decode_tokens: int = 0
    steps: int = 0  # of the target, after the first token
    ttft_ms: float = 0.0
    answers: int = 0
    output_tokens: int = 0
    elapsed_s: float = 0.0
    drafts: int = 0
    draft_tokens: int = 0
    accepted: int = 0

    def add(self, other: "Sums") -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


@dataclass(frozen=True, slots=True)
class Contrast:
    """One figure of ``b`` against ``a``. ``value`` is the ratio b/a, or b - a where ``is_difference``.

    ``shown`` says what the interval shows; "no difference shown" where it reaches to both sides of
    equality. ``absent`` says why there is no value or no interval.
    """

    figure: str
    unit: str
    is_difference: bool
    lower_is_better: bool
    a: float | None
    b: float | None
    value: float | None
    interval: Interval | None
    groups: int
    shown: Shown
    absent: str | None = None


@dataclass(frozen=True, slots=True)
class _Figure:
    """``parts`` are numerator and denominator in one side's sums; ``plus`` is added to their quotient."""

    name: str
    unit: str
    parts: tuple[str, str]
    lower_is_better: bool
    scale: float = 1.0
    is_difference: bool = False
    plus: float = 0.0

    def of(self, top: float, bottom: float) -> float | None:
        return self.scale * top / bottom + self.plus if bottom else None


TPOT = _Figure("time per output token", "ms", ("decode_ms", "decode_tokens"), True)
STEP = _Figure("time per step", "ms", ("decode_ms", "steps"), True)
STEP_DIFFERENCE = replace(STEP, is_difference=True)
THROUGHPUT = _Figure("throughput", "tok/s", ("output_tokens", "elapsed_s"), False)
TTFT = _Figure("time to first token", "ms", ("ttft_ms", "answers"), True)
LENGTH = _Figure(
    "acceptance length", "", ("accepted", "drafts"), False, is_difference=True, plus=1.0
)
FIGURES = (TPOT, THROUGHPUT, TTFT, LENGTH)


def sums_of(records: Iterable[RequestRecord], elapsed_s: float = 0.0) -> Sums:
    """One block's requests added up. Warm-up and failed requests are left out."""
    found = Sums(elapsed_s=elapsed_s)
    for record in records:
        if record.ok and not record.warmup:
            found.add(_of_request(record))
    return found


def _of_request(record: RequestRecord) -> Sums:
    # What tpot_ms was divided by: the tokens that came after the first chunk.
    later = (record.output_tokens or 0) - (record.first_chunk_tokens or 1)
    timed = record.tpot_ms is not None and later >= 1
    found = Sums(
        decode_ms=(record.tpot_ms or 0.0) * later if timed else 0.0,
        decode_tokens=later if timed else 0,
        ttft_ms=record.ttft_ms or 0.0,
        answers=int(record.ttft_ms is not None),
        output_tokens=record.output_tokens or 0,
    )
    accepted = record.accepted or ()
    drafted = accepted if record.drafted is None else record.drafted
    for offered, taken in zip(drafted, accepted, strict=False):
        if record.drafted is None or offered > 0:
            found.drafts += 1
            found.draft_tokens += offered if record.drafted is not None else 0
            found.accepted += taken
    # What drafted steps did not yield came one a step; the last may be reported past the answer's end.
    plain = max(0, found.decode_tokens - found.accepted - found.drafts)
    found.steps = found.drafts + plain if timed else 0
    return found


Groups = Mapping[int, Sums]


def columns(figure: _Figure, a: Groups, b: Groups) -> tuple[Sequence[float], ...]:
    """The four columns over the groups that both have: b's parts, then a's."""
    shared = sorted(a.keys() & b.keys())
    return tuple(
        [float(getattr(side[group], part)) for group in shared]
        for side in (b, a)
        for part in figure.parts
    )


Starts = Sequence[tuple[Groups, Groups]]
"""What both sides did, start by start of their servers, in order."""


def contrast(
    figure: _Figure,
    a: Groups,
    b: Groups,
    *,
    starts: Starts = (),
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Contrast:
    """``b`` against ``a`` in one figure, over the groups that both have.

    ``starts``: where the servers were started several times, the interval reaches over what every start
    found by itself. Two starts of one configuration differ (where their memory lies, what the machine had
    before), and resampled groups know nothing of that.
    """
    cells = columns(figure, a, b)
    groups = len(cells[0])
    totals = tuple(sum(cell) for cell in cells)
    before, after = figure.of(*totals[2:]), figure.of(*totals[:2])
    statistic = _difference(figure) if figure.is_difference else _quotient
    value = statistic(totals)
    interval, absent = None, None
    if value is None:
        absent = _why_absent(figure, before, after)
    else:
        interval = resampled_interval(
            cells,
            statistic,
            is_ratio=not figure.is_difference,
            resamples=resamples,
            seed=seed,
            spent=_SPENT,
        )
        if interval is None:
            absent = f"{groups} blocks give no interval, {FEWEST} do"
        else:
            interval = _over(interval, by_start(figure, starts))
    return Contrast(
        figure=figure.name,
        unit=figure.unit,
        is_difference=figure.is_difference,
        lower_is_better=figure.lower_is_better,
        a=before,
        b=after,
        value=value,
        interval=interval,
        groups=groups,
        shown=_shown(interval, 0.0 if figure.is_difference else 1.0, figure.lower_is_better),
        absent=absent,
    )


def by_start(figure: _Figure, starts: Starts) -> tuple[float, ...]:
    """What each start found by itself; without those that measured less than half of their share."""
    shared = [len(a.keys() & b.keys()) for a, b in starts]
    fair = sum(shared) / (2 * len(starts)) if starts else 0.0
    statistic = _difference(figure) if figure.is_difference else _quotient
    found = (
        statistic(tuple(sum(cell) for cell in columns(figure, a, b)))
        for (a, b), groups in zip(starts, shared, strict=True)
        if groups >= max(2.0, fair)
    )
    return tuple(value for value in found if value is not None)


def _over(interval: Interval, values: Sequence[float]) -> Interval:
    """``interval``, reaching over ``values``."""
    return (
        Interval(interval.estimate, min(interval.low, *values), max(interval.high, *values))
        if values
        else interval
    )


def half_width(a: Groups, b: Groups) -> float | None:
    """How uncertain the ratio of times per output token is, relative to it; None while that is unknown."""
    return relative_half_width(columns(TPOT, a, b), spent=_SPENT)


def _quotient(sums: tuple[float, ...]) -> float | None:
    top, bottom, other_top, other_bottom = sums
    if not (bottom and other_top and other_bottom):
        return None
    return (top / bottom) / (other_top / other_bottom)


def _difference(figure: _Figure) -> Callable[[tuple[float, ...]], float | None]:
    def statistic(sums: tuple[float, ...]) -> float | None:
        after, before = figure.of(*sums[:2]), figure.of(*sums[2:])
        return None if after is None or before is None else after - before

    return statistic


def _shown(interval: Interval | None, equal: float, lower_is_better: bool) -> Shown:
    if interval is None:
        return "unknown"
    if interval.low <= equal <= interval.high:
        return "no difference shown"
    return "better" if (interval.high < equal) == lower_is_better else "worse"


def _why_absent(figure: _Figure, before: float | None, after: float | None) -> str:
    if figure.is_difference and (before is None or after is None):
        return "one of the two drafts nothing"
    return "nothing was measured on both sides"
