"""Intervals that stay honest with few resampled units: the bootstrap's standard error, Student's reach.

The percentile interval is too narrow for ten or twenty units: it lacks the factor n / (n - 1) of a variance
and takes normal quantiles where Student's belong (T. Hesterberg, "What Teachers Should Know About the
Bootstrap", The American Statistician 69 (2015), section 4.3). Reading percentiles further out mends that but
hangs on the few outermost resamples; the standard error of all of them, times Student's quantile, does not.
Ratios are taken on a logarithmic scale, where they are symmetric and cannot reach below 0.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from statistics import stdev

from specpanel.core.monitor.frame import Interval
from specpanel.core.speculation.intervals import CONFIDENCE, RESAMPLES, resampled_sums

FEWEST = 5  # with fewer units the tail lies outside of what resampling can reach


@cache
def student_quantile(share: float, degrees: int) -> float:
    """The quantile of Student's t with whole degrees of freedom, for ``share`` in 0.5 .. 1."""
    if not 0.5 <= share < 1 or degrees < 1:
        raise ValueError(f"no quantile of t at {share} with {degrees} degrees of freedom")
    low, high = 0.0, 1.0
    while _student_share(high, degrees) < share:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_share(middle, degrees) < share else (low, middle)
    return (low + high) / 2


def _student_share(t: float, degrees: int) -> float:
    """P(T < t) for t >= 0. Source: Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan2(t, math.sqrt(degrees))
    square = math.cos(angle) ** 2
    term, total = 1.0, 1.0
    first = 2 if degrees % 2 else 1
    for step in range(first, degrees - 1, 2):
        term *= square * step / (step + 1)
        total += term
    if degrees % 2 == 0:
        return 0.5 + math.sin(angle) * total / 2
    between = angle if degrees == 1 else angle + math.sin(angle) * math.cos(angle) * total
    return 0.5 + between / math.pi


def resampled_interval(
    columns: Sequence[Sequence[float]],
    statistic: Callable[[tuple[float, ...]], float | None],
    *,
    is_ratio: bool = True,
    resamples: int = RESAMPLES,
    seed: int = 0,
    spent: int = 1,
) -> Interval | None:
    """A figure of pooled sums with its 95 % interval from resampled units.

    Args:
        columns: as in ``bootstrap``: one entry a unit, equally long.
        is_ratio: whether the figure is positive and told as a ratio, else as a difference.
        spent: degrees of freedom that are used up: one for the mean, one more where the data themselves
            chose when to stop.

    ``None`` below ``FEWEST`` units, or where the figure is not defined for most resamples.
    """
    units = len(columns[0])
    if units < FEWEST:
        return None
    estimate = statistic(tuple(sum(column) for column in columns))
    if estimate is None or (is_ratio and estimate <= 0):
        return None
    sums = resampled_sums(columns, resamples=resamples, seed=seed)
    values = [value for one in sums if (value := statistic(one)) is not None]
    if is_ratio:
        values = [math.log(value) for value in values if value > 0]
    if len(values) <= resamples // 2:
        return None
    half = stdev(values) * _reach(units, spent)
    if is_ratio:
        return Interval(estimate, estimate * math.exp(-half), estimate * math.exp(half))
    return Interval(estimate, estimate - half, estimate + half)


def relative_half_width(
    ratio_columns: Sequence[Sequence[float]], *, spent: int = 1
) -> float | None:
    """Half the width of the 95 % interval of ``(Σa/Σb) / (Σc/Σd)``, relative to it; quick, by linearisation.

    Meant for deciding whether to go on measuring; what is told is resampled. None below ``FEWEST`` units
    or where a sum is 0.
    """
    units = len(ratio_columns[0])
    sums = [sum(column) for column in ratio_columns]
    if units < FEWEST or not all(sums):
        return None
    parts = zip(*ratio_columns, strict=True)
    total = 0.0
    for a, b, c, d in parts:
        total += (a / sums[0] - b / sums[1] - c / sums[2] + d / sums[3]) ** 2
    return math.sqrt(total) * _reach(units, spent)


def _reach(units: int, spent: int) -> float:
    """How many standard errors, as resampling sees them, the interval reaches to each side."""
    degrees = units - spent
    widened = math.sqrt(units / degrees)
    return widened * student_quantile((1 + CONFIDENCE) / 2, degrees)
