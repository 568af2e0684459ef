"""A canvas with a title: a whole frame where there is room, a rule above where there is not."""

from collections.abc import Sequence
from typing import NamedTuple

from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.ink import Line, cells_of, fit, width_of
from specpanel.app.tui.widgets.canvas import Canvas


class Pane(Canvas):
    """Draws its own border, so that no title ever goes through markup."""

    def __init__(self, title: str, *, glyphs: Glyphs = BRAILLE, id: str | None = None) -> None:
        super().__init__(id=id)
        self.title = title
        self.glyphs = glyphs
        self.framed = True
        self.selected = False
        self._arranged: _Arranged | None = None

    def legend(self) -> Line:
        """What stands in the border beside the title."""
        return ()

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        """The rows inside the frame; the same object as before where nothing has changed."""
        raise NotImplementedError

    def inside_size(self) -> tuple[int, int]:
        """Columns and rows inside the frame."""
        return self._room_inside(*self.size)

    def _room_inside(self, width: int, height: int) -> tuple[int, int]:
        edge = 2 if self.framed else 0
        return max(0, width - edge), max(0, height - (2 if self.framed else 1))

    def compose_rows(self, width: int, height: int) -> Sequence[Line]:
        inner = self._room_inside(width, height)
        composed, legend = self.compose_inside(*inner), self.legend()
        frame = (width, height, self.title, self.framed, self.selected)
        kept = self._arranged
        if kept is not None and kept.frame == frame:
            if kept.inside is composed and kept.legend == legend:
                return kept.rows
        else:
            kept = None
        ink = "border-selected" if self.selected else "border"
        inside = self._between_edges(composed, inner, ink, kept)
        rows = self._around(inside, legend, width, ink)
        self._arranged = _Arranged(frame, composed, legend, inside, rows)
        return rows

    def _between_edges(
        self, composed: Sequence[Line], inner: tuple[int, int], ink: str, kept: "_Arranged | None"
    ) -> Sequence[Line]:
        """The rows inside with the frame at both ends; of those that stayed the same objects as before."""
        if not self.framed:
            return composed
        edge = (self.glyphs.box[3], ink)
        rows: list[Line] = []
        for y in range(inner[1]):
            row = composed[y] if y < len(composed) else ()
            if kept is not None and y < len(kept.inside) and row is kept.inside[y]:
                rows.append(kept.between[y])
            else:
                rows.append((edge, *fit(row, inner[0]), edge))
        return rows

    def _around(self, inside: Sequence[Line], legend: Line, width: int, ink: str) -> list[Line]:
        """The rule or the frame above and below."""
        top_left, across, top_right, _, bottom_left, bottom_right = self.glyphs.box
        if not self.framed:
            return [self._rule(legend, across, "", "", width, ink), *inside]
        top = self._rule(legend, across, top_left, top_right, width, ink)
        bottom = bottom_left + across * max(0, width - 2) + bottom_right
        return [top, *inside, ((bottom, ink),)]

    def _rule(self, legend: Line, across: str, left: str, right: str, width: int, ink: str) -> Line:
        title_ink = "title-selected" if self.selected else "title"
        heading: Line = ((f" {self.title} ", title_ink),)
        if legend:
            heading = (*heading, (" ", "text"), *legend, (" ", "text"))
        room = width - cells_of(left + right) - 1
        if width_of(heading) > room:
            # Whole words and numbers only: half a number would be a wrong one.
            while len(heading) > 1 and width_of(heading) > room - 2:
                heading = heading[:-1]
            if width_of(heading) > room - 2:
                heading = fit(heading, max(0, room - 2), self.glyphs.ellipsis)
            heading = (*heading, (self.glyphs.ellipsis, "muted"))
        fill = max(0, room - width_of(heading))
        return ((left + across, ink), *heading, (across * fill + right, ink))


class _Arranged(NamedTuple):
    """The newest picture of a pane, to take from what has not changed."""

    frame: object
    inside: Sequence[Line]  # as composed
    legend: Line
    between: Sequence[Line]  # the same with the edges
    rows: list[Line]
