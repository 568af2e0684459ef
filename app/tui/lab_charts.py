"""What the lab draws: an interval as a whisker on a scale of ratios, and the break-even curve. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.ink import Line, Span, fit

_WIDEST = 4.0  # a whisker's scale reaches from a quarter to four times at most
_LABEL = 6
SERIES = ("series-1", "series-2", "series-3", "series-4")


@dataclass(frozen=True, slots=True)
class RatioScale:
    """A logarithmic scale with 1 in its middle. ``reach`` is its right end, ``1 / reach`` its left one."""

    reach: float

    @classmethod
    def over(cls, ends: Sequence[float]) -> "RatioScale":
        """The narrowest one that holds all ends, from ±10 % on."""
        far = max((abs(math.log(end)) for end in ends if end > 0), default=0.0)
        return cls(min(_WIDEST, max(1.1, math.exp(far) * 1.05)))

    def place(self, ratio: float, cells: int) -> int:
        share = 0.5 + 0.5 * math.log(max(ratio, 1e-9)) / math.log(self.reach)
        return min(cells - 1, max(0, round(share * (cells - 1))))


def whisker(
    value: float | None,
    low: float | None,
    high: float | None,
    scale: RatioScale,
    cells: int,
    glyphs: Glyphs,
    ink: str,
) -> Line:
    """The interval in ``cells``, its estimate as a dot, and an upright at 1."""
    row: list[Span] = [(" ", "text")] * cells
    row[scale.place(1.0, cells)] = (glyphs.axis, "grid")
    if value is None:
        return tuple(row)
    if low is not None and high is not None:
        left, across, right = glyphs.whisker
        begin, end = scale.place(low, cells), scale.place(high, cells)
        for place in range(begin, end + 1):
            row[place] = (across if row[place][0] == " " else _crossing(glyphs), ink)
        row[begin], row[end] = (left, ink), (right, ink)
    row[scale.place(value, cells)] = (glyphs.states["serving"], ink)
    return tuple(row)


def _crossing(glyphs: Glyphs) -> str:
    return "+" if glyphs.name == "ascii" else "┼"


@dataclass(frozen=True, slots=True)
class Point:
    """An acceptance length at a load; ``low`` and ``high`` are its interval's ends."""

    load: float
    length: float
    low: float | None = None
    high: float | None = None


def required_points(result: Mapping[str, Any]) -> dict[int, list[Point]]:
    """The points of a break-even by K, by load."""
    found: dict[int, list[Point]] = {}
    for point in result.get("points", ()):
        between = point["required_interval"] or {}
        found.setdefault(point["k"], []).append(
            Point(
                *(point["concurrency"], point["required_length"]),
                *(between.get("low"), between.get("high")),
            )
        )
    return {k: sorted(found[k], key=lambda point: point.load) for k in sorted(found)}


def breakeven_rows(
    curves: Mapping[int, Sequence[Point]],
    reached: Sequence[Point],
    now: Point | None,
    width: int,
    height: int,
    glyphs: Glyphs,
) -> list[Line]:
    """Required acceptance length by load, a line a K; what the drafter reached, and where it is now.

    Above its line a drafter gains. ``height`` rows with the axis and the legend; none where there is no
    room.
    """
    rows, columns = height - 2, width - _LABEL - 2
    every = [point for curve in curves.values() for point in curve]
    if rows < 3 or columns < 16 or not every:
        return []
    shown = [*every, *reached, *([] if now is None else [now])]
    top = max(point.length for point in shown) * 1.08
    loads = [point.load for point in every]
    grid = _Grid(columns, rows, 1.0, max(1.5, top), min(loads), max(loads), glyphs)
    for number, curve in enumerate(curves.values()):
        grid.curve(curve, SERIES[number % len(SERIES)])
    for point in reached:
        grid.sign(point, glyphs.states["stopped"], "strong")
    if now is not None:
        grid.sign(now, glyphs.states["serving"], "warn")
    lines = grid.lines()
    return [
        *lines,
        _loads_row(sorted(set(loads)), grid, width),
        _legend(curves, reached, now, glyphs),
    ]


