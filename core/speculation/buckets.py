"""Histogram buckets as Prometheus counts them, with the arithmetic that windows and engines need."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Buckets:
    """How many observations were at or below each upper bound.

    ``bounds_s`` rises strictly and ends with infinity; ``cumulative`` never falls and has as many
    entries. Bounds and ``sum_s`` are in seconds; ``sum_s`` is ``None`` where it is not known.
    """

    bounds_s: tuple[float, ...]
    cumulative: tuple[int, ...]
    sum_s: float | None = None

    def __post_init__(self) -> None:
        if len(self.bounds_s) != len(self.cumulative) or not self.bounds_s:
            raise ValueError("as many counts as bounds, and at least one")
        if self.bounds_s[-1] != math.inf:
            raise ValueError("the last bound is infinity")
        if any(low >= high for low, high in zip(self.bounds_s, self.bounds_s[1:], strict=False)):
            raise ValueError("bounds rise strictly")
        counts = (0, *self.cumulative)
        if any(low > high for low, high in zip(counts, self.cumulative, strict=False)):
            raise ValueError("cumulative counts never fall")

    @property
    def count(self) -> int:
        """All observations."""
        return self.cumulative[-1]

    def plus(self, other: "Buckets") -> "Buckets":
        """Both together, on the bounds that they share."""
        bounds = _shared(self, other)
        counts = zip(_at(self, bounds), _at(other, bounds), strict=True)
        total = None if self.sum_s is None or other.sum_s is None else self.sum_s + other.sum_s
        return Buckets(bounds, tuple(a + b for a, b in counts), total)

    def minus(self, earlier: "Buckets") -> "Buckets":
        """What was observed since ``earlier``, on the bounds that they share.

        A scrape is not always atomic, so a bucket may be an observation behind its neighbour: counts
        are kept from falling.
        """
        bounds = _shared(self, earlier)
        counts = zip(_at(self, bounds), _at(earlier, bounds), strict=True)
        rising = accumulate((max(0, now - then) for now, then in counts), max)
        total = None if self.sum_s is None or earlier.sum_s is None else self.sum_s - earlier.sum_s
        return Buckets(bounds, tuple(rising), total)


def merged(parts: Iterable[Buckets]) -> Buckets | None:
    """All parts together, on the bounds that every one has; ``None`` for no parts."""
    present = tuple(parts)
    return reduce(Buckets.plus, present) if present else None


def _shared(one: Buckets, other: Buckets) -> tuple[float, ...]:
    if one.bounds_s == other.bounds_s:
        return one.bounds_s
    there = set(other.bounds_s)
    return tuple(bound for bound in one.bounds_s if bound in there)


def _at(buckets: Buckets, bounds_s: tuple[float, ...]) -> tuple[int, ...]:
    if bounds_s == buckets.bounds_s:
        return buckets.cumulative
    counts = dict(zip(buckets.bounds_s, buckets.cumulative, strict=True))
    return tuple(counts[bound] for bound in bounds_s)
