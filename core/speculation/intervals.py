"""Intervals around rates and ratios: Wilson's for a proportion, the percentile bootstrap for pooled sums."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from statistics import NormalDist

from specpanel.core.monitor.frame import Interval

CONFIDENCE = 0.95
RESAMPLES = 2000
FEWEST_UNITS = 2  # resampling one unit returns that unit: no interval


def wilson(successes: int, trials: int, *, confidence: float = CONFIDENCE) -> Interval | None:
    """A proportion with Wilson's score interval; all in 0..1. ``None`` without trials.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
    JASA 22 (1927). Unlike p ± z·s it stays inside 0..1 and has a width at 0 and at 1.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} of {trials} is no proportion")
    if trials == 0:
        return None
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate = successes / trials
    scale = 1 + z * z / trials
    middle = (rate + z * z / (2 * trials)) / scale
    half = z * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials)) / scale
    # At 0 and 1 the bound is exact; the subtraction would leave a rounding error on the wrong side.
    return Interval(rate, max(0.0, min(middle - half, rate)), min(1.0, max(middle + half, rate)))


def resampled_sums(
    columns: Sequence[Sequence[float]], *, resamples: int = RESAMPLES, seed: int = 0
) -> Iterator[tuple[float, ...]]:
    """Sums of each column over units drawn with replacement, one tuple a resample.

    ``columns`` hold one entry a unit (a prompt, a request) and are equally long; a unit is always drawn
    with all its entries, so a ratio of two sums keeps their pairing. The same seed gives the same sums.
    Needs two units.
    """
    units = range(len(columns[0]))
    draw = random.Random(seed).choices
    for _ in range(resamples):
        pick = itemgetter(*draw(units, k=len(units)))
        yield tuple(sum(pick(column)) for column in columns)


def bootstrap(
    columns: Sequence[Sequence[float]],
    statistic: Callable[[tuple[float, ...]], float | None],
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval | None:
    """A figure made of pooled sums with its percentile interval from resampled units.

    ``statistic`` gets the sums of the columns and gives ``None`` where the figure is not defined.
    ``None`` comes back below two units, or when the figure is not defined for most resamples.
    """
    if len(columns[0]) < FEWEST_UNITS:
        return None
    estimate = statistic(tuple(sum(column) for column in columns))
    if estimate is None:
        return None
    sums = resampled_sums(columns, resamples=resamples, seed=seed)
    values = sorted(value for one in sums if (value := statistic(one)) is not None)
    if len(values) <= resamples // 2:
        return None
    tail = (1 - confidence) / 2
    low, high = percentile(values, tail), percentile(values, 1 - tail)
    return Interval(estimate, min(low, estimate), max(high, estimate))


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which ``share`` (0..1) of ascending values lie, interpolated linearly."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