class _Grid:
    """Cells over load (logarithmic) and length (linear)."""

    def __init__(
        self,
        columns: int,
        rows: int,
        low: float,
        high: float,
        first: float,
        last: float,
        glyphs: Glyphs,
    ) -> None:
        self.columns, self.rows, self.low, self.high = columns, rows, low, high
        self.first, self.last = math.log(first), math.log(max(last, first * 1.01))
        self.glyphs = glyphs
        self.bits = [[0] * columns for _ in range(rows)]
        self.inks = [["grid"] * columns for _ in range(rows)]
        self.signs: dict[tuple[int, int], Span] = {}

    def x(self, load: float) -> float:
        """From 0 to 1; loads outside of what was measured stay at the edge."""
        share = (math.log(max(load, 1e-9)) - self.first) / (self.last - self.first)
        return min(1.0, max(0.0, share))

    def y(self, length: float) -> float:
        return min(1.0, max(0.0, (self.high - length) / (self.high - self.low)))

    def curve(self, points: Sequence[Point], ink: str) -> None:
        wide, high = self.columns * self.glyphs.dots_x - 1, self.rows * self.glyphs.dots_y - 1
        dots = [(round(self.x(p.load) * wide), round(self.y(p.length) * high)) for p in points]
        for (x, y), (x_end, y_end) in zip(dots, dots[1:] or dots[-1:], strict=False):
            steps = max(abs(x_end - x), abs(y_end - y), 1)
            for step in range(steps + 1):
                share = step / steps
                self._dot(round(x + share * (x_end - x)), round(y + share * (y_end - y)), ink)

    def _dot(self, x: int, y: int, ink: str) -> None:
        column, row = x // self.glyphs.dots_x, y // self.glyphs.dots_y
        bit = self.glyphs.bits[x % self.glyphs.dots_x][y % self.glyphs.dots_y]
        self.bits[row][column] |= bit
        self.inks[row][column] = ink

    def sign(self, point: Point, sign: str, ink: str) -> None:
        column = round(self.x(point.load) * (self.columns - 1))
        self.signs[round(self.y(point.length) * (self.rows - 1)), column] = (sign, ink)

    def lines(self) -> list[Line]:
        found: list[Line] = []
        for row in range(self.rows):
            length = self.high - (self.high - self.low) * row / max(1, self.rows - 1)
            labelled = row % 2 == 0 or row == self.rows - 1
            label = f"{length:.2f}" if labelled else ""
            cells = [
                self.signs.get((row, column))
                or (self.glyphs.cells[self.bits[row][column]], self.inks[row][column])
                for column in range(self.columns)
            ]
            edge = self.glyphs.tick if labelled else self.glyphs.axis
            found.append(((f"{label:>{_LABEL}}{edge}", "axis"), *cells))
        return found


def _loads_row(loads: Sequence[float], grid: _Grid, width: int) -> Line:
    cells = list(" " * (width - _LABEL - 1))
    for load in loads:
        text = f"{load:g}"
        at = round(grid.x(load) * (grid.columns - 1))
        at = max(0, min(at, len(cells) - len(text)))
        if all(cell == " " for cell in cells[max(0, at - 1) : at + len(text) + 1]):
            cells[at : at + len(text)] = text
    return ((" " * _LABEL + grid.glyphs.corner, "axis"), ("".join(cells), "axis"))


def _legend(
    curves: Mapping[int, Sequence[Point]],
    reached: Sequence[Point],
    now: Point | None,
    glyphs: Glyphs,
) -> Line:
    spans: list[Span] = [(" " * (_LABEL + 1), "text"), ("at a time; needed", "muted")]
    for number, k in enumerate(curves):
        spans += [(f"  {glyphs.sample} ", SERIES[number % len(SERIES)]), (f"K={k}", "text")]
    if reached:
        spans += [(f"  {glyphs.states['stopped']}", "strong"), (" the drafter then", "muted")]
    if now is not None:
        words = f" now {now.length:.2f} at {now.load:g}"
        spans += [(f"  {glyphs.states['serving']}", "warn"), (words, "muted")]
    return tuple(spans)


def cut(row: Line, width: int, glyphs: Glyphs) -> Line:
    return fit(row, width, glyphs.ellipsis)
