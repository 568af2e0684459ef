"""One measured step: times of its paths, which is faster, and how surely. Pure.

The paths of a step are run in turns, and what decides is the time of a path over that of sparse MQA. There
are two estimates of it, and the surer one counts. One is the median of the quotients *of the same turn*: what
slows a whole turn down leaves its quotient alone. The other is the quotient of the fastest quarters: what
slows single runs down is in neither of them.
"""

import math
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from specpanel.kernels.vllm_rules import Step, Tier

MARGIN = 0.03
"""Paths whose times differ by less are taken as equally fast."""

_DOUBT = 2.0  # standard errors that a difference must be apart from nothing
_NO_DOUBT = 3.0  # and from where on nothing more is measured
# Standard error of a median of n normal values with a median deviation d: 1.253 * 1.483 d / sqrt(n).
_ERROR_OF_MEDIAN = 1.858


_FEWEST = 5
_FEWEST_FOR_QUARTERS = 8
_RESAMPLES = 100


def _few(repeats: int) -> float:
    """By how much few repeats widen an error: Student's quantile to the normal one, to 5 %."""
    free = max(1, repeats - 1)
    return 1 + 1.3 / free + 2 / free**2


@dataclass(frozen=True, slots=True)
class Timing:
    """Median of ``repeats`` runs, and the median distance from it."""

    median_ms: float
    mad_ms: float
    repeats: int

    @property
    def error(self) -> float:
        """Standard error of the median, relative to it; wider where few runs tell little of their spread."""
        spread = _ERROR_OF_MEDIAN * self.mad_ms / self.median_ms
        return _few(self.repeats) * spread / math.sqrt(self.repeats)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A path's time over that of sparse MQA, and its relative standard error."""

    value: float
    error: float


@dataclass(frozen=True, slots=True)
class Cell:
    """One step, measured on every path that gives the exact answer.

    ``ratios`` is empty where the paths were not run in turns; the medians are compared then.
    """

    heads: int
    query: int
    context: int
    timings: Mapping[Tier, Timing]
    ratios: Mapping[Tier, Ratio] = field(default_factory=dict)

    @property
    def step(self) -> Step:
        return Step(self.query, self.query + self.context, context_chunk=self.context)

    @property
    def mha(self) -> Tier:
        return "dense_mha" if "dense_mha" in self.timings else "masked_mha"

    def ratio(self, tier: Tier) -> Ratio:
        """The time of ``tier`` over that of sparse MQA."""
        if tier in self.ratios:
            return self.ratios[tier]
        mine, mqa = self.timings[tier], self.timings["sparse_mqa"]
        error = 0.0 if tier == "sparse_mqa" else math.hypot(mine.error, mqa.error)
        return Ratio(mine.median_ms / mqa.median_ms, error)

    @property
    def gain(self) -> float:
        """Time of sparse MQA over that of the MHA form: above 1 MHA is faster."""
        return 1.0 / self.ratio(self.mha).value

    @property
    def noise(self) -> float:
        """Relative standard error of ``gain``."""
        return self.ratio(self.mha).error

    def outcome(self, margin: float = MARGIN) -> int:
        """1 for a win, -1 for a loss, 0 within the margin or the noise."""
        clear = max(margin, _DOUBT * self.noise)
        distance = math.log(self.gain)
        return 0 if abs(distance) <= clear else 1 if distance > 0 else -1

    def regret(self, tier: Tier) -> float:
        """The time lost by ``tier`` against the best of the measured paths, as a share; noise counts, too."""
        best = min(self.ratio(other).value for other in self.timings)
        return self.ratio(tier).value / best - 1.0

    def lost(self, tier: Tier) -> float:
        """The time lost by ``tier`` beyond doubt: a path that is faster within the noise is not counted."""
        return max(
            math.exp(behind) - 1.0 if behind > _DOUBT * error else 0.0
            for behind, error in self._behind(tier)
        )

    def lost_at_most(self, tier: Tier) -> float:
        """The time that ``tier`` may lose within two standard errors."""
        return max(
            math.exp(max(0.0, behind + _DOUBT * error)) - 1.0
            for behind, error in self._behind(tier)
        )

    def _behind(self, tier: Tier) -> Iterator[tuple[float, float]]:
        """Log of the time of ``tier`` over that of each path, and the standard error of it."""
        mine = self.ratio(tier)
        for other in self.timings:
            theirs = self.ratio(other)
            error = 0.0 if other == tier else math.hypot(mine.error, theirs.error)
            yield math.log(mine.value / theirs.value), error


def cell_of(heads: int, query: int, context: int, turns: Sequence[Mapping[Tier, float]]) -> Cell:
    """The cell that ``turns`` of milliseconds make; each turn has a time of every path."""
    timings = {tier: timing_of([turn[tier] for turn in turns]) for tier in turns[0]}
    theirs = [turn["sparse_mqa"] for turn in turns]
    ratios = {tier: _ratio([turn[tier] for turn in turns], theirs) for tier in timings}
    return Cell(heads, query, context, timings, ratios)


def _ratio(mine: Sequence[float], theirs: Sequence[float]) -> Ratio:
    found = timing_of([one / other for one, other in zip(mine, theirs, strict=True)])
    paired = Ratio(found.median_ms, found.error)
    if len(mine) < _FEWEST_FOR_QUARTERS or _DOUBT * paired.error <= MARGIN / 2:
        return paired
    fast = _fast(mine) / _fast(theirs)
    chance = random.Random(len(mine))  # the same turns give the same answer
    drawn = [chance.choices(range(len(mine)), k=len(mine)) for _ in range(_RESAMPLES)]
    spread = statistics.stdev(
        math.log(_fast([mine[at] for at in turns]) / _fast([theirs[at] for at in turns]))
        for turns in drawn
    )
    return min(paired, Ratio(fast, spread * _few(len(mine))), key=lambda ratio: ratio.error)


def _fast(times: Sequence[float]) -> float:
    """Mean of the fastest quarter."""
    return statistics.fmean(sorted(times)[: max(1, len(times) // 4)])


def settled(cell: Cell, margin: float = MARGIN) -> bool:
    """Whether more turns would change nothing: the winner is beyond doubt, or the two are equally fast.

    Never after fewer than five turns, whose spread may be small by chance.
    """
    if min(timing.repeats for timing in cell.timings.values()) < _FEWEST:
        return False
    distance = abs(math.log(cell.gain))
    return _DOUBT * cell.noise <= margin / 2 or distance > max(margin, _NO_DOUBT * cell.noise)


def timing_of(values: Sequence[float]) -> Timing:
    """What repeated measurements of one thing come to."""
    median = statistics.median(values)
    return Timing(median, statistics.median(abs(value - median) for value in values), len(values))
