"""Acceptance by draft position over time as a map of shades, as rows of inked text. Pure.

A cell is two pixels, one above the other: its upper half has the ink's first level, its lower half the
second. Where there are no colours, a cell is one pixel and a denser character stands for a higher rate.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from specpanel.app.tui.charts.cells import LABEL_CELLS, runs, time_axis, write, write_note
from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.ink import Line, Span, clean, shorten

HEAT_LEVELS = 16
"""Shades between 0 and 1."""

HEAT_INK = "heat"
_MARKS_KEPT = 64
_HOLD_S = 3.5
_MINIMUM_COLUMNS, _MINIMUM_ROWS = 8, 2
_ROWS_FOR_MARKS = 5


def heat_ink(upper: int | None, lower: int | None = None) -> str:
    """The ink of a cell by the levels of its halves; ``None`` leaves a half empty."""
    top, bottom = ("_" if level is None else str(level) for level in (upper, lower))
    return f"{HEAT_INK}-{top}-{bottom}"


def heat_levels(ink: str) -> tuple[int | None, int | None] | None:
    """The levels that an ink of ``heat_ink`` stands for; ``None`` for any other ink."""
    kind, *levels = ink.split("-")
    if kind != HEAT_INK or len(levels) != 2:
        return None
    upper, lower = (None if level == "_" else int(level) for level in levels)
    return upper, lower


@dataclass(slots=True)
class _Bin:
    """Counts of all windows that ended in one bin of time; ``accepted`` has one entry a position."""

    time_s: float
    drafts: float
    accepted: list[float]

    def rate(self, position: int, *, conditional: bool) -> float | None:
        if position > len(self.accepted):
            return None
        before = self.accepted[position - 2] if conditional and position > 1 else self.drafts
        return min(1.0, self.accepted[position - 1] / before) if before else None


class HeatPlot:
    """Position 1 on top; time runs to "now" at the right and moves by whole cells.

    A column is the pooled rate (accepted / drafts) of the windows that ended in it. A column in which no
    Frame fell shows the one before, for at most some seconds; no drafts leave it empty.
    """

    def __init__(self, *, glyphs: Glyphs = BRAILLE, colors: bool = True) -> None:
        self.glyphs = glyphs
        self.conditional = False
        self.empty_reason = ""
        self.cursor: int | None = None
        self._half_blocks = colors and glyphs.name != "ascii"
        self._width = self._height = 0
        self._window_s = 60.0
        self._now_s = 0.0
        self._bins: dict[int, _Bin | None] = {}
        self._marks: deque[tuple[float, str]] = deque(maxlen=_MARKS_KEPT)

    @property
    def _columns(self) -> int:
        return self._width - LABEL_CELLS - 1

    @property
    def _bin_s(self) -> float:
        return self._window_s / self._columns

    @property
    def _has_room(self) -> bool:
        return self._columns >= _MINIMUM_COLUMNS and self._height > _MINIMUM_ROWS

    def resize(self, width: int, height: int, window_s: float) -> None:
        """Takes a new size or window and forgets all samples: add them again."""
        self._width, self._height, self._window_s = width, height, window_s
        self._now_s = 0.0
        self._bins.clear()
        self._marks.clear()

    def add(self, time_s: float, counts: Sequence[float | None]) -> None:
        """One Frame's window: its drafts, then accepted tokens by position; empty without drafts."""
        if not self._has_room:
            return
        self._now_s = max(self._now_s, time_s)
        number = int(time_s / self._bin_s)
        found = self._bins.get(number)
        drafts, *accepted = [count for count in counts if count is not None] or [0.0]
        if not drafts or not accepted:
            self._bins.setdefault(number, None)
        elif found is None or len(found.accepted) != len(accepted):
            self._bins[number] = _Bin(time_s, drafts, accepted)
        else:
            found.time_s = time_s
            found.drafts += drafts
            for at, more in enumerate(accepted):
                found.accepted[at] += more
        oldest = self._oldest()
        for old in [old for old in self._bins if old < oldest - 1]:
            del self._bins[old]

    def take(
        self, time_s: float, counts: Sequence[float | None], *, note: str | None = None
    ) -> None:
        """One moment whole: its counts and its mark."""
        self.add(time_s, counts)
        if note is not None:
            self.mark(time_s, note)

    def mark(self, time_s: float, label: str) -> None:
        """A vertical line with a note."""
        self._marks.append((time_s, clean(label)))

    def move_cursor(self, columns: int) -> None:
        """Moves the value cursor, which counts cells from the right edge; it appears there."""
        if self._has_room:
            moved = -1 if self.cursor is None else self.cursor - columns
            self.cursor = min(self._columns - 1, max(0, moved))

    def reading(self) -> tuple[float, list[float | None]] | None:
        """Seconds before now and every position's rate under the cursor; ``None`` without a cursor."""
        if self.cursor is None or not self._has_room:
            return None
        number = self._oldest() + self._columns - 1 - self.cursor
        found = self._shown_bins()[self._columns - 1 - self.cursor]
        count = 0 if found is None else len(found.accepted)
        values = [self._rate(found, position) for position in range(1, count + 1)]
        return max(0.0, self._now_s - (number + 0.5) * self._bin_s), values

    def draw(self) -> list[Line]:
        if not self._has_room:
            return [((" " * max(0, self._width), "text"),) for _ in range(max(0, self._height))]
        bins = self._shown_bins()
        positions = max((len(found.accepted) for found in bins if found is not None), default=0)
        marks = self._mark_columns()
        rows = self._height - 1
        lines: list[Line] = []
        if marks and rows >= _ROWS_FOR_MARKS:
            lines.append(self._mark_row(marks))
            rows -= 1
        pixels = rows * 2 if self._half_blocks else rows
        shown = min(positions, pixels)
        # Which position a row of pixels belongs to: all of them are used.
        owner = [pixel * shown // pixels + 1 for pixel in range(pixels)]
        levels = {
            position: [self._level(found, position) for found in bins]
            for position in range(1, shown + 1)
        }
        labels = {(owner.index(p) + len(owner) - 1 - owner[::-1].index(p)) // 2: p for p in levels}
        for row in range(rows):
            first = row * 2 if self._half_blocks else row
            label = next((labels[at] for at in self._pixels_of(first) if at in labels), None)
            cells = self._cells([levels.get(owner[at]) for at in self._pixels_of(first)], marks)
            if not shown and row == rows // 2:
                self._write_reason(cells)
            axis = "" if label is None else str(label)
            tick = self.glyphs.axis if label is None else self.glyphs.tick
            lines.append(((f"{axis:>{LABEL_CELLS}}{tick}", "axis"), *runs(cells)))
        corner = " " * LABEL_CELLS + self.glyphs.corner
        lines.append(((corner, "axis"), (time_axis(self._window_s, self._columns), "axis")))
        return lines

    def _pixels_of(self, first: int) -> tuple[int, ...]:
        return (first, first + 1) if self._half_blocks else (first,)

    def _oldest(self) -> int:
        return int(self._now_s / self._bin_s) - self._columns + 1

    def _shown_bins(self) -> list[_Bin | None]:
        """The bin that each column shows."""
        oldest, hold_s = self._oldest(), max(_HOLD_S, 1.5 * self._bin_s)
        held = self._bins.get(oldest - 1)
        shown: list[_Bin | None] = []
        for number in range(oldest, oldest + self._columns):
            if number in self._bins:
                held = self._bins[number]
            elif held is not None and number * self._bin_s - held.time_s > hold_s:
                held = None
            shown.append(held)
        return shown

    def _rate(self, found: _Bin | None, position: int) -> float | None:
        return None if found is None else found.rate(position, conditional=self.conditional)

    def _level(self, found: _Bin | None, position: int) -> int | None:
        rate = self._rate(found, position)
        return None if rate is None else round(rate * (HEAT_LEVELS - 1))

    def _cells(self, pixels: list[list[int | None] | None], marks: dict[int, str]) -> list[Span]:
        """One row of cells from one or two rows of pixels."""
        none: list[int | None] = [None] * self._columns
        upper = pixels[0] or none
        lower = (pixels[1] or none) if self._half_blocks else upper
        cursor = None if self.cursor is None else self._columns - 1 - self.cursor
        cells: list[Span] = []
        for column, (top, bottom) in enumerate(zip(upper, lower, strict=True)):
            if top is None and bottom is None:
                if column == cursor:
                    cells.append((self.glyphs.axis, "strong"))
                else:
                    mark = (self.glyphs.mark, "mark") if column in marks else (" ", "grid")
                    cells.append(mark)
            elif column == cursor:
                cells.append((self.glyphs.axis, "strong"))
            else:
                cells.append(self._shade(top, bottom))
        return cells

    def _shade(self, top: int | None, bottom: int | None) -> Span:
        if not self._half_blocks:
            shades = self.glyphs.shades
            return shades[round((top or 0) / (HEAT_LEVELS - 1) * (len(shades) - 1))], "text"
        if top == bottom:
            return "█", heat_ink(top)
        if top is None:
            return "▄", heat_ink(bottom)
        return "▀", heat_ink(top, bottom)

    def _mark_columns(self) -> dict[int, str]:
        oldest = self._oldest()
        columns = ((int(time_s / self._bin_s) - oldest, label) for time_s, label in self._marks)
        return {column: label for column, label in columns if 0 <= column < self._columns}

    def _mark_row(self, marks: dict[int, str]) -> Line:
        """The notes stand in a row of their own: over the map they would hide what they speak of."""
        cells: list[Span] = [(" ", "grid")] * self._columns
        free = [0] * self._columns
        for column, label in marks.items():
            cells[column] = (self.glyphs.mark, "mark")
            end = min((other for other in marks if other > column), default=self._columns)
            write_note(cells, free, range(column + 1, end), label, self.glyphs.ellipsis)
        return ((" " * LABEL_CELLS + self.glyphs.axis, "axis"), *runs(cells))

    def _write_reason(self, cells: list[Span]) -> None:
        text = shorten(self.empty_reason, self._columns - 2, self.glyphs.ellipsis)
        write(cells, (self._columns - cell_len(text)) // 2, text, "muted")

    def legend(self) -> Line:
        """What the shades mean, from no draft accepted to every one."""
        if not self._half_blocks:
            return (("0 ", "muted"), (self.glyphs.shades, "text"), (" 100 %", "muted"))
        ramp = tuple(("█", heat_ink(level)) for level in range(0, HEAT_LEVELS, 3))
        return (("0 ", "muted"), *ramp, (" 100 %", "muted"))
