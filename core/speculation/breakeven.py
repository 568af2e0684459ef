"""From which acceptance on speculation pays, by load and K. Pure.

A step that verifies K draft tokens takes longer than a plain one and yields AL tokens instead of one. So
speculation gains where AL is above the ratio of the two step times, whatever the drafter: the required
acceptance length. It grows with the number of requests that run together.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from specpanel.core.monitor.frame import Interval


@dataclass(frozen=True, slots=True)
class Required:
    """The acceptance length that is needed at one load and K, with its 95 % interval where it has one."""

    concurrency: int
    k: int
    length: float
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class Holdout:
    """A load that was left out and foretold from those beside it; ``error`` is relative to the measured."""

    concurrency: int
    k: int
    foretold: float
    measured: float

    @property
    def error(self) -> float:
        return self.foretold / self.measured - 1


def required_at(points: Iterable[Required], k: int, concurrency: float) -> float | None:
    """The required length at a load between those measured, at the same K.

    Interpolated over the logarithm of the load; None outside of what was measured, where a line would be
    a guess.
    """
    found = interval_at(points, k, concurrency)
    return None if found is None else found.estimate


def interval_at(points: Iterable[Required], k: int, concurrency: float) -> Interval | None:
    """As ``required_at``, with both ends interpolated; an end that is not known is the estimate."""
    line = sorted((point for point in points if point.k == k), key=lambda point: point.concurrency)
    for point in line:
        if point.concurrency == concurrency:
            return _ends(point)
    for before, after in pairwise(line):
        if before.concurrency < concurrency < after.concurrency:
            share = math.log(concurrency / before.concurrency) / math.log(
                after.concurrency / before.concurrency
            )
            one, other = _ends(before), _ends(after)
            return Interval(
                _between(one.estimate, other.estimate, share),
                _between(one.low, other.low, share),
                _between(one.high, other.high, share),
            )
    return None


def holdouts(points: Sequence[Required]) -> tuple[Holdout, ...]:
    """Every load that has neighbours on both sides, foretold without itself."""
    found: list[Holdout] = []
    for point in points:
        others = [other for other in points if other is not point]
        foretold = required_at(others, point.k, point.concurrency)
        if foretold is not None:
            found.append(Holdout(point.concurrency, point.k, foretold, point.length))
    return tuple(found)


def _ends(point: Required) -> Interval:
    return point.interval or Interval(point.length, point.length, point.length)


def _between(one: float, other: float, share: float) -> float:
    return one + (other - one) * share


def expected_length(rate: float, k: int) -> float:
    """Mean acceptance length where each draft token is accepted with ``rate``, those before it accepted."""
    return 1 + sum(rate**position for position in range(1, k + 1))
