"""One figure over the steps of a training, in bounded memory; no peak is lost. Pure."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple


class Point(NamedTuple):
    """The values of neighbouring steps. ``step`` is the first of them."""

    step: int
    low: float
    high: float
    last: float


class Curve:
    """Takes a value a step, in the order of steps. When full, neighbours are put together two by two.

    A step at or before an earlier one takes the place of all from there on: a training that was resumed
    does again what it had not saved.
    """

    CAPACITY = 2048

    def __init__(self) -> None:
        self._width = 1
        self._newest = -1
        self._points: list[Point] = []
        self.version = 0
        """Grows with every value."""
        self.remade = 0
        """Grows when points that were there are others now."""

    def add(self, step: int, value: float | None) -> None:
        """``None`` is a step without this figure."""
        points = self._points
        first = step - step % self._width
        if step <= self._newest:
            while points and points[-1].step >= first:
                points.pop()
                self.remade += 1
        self._newest = step
        if value is None:
            return
        self.version += 1
        if points and points[-1].step == first:
            low, high = min(points[-1].low, value), max(points[-1].high, value)
            points[-1] = Point(first, low, high, value)
            return
        points.append(Point(first, value, value, value))
        if len(points) > self.CAPACITY:
            self._halve()

    def _halve(self) -> None:
        self._width *= 2
        self.remade += 1
        halved: list[Point] = []
        for point in self._points:
            first = point.step - point.step % self._width
            if halved and halved[-1].step == first:
                before = halved[-1]
                low, high = min(before.low, point.low), max(before.high, point.high)
                halved[-1] = Point(first, low, high, point.last)
            else:
                halved.append(point._replace(step=first))
        self._points = halved

    @property
    def last(self) -> float | None:
        return self._points[-1].last if self._points else None

    @property
    def last_step(self) -> int | None:
        return self._points[-1].step if self._points else None

    def at(self, step: int) -> float | None:
        """The value of this step, or of the last one before it."""
        place = bisect_right(self._points, step, key=lambda point: point.step)
        return self._points[place - 1].last if place else None

    def since(self, index: int) -> list[Point]:
        """The points from ``index`` on."""
        return self._points[max(0, index) :]

    def __iter__(self) -> Iterator[Point]:
        return iter(self._points)

    def __len__(self) -> int:
        return len(self._points)
