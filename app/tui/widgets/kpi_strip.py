"""The numbers that matter, in one row of columns: label, value and, where there is room, a note."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.comparison import changes
from specpanel.app.tui.figures import Figure, figures
from specpanel.app.tui.ink import Line, Span, fit, shorten, width_of
from specpanel.app.tui.widgets.canvas import Canvas

if TYPE_CHECKING:
    from specpanel.core.monitor.frame import Frame

_GAP = 1
_WIDE_GAP = 2


class KpiStrip(Canvas):
    """Shows the figures of the newest Frame; the least important are dropped when room is short."""

    def __init__(self, *, glyphs: Glyphs = BRAILLE, id: str | None = None) -> None:
        super().__init__(id=id)
        self.glyphs = glyphs
        self._figures = figures(None)
        self._changes: Mapping[str, Span] = {}

    def show(self, frame: "Frame | None", before: "Frame | None" = None) -> None:
        """The numbers of ``frame``, and how they differ from the configuration ``before``."""
        shown = figures(frame), changes(frame, before, self.glyphs)
        if shown != (self._figures, self._changes):
            self._figures, self._changes = shown
            self.redraw()

    def compose_rows(self, width: int, height: int) -> Sequence[Line]:
        return strip_rows(self._figures, width, height, self.glyphs, self._changes)


def strip_rows(
    shown: Sequence[Figure],
    width: int,
    height: int,
    glyphs: Glyphs,
    changed: Mapping[str, Span] | None = None,
) -> list[Line]:
    """The strip as rows. Columns depend on the width alone, so that no number moves another.

    A change stands before the note, or behind the value where there is no row of notes.
    """
    wide = sum(figure.cells + _WIDE_GAP for figure in shown) <= width
    gap = _WIDE_GAP if wide else _GAP
    cells: list[int] = []
    for figure in shown:
        need = (figure.cells if wide else figure.short_cells) + gap
        if sum(cells) + need > width:
            break
        cells.append(need)
    if not cells:
        return []
    spare, rest = divmod(width - sum(cells), len(cells))
    cells = [need + spare + (1 if number < rest else 0) for number, need in enumerate(cells)]
    columns = list(zip(shown, cells, strict=False))
    rows: list[Line] = []
    for y in range(height):
        row: list[Span] = []
        for figure, room in columns:
            change = (changed or {}).get(figure.label)
            if y == 2:
                row += fit(_note_cell(figure, room, change, glyphs), room)
                continue
            text, ink = _cell(figure, y, wide=wide)
            cell: list[Span] = [(" ", "text"), (shorten(text, room - 1, glyphs.ellipsis), ink)]
            if change is not None and (y, height) == (1, 2):
                fits = width_of((*cell, change)) + 1 <= room
                cell += [(" ", "text"), change] if fits else []
            row += fit(cell, room)
        rows.append(tuple(row))
    return rows


def _note_cell(figure: Figure, room: int, change: Span | None, glyphs: Glyphs) -> list[Span]:
    """The note whole, else its short form whole; beside a change no part of one."""
    spans: list[Span] = [(" ", "text")]
    if change is not None:
        spans += [change, ("  ", "text")]
    left = room - width_of(spans) - (0 if change is None else 1)
    notes = (figure.note, figure.short_note or "")
    whole = next((note for note in notes if note and width_of(((note, ""),)) <= left), None)
    if whole is None and change is None:
        whole = shorten(figure.short_note or figure.note, left, glyphs.ellipsis)
    return [*spans, (whole or "", "muted")]


def _cell(figure: Figure, row: int, *, wide: bool) -> Span:
    if row == 0:
        return figure.label if wide else figure.short_label, "muted"
    if row == 1:
        value = figure.value if wide or figure.short_value is None else figure.short_value
        return value, figure.tone
    return "", "text"
