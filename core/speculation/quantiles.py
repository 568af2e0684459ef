"""Quantiles of a latency: read from histogram buckets, or exact from the client's own samples."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from specpanel.core.monitor.frame import BucketCounts, Quantile, Quantiles
from specpanel.core.speculation.buckets import Buckets
from specpanel.core.speculation.intervals import CONFIDENCE, percentile


def bucket_quantile(buckets: Buckets, share: float) -> Quantile | None:
    """The ``share`` quantile (0..1) in milliseconds; ``None`` without observations.

    Inside a bucket the observations are taken as spread evenly, the first bucket starting at 0. In the
    top bucket only its lower bound is known: that bound comes back with ``beyond``.
    """
    if buckets.count == 0:
        return None
    rank = share * buckets.count
    below_s, below = 0.0, 0
    for bound_s, count in zip(buckets.bounds_s, buckets.cumulative, strict=True):
        if count >= rank and count > below:
            if math.isinf(bound_s):
                break
            part = (rank - below) / (count - below)
            return Quantile((below_s + (bound_s - below_s) * max(0.0, part)) * 1000)
        if math.isfinite(bound_s):
            below_s, below = max(0.0, bound_s), count
    return Quantile(below_s * 1000, beyond=True)


def bucket_quantiles(buckets: Buckets | None) -> Quantiles | None:
    """p50, p90 and p99 in milliseconds; ``None`` without observations."""
    if buckets is None:
        return None
    p50, p90, p99 = (bucket_quantile(buckets, share) for share in (0.5, 0.9, 0.99))
    if p50 is None or p90 is None or p99 is None:
        return None
    return Quantiles(buckets.count, p50, p90, p99)


def bucket_counts(buckets: Buckets | None) -> BucketCounts:
    """Observations bucket by bucket, in ms, from the first that has one to the last; () without any.

    The first bucket starts at 0, the top one has no upper bound.
    """
    if buckets is None or buckets.count == 0:
        return ()
    found: list[tuple[float, float | None, int]] = []
    below_ms, below = 0.0, 0
    for bound_s, count in zip(buckets.bounds_s, buckets.cumulative, strict=True):
        upper_ms = None if math.isinf(bound_s) else round(bound_s * 1000, 3)
        if count > below or (found and below < buckets.count):
            found.append((below_ms, upper_ms, count - below))
        below_ms, below = upper_ms or 0.0, count
    return tuple(found)


@dataclass(frozen=True, slots=True)
class SampleQuantile:
    """A quantile of samples with a 95 % interval that assumes nothing about their distribution.

    ``low_ms`` or ``high_ms`` is ``None`` where ``count`` samples are too few to bound that side.
    """

    share: float
    value_ms: float
    low_ms: float | None
    high_ms: float | None
    count: int


def sample_quantile(
    samples_ms: Sequence[float], share: float, *, confidence: float = CONFIDENCE
) -> SampleQuantile | None:
    """The ``share`` quantile (0..1) of samples in milliseconds; ``None`` without samples.

    The interval is between two order statistics: the number of samples below the true quantile is
    binomial (n, share), whatever their distribution. Source: David and Nagaraja, "Order Statistics",
    section 7.1.
    """
    if not samples_ms:
        return None
    ordered = sorted(samples_ms)
    low, high = _order_bounds(len(ordered), share, (1 - confidence) / 2)
    low_ms = None if low is None else ordered[low]
    high_ms = None if high is None else ordered[high]
    # With a handful of samples the interpolated p99 can lie below what surely lies below the true one.
    value_ms = max(percentile(ordered, share), ordered[0] if low_ms is None else low_ms)
    return SampleQuantile(share, value_ms, low_ms, high_ms, len(ordered))


def _order_bounds(count: int, share: float, tail: float) -> tuple[int | None, int | None]:
    """Indexes of the order statistics around the quantile, each side missed with at most ``tail``."""
    low: int | None = None
    at_most = 0.0  # probability that at most `below` samples are under the quantile
    for below in range(count):
        at_most += _binomial(count, below, share)
        if at_most <= tail:
            low = below
        if at_most >= 1 - tail:
            return low, below
    return low, None


def _binomial(trials: int, successes: int, probability: float) -> float:
    if probability in (0.0, 1.0):
        return float(successes == trials * probability)
    ways = (
        math.lgamma(trials + 1) - math.lgamma(successes + 1) - math.lgamma(trials - successes + 1)
    )
    return math.exp(
        ways + successes * math.log(probability) + (trials - successes) * math.log1p(-probability)
    )
