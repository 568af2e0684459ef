"""A chart of lines over the last minutes, as rows of inked text. Pure: it can be drawn without a screen."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from specpanel.app.tui.charts.bins import Bins
from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.charts.raster import Raster
from specpanel.app.tui.charts.scale import RangeKeeper, Scale, tick_label
from specpanel.app.tui.ink import Line, Span, clean, fit, shorten

LABEL_CELLS = 5
_MARKS_KEPT = 64
_MINIMUM_COLUMNS, _MINIMUM_ROWS = 8, 3


@dataclass(frozen=True, slots=True)
class Series:
    """A line: its name in the legend and its ink. The first of a chart lies lowest."""

    name: str
    ink: str
    dash: int = 0  # the pattern when colours are off
    group: str = ""  # stands before the first name of the group in the legend


class LinePlot:
    """Lines with a value axis on the left and a time axis below that ends in "now".

    Feed it with ``add`` in the order of time; ``draw`` gives ``height`` rows of ``width`` cells. It moves
    by whole cells, and only when a bin of time is complete.
    """

    def __init__(
        self,
        series: Sequence[Series],
        *,
        glyphs: Glyphs = BRAILLE,
        log: bool = False,
        low: float | None = None,
        high: float | None = None,
        patterns: bool = False,
    ) -> None:
        self.series = tuple(series)
        self.glyphs = glyphs
        self.patterns = patterns
        self._log = log
        self._range = RangeKeeper(low=low, high=high, log=log)
        self._marks: deque[tuple[float, str]] = deque(maxlen=_MARKS_KEPT)
        self._bins: tuple[Bins, ...] = ()
        self._raster: Raster | None = None
        self._now_s = 0.0
        self._width = self._height = 0
        self._window_s = 60.0
        self._drawn: tuple[int, Scale] | None = None
        self.empty_reason = ""
        self.cursor: int | None = None

    def resize(self, width: int, height: int, window_s: float) -> None:
        """Takes a new size or window and forgets all samples: add them again."""
        self._width, self._height, self._window_s = width, height, window_s
        columns, rows = width - LABEL_CELLS - 1, height - 1
        self._marks.clear()
        self._drawn = None
        self._now_s = 0.0
        self._range.forget()
        if columns < _MINIMUM_COLUMNS or rows < _MINIMUM_ROWS - 1:
            self._raster, self._bins = None, ()
            return
        self._raster = Raster(columns, rows, self.glyphs)
        dots = self._raster.dots_wide
        self._bins = tuple(Bins(dots + 2, window_s / dots) for _ in self.series)

    @property
    def bin_s(self) -> float:
        return self._bins[0].width_s if self._bins else 0.0

    def add(self, time_s: float, values: Sequence[float | None]) -> None:
        """One sample of every series; ``None`` is a gap."""
        self._now_s = max(self._now_s, time_s)
        for bins, value in zip(self._bins, values, strict=False):
            bins.add(time_s, value)

    def break_lines(self) -> None:
        """No line crosses this moment: the server's counters started over."""
        for bins in self._bins:
            bins.break_line()

    def mark(self, time_s: float, label: str) -> None:
        """A vertical line with a note."""
        self._marks.append((time_s, clean(label)))

    def move_cursor(self, columns: int) -> None:
        """Moves the value cursor, which counts cells from the right edge; it appears there."""
        if self._raster is not None:
            moved = -1 if self.cursor is None else self.cursor - columns
            self.cursor = min(self._raster.columns - 1, max(0, moved))

    def reading(self) -> tuple[float, list[float | None]] | None:
        """Seconds before now and every series' value under the cursor; ``None`` without a cursor."""
        raster = self._raster
        if self.cursor is None or raster is None:
            return None
        right = self._right(raster) - self.cursor * self.glyphs.dots_x
        numbers = [right - back for back in range(self.glyphs.dots_x)]
        values = [
            next((bins.last[n % bins.count] for n in numbers if bins.has(n)), None)
            for bins in self._bins
        ]
        return max(0.0, self._now_s - (right + 0.5) * self.bin_s), values

    def draw(self) -> list[Line]:
        raster = self._raster
        if raster is None:
            return [((" " * max(0, self._width), "text"),) for _ in range(max(0, self._height))]
        right = self._right(raster)
        oldest = right - raster.dots_wide + 1
        spans = [span for bins in self._bins if (span := bins.span(oldest)) is not None]
        span = (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None
        scale = self._range.update(span, self._now_s, max(2, raster.rows // 3))
        self._rasterise(raster, right, scale)
        lines = self._plot_rows(raster, right, scale)
        if span is None and self.empty_reason:
            lines = self._with_reason(lines, raster)
        lines.append(self._time_axis(raster))
        return lines

    def _right(self, raster: Raster) -> int:
        """The bin in the last column of dots: the last one of a whole cell."""
        number, dots_x = self._bins[0].number(self._now_s), self.glyphs.dots_x
        return (number // dots_x + 1) * dots_x - 1

    def _rasterise(self, raster: Raster, right: int, scale: Scale) -> None:
        from_column = 0
        if self._drawn == (right, scale):
            # Same bins, same axis: only what the newest samples can reach is drawn again.
            reach = math.ceil(self._bins[0].join_s / self.bin_s / self.glyphs.dots_x) + 1
            from_column = max(0, raster.columns - 1 - reach)
        raster.clear(from_column)
        for owner, (series, bins) in enumerate(zip(self.series, self._bins, strict=True), 1):
            dash = series.dash if self.patterns else 0
            raster.line(owner, bins, scale, right=right, from_column=from_column, dash=dash)
        self._drawn = (right, scale)

    def _plot_rows(self, raster: Raster, right: int, scale: Scale) -> list[Line]:
        labels = self._tick_rows(raster, scale)
        marks = self._mark_columns(raster, right)
        lines = []
        for row in range(raster.rows):
            label = labels.get(row)
            axis = (label or "").rjust(LABEL_CELLS)[-LABEL_CELLS:]
            axis += self.glyphs.tick if label is not None else self.glyphs.axis
            cells = self._cells(raster, row, marks, grid=label is not None)
            lines.append(((axis, "axis"), *_runs(cells)))
        return lines

    def _tick_rows(self, raster: Raster, scale: Scale) -> dict[int, str]:
        """Row of cells to label, without two in one row; the outermost ticks win."""
        ticks = scale.ticks(max(2, raster.rows * 2 // 3 if scale.log else raster.rows // 2))
        order = sorted(ticks, key=lambda tick: -abs(scale.fraction(tick) - 0.5))
        rows: dict[int, str] = {}
        for tick in order:
            row = scale.dot(tick, raster.dots_high) // self.glyphs.dots_y
            rows.setdefault(row, tick_label(tick))
        return rows

    def _mark_columns(self, raster: Raster, right: int) -> dict[int, str]:
        columns: dict[int, str] = {}
        for time_s, label in self._marks:
            x = self._bins[0].number(time_s) - right + raster.dots_wide - 1
            if x >= 0:
                columns[min(raster.columns - 1, x // self.glyphs.dots_x)] = label
        return columns

    def _cells(self, raster: Raster, row: int, marks: dict[int, str], *, grid: bool) -> list[Span]:
        bits, owner = raster.bits[row], raster.owner[row]
        blank = (self.glyphs.grid, "grid") if grid else (" ", "grid")
        inks = ("grid", *(series.ink for series in self.series))
        glyphs = self.glyphs.cells
        cells = [
            (glyphs[bits[x]], inks[owner[x]]) if owner[x] else blank for x in range(raster.columns)
        ]
        if self.cursor is not None:
            column = max(0, raster.columns - 1 - self.cursor)
            if not owner[column]:
                cells[column] = (self.glyphs.axis, "strong")
        for column, label in marks.items():
            if not owner[column]:
                cells[column] = (self.glyphs.mark, "mark")
            if row == 0:
                end = min((other for other in marks if other > column), default=raster.columns)
                _write(cells, owner, range(column + 1, end), label, self.glyphs.ellipsis)
        return cells

    def _with_reason(self, lines: list[Line], raster: Raster) -> list[Line]:
        text = shorten(self.empty_reason, raster.columns - 2, self.glyphs.ellipsis)
        row = raster.rows // 2
        pad = (raster.columns - cell_len(text)) // 2
        lines[row] = fit((lines[row][0], (" " * pad, "text"), (text, "muted")), self._width)
        return lines

    def _time_axis(self, raster: Raster) -> Line:
        axis = [" "] * raster.columns
        for back_s, text in time_ticks(self._window_s, raster.columns):
            at = round((1 - back_s / self._window_s) * (raster.columns - 1))
            at = min(raster.columns - len(text), max(0, at - len(text) // 2))
            axis[at : at + len(text)] = text
        kind = "log" if self._log else ""
        return ((f"{kind:>{LABEL_CELLS}}{self.glyphs.corner}", "axis"), ("".join(axis), "axis"))


def time_ticks(window_s: float, columns: int) -> list[tuple[float, str]]:
    """Moments on the time axis as seconds before now, with their labels, oldest first."""
    wanted = max(1, min(6, columns // 12))
    steps = (5, 10, 15, 30, 60, 120, 180, 300, 600, 900, 1200, 1800, 3600)
    step = next((step for step in steps if window_s / step <= wanted), steps[-1])
    ticks = [step * number for number in range(int(window_s // step), 0, -1)]
    minutes = step % 60 == 0 or window_s > 120
    labels = [(float(back), f"-{back / 60:g} min" if minutes else f"-{back} s") for back in ticks]
    return [*labels, (0.0, "now")]


def _runs(cells: Sequence[Span]) -> list[Span]:
    """Neighbouring cells of one ink as one span."""
    runs: list[Span] = []
    texts: list[str] = []
    current = ""
    for text, ink in cells:
        if ink != current and texts:
            runs.append(("".join(texts), current))
            texts = []
        current = ink
        texts.append(text)
    if texts:
        runs.append(("".join(texts), current))
    return runs


def _write(cells: list[Span], owner: bytearray, room: range, text: str, ellipsis: str) -> None:
    """Puts a note into the free cells at the start of ``room``; a line keeps its cells."""
    free = next((at for at in room if owner[at]), room.stop)
    text = shorten(text, min(24, free - room.start - 1), ellipsis)
    at = room.start
    for char in text:
        cells[at] = (char, "mark")
        for extra in range(1, cell_len(char)):
            cells[at + extra] = ("", "mark")
        at += max(1, cell_len(char))
