"""A chart of lines over the last minutes, as rows of inked text. Pure: it can be drawn without a screen."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from specpanel.app.tui.charts.bins import JOIN_S, Bins
from specpanel.app.tui.charts.cells import LABEL_CELLS, runs, time_axis, write, write_note
from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.charts.raster import Raster
from specpanel.app.tui.charts.scale import RangeKeeper, Scale, tick_label
from specpanel.app.tui.ink import Line, Span, cells_of, clean, shorten

_MARKS_KEPT = 64
_MINIMUM_COLUMNS, _MINIMUM_ROWS = 8, 3


@dataclass(frozen=True, slots=True)
class Series:
    """A line: its name in the legend and its ink. The first of a chart lies lowest."""

    name: str
    ink: str
    dash: int = 0  # the pattern when colours are off
    group: str = ""  # stands before the first name of the group in the legend


@dataclass(frozen=True, slots=True)
class Reference:
    """A value to compare with, drawn as a level line behind the series, and what it means."""

    value: float
    label: str


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
        reference: Reference | None = None,
    ) -> None:
        self.series = tuple(series)
        self._reference = reference
        self.glyphs = glyphs
        self.patterns = patterns
        self._log = log
        self._range = RangeKeeper(low=low, high=high, log=log)
        self._marks: deque[tuple[float, str]] = deque(maxlen=_MARKS_KEPT)
        self._marks_made = 0
        self._bins: tuple[Bins, ...] = ()
        self._raster: Raster | None = None
        self._now_s = 0.0
        self._width = self._height = 0
        self._window_s = 60.0
        self._drawn: tuple[int, Scale] | None = None
        self._picture: tuple[object, list[Line]] | None = None
        self._rows: list[tuple[object, Line]] = []  # of it, with what each shows
        self._axis: Line = ()
        self.empty_reason = ""
        self.cursor: int | None = None

    def resize(self, width: int, height: int, window_s: float) -> None:
        """Takes a new size or window and forgets all samples: add them again."""
        self._width, self._height, self._window_s = width, height, window_s
        columns, rows = width - LABEL_CELLS - 1, height - 1
        self._marks.clear()
        self._drawn = self._picture = None
        self._rows = []
        self._now_s = 0.0
        self._range.forget()
        if columns < _MINIMUM_COLUMNS or rows < _MINIMUM_ROWS - 1:
            self._raster, self._bins = None, ()
            return
        self._raster = Raster(columns, rows, self.glyphs)
        kind = "log" if self._log else ""
        axis = f"{kind:>{LABEL_CELLS}}{self.glyphs.corner}{time_axis(window_s, columns)}"
        self._axis = ((axis, "axis"),)
        dots = self._raster.dots_wide
        bin_s = window_s / dots
        # A line can come in from the left: bins are kept for as long as two samples are joined.
        hidden = math.ceil(max(JOIN_S, 1.5 * bin_s) / bin_s) + 2
        self._bins = tuple(Bins(dots + hidden, bin_s) for _ in self.series)

    @property
    def bin_s(self) -> float:
        return self._bins[0].width_s if self._bins else 0.0

    def add(self, time_s: float, values: Sequence[float | None]) -> None:
        """One sample of every series; ``None`` is a gap."""
        self._now_s = max(self._now_s, time_s)
        for bins, value in zip(self._bins, values, strict=False):
            bins.add(time_s, value)

    def take(
        self,
        time_s: float,
        values: Sequence[float | None],
        *,
        breaks: bool = False,
        note: str | None = None,
    ) -> None:
        """One moment whole: a break before it, its sample, and its mark."""
        if breaks:
            self.break_lines()
        self.add(time_s, values)
        if note is not None:
            self.mark(time_s, note)

    def break_lines(self) -> None:
        """No line crosses this moment: the server's counters started over."""
        for bins in self._bins:
            bins.break_line()

    def mark(self, time_s: float, label: str) -> None:
        """A vertical line with a note."""
        self._marks.append((time_s, clean(label)))
        self._marks_made += 1

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
        shows = (
            right,
            tuple(bins.version for bins in self._bins),
            self.cursor,
            self.empty_reason,
            self.patterns,
            self._marks_made,
        )
        if (
            self._picture is not None
            and self._picture[0] == shows
            and self._now_s < self._range.shrinks_at_s
        ):
            return self._picture[1]
        lines = self._draw(raster, right)
        self._picture = shows, lines
        return lines

    def _draw(self, raster: Raster, right: int) -> list[Line]:
        oldest = right - raster.dots_wide + 1
        spans = [span for bins in self._bins if (span := bins.span(oldest)) is not None]
        span = (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None
        scale = self._range.update(span, self._now_s, max(2, raster.rows // 3))
        self._rasterise(raster, right, scale)
        labels = self._tick_rows(raster, scale)
        marks = self._mark_columns(raster, right)
        level = self._reference_row(raster, scale)
        words = [*self._reference_words(raster, level), *self._reason_words(raster, right)]
        rows = []
        for row in range(raster.rows):
            # Most rows are those of the picture before: they stay the same objects.
            said = [(at, text) for where, at, text in words if where == row]
            shows = (
                bytes(raster.bits[row]),
                bytes(raster.owner[row]),
                labels.get(row),
                row == level,
                marks,
                said,
                self.cursor,
            )
            kept = self._rows[row] if row < len(self._rows) else None
            if kept is None or kept[0] != shows:
                kept = shows, self._row(raster, row, labels.get(row), marks, said, row == level)
            rows.append(kept)
        self._rows = rows
        return [*(line for _, line in rows), self._axis]

    def _right(self, raster: Raster) -> int:
        """The bin in the last column of dots: the last one of a whole cell."""
        number, dots_x = self._bins[0].number(self._now_s), self.glyphs.dots_x
        return (number // dots_x + 1) * dots_x - 1

    def _rasterise(self, raster: Raster, right: int, scale: Scale) -> None:
        from_column = 0
        if self._drawn is not None and self._drawn[1] == scale:
            # The same axis: the picture moves, and only what the newest samples can reach is drawn again.
            moved = min(raster.columns, (right - self._drawn[0]) // self.glyphs.dots_x)
            reach = math.ceil(self._bins[0].join_s / self.bin_s / self.glyphs.dots_x) + 1
            from_column = max(0, raster.columns - 1 - reach - moved)
            if moved:
                raster.shift(moved)
        raster.clear(from_column)
        for owner, (series, bins) in enumerate(zip(self.series, self._bins, strict=True), 1):
            dash = series.dash if self.patterns else 0
            raster.line(owner, bins, scale, right=right, from_column=from_column, dash=dash)
        self._drawn = (right, scale)

    def _row(
        self,
        raster: Raster,
        row: int,
        label: str | None,
        marks: dict[int, str],
        said: Sequence[tuple[int, str]],
        is_level: bool,
    ) -> Line:
        """One row of cells: the axis, lines and marks, and words where nothing is drawn."""
        blank = (" ", "grid") if label is None else (self.glyphs.grid, "grid")
        if is_level:
            blank = (self.glyphs.reference, "axis")
        cells = self._cells(raster, row, marks, blank)
        for at, text in said:
            write(cells, at, text, "muted")
        return (self._axis_span(label), *runs(cells))

    def _axis_span(self, label: str | None) -> Span:
        text = (label or "").rjust(LABEL_CELLS)[-LABEL_CELLS:]
        return text + (self.glyphs.tick if label is not None else self.glyphs.axis), "axis"

    def _reference_row(self, raster: Raster, scale: Scale) -> int | None:
        reference = self._reference
        if reference is None or not scale.low <= reference.value <= scale.high:
            return None
        return scale.dot(reference.value, raster.dots_high) // self.glyphs.dots_y

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

    def _cells(self, raster: Raster, row: int, marks: dict[int, str], blank: Span) -> list[Span]:
        bits, owner = raster.bits[row], raster.owner[row]
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
                write_note(cells, owner, range(column + 1, end), label, self.glyphs.ellipsis)
        return cells

    def _reference_words(self, raster: Raster, level: int | None) -> list[tuple[int, int, str]]:
        """What the level line means, at its left end where no series runs over it: row, cell and text."""
        if self._reference is None or level is None:
            return []
        text = f" {self._reference.label} "
        cells = cells_of(text)
        if cells > raster.columns // 2 or any(raster.owner[level][1 : cells + 1]):
            return []
        return [(level, 1, text)]

    def _reason_words(self, raster: Raster, right: int) -> list[tuple[int, int, str]]:
        """Why the series that matters most, the last one, has no newest values: row, cell and text.

        The words stand in the gap at the right, in the free row that is nearest to the middle; in a
        gap that is too narrow for them there are none.
        """
        text = self.empty_reason
        if not text:
            return []
        bins = self._bins[-1]
        start = 0
        if bins.span(right - raster.dots_wide + 1) is not None:
            start = (bins.newest - right + raster.dots_wide - 1) // self.glyphs.dots_x + 2
        room = raster.columns - start - 2
        if cells_of(text) > room and start == 0:
            text = shorten(text, room, self.glyphs.ellipsis)
        cells = cells_of(text)
        if not text or cells > room:
            return []
        at = start + 1 + (room - cells) // 2
        middle = raster.rows // 2
        for row in sorted(range(raster.rows), key=lambda row: abs(row - middle)):
            if not any(raster.owner[row][at - 1 : at + cells + 1]):
                return [(row, at, text)]
        return []
