"""A canvas with a title: a whole frame where there is room, a rule above where there is not."""

from collections.abc import Sequence

from rich.cells import cell_len

from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.ink import Line, fit, width_of
from specpanel.app.tui.widgets.canvas import Canvas


class Pane(Canvas):
    """Draws its own border, so that no title ever goes through markup."""

    def __init__(self, title: str, *, glyphs: Glyphs = BRAILLE, id: str | None = None) -> None:
        super().__init__(id=id)
        self.title = title
        self.glyphs = glyphs
        self.framed = True
        self.selected = False
        self._arranged: tuple[object, Sequence[Line], list[Line]] | None = None

    def legend(self) -> Line:
        """What stands in the border beside the title."""
        return ()

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        """The rows inside the frame; the same object as before where nothing has changed."""
        raise NotImplementedError

    def inside_size(self) -> tuple[int, int]:
        """Columns and rows inside the frame."""
        edge = 2 if self.framed else 0
        return max(0, self.size.width - edge), max(0, self.size.height - (2 if self.framed else 1))

    def compose_rows(self, width: int, height: int) -> Sequence[Line]:
        composed = self.compose_inside(*self.inside_size())
        shows = (width, height, self.title, self.legend(), self.framed, self.selected)
        kept = self._arranged
        if kept is not None and kept[0] == shows and kept[1] is composed:
            return kept[2]
        rows = self._arrange(composed, width)
        self._arranged = shows, composed, rows
        return rows

    def _arrange(self, composed: Sequence[Line], width: int) -> list[Line]:
        """The frame around what is inside."""
        inner_width, inner_height = self.inside_size()
        inside = list(composed)
        top_left, across, top_right, upright, bottom_left, bottom_right = self.glyphs.box
        ink = "border-selected" if self.selected else "border"
        if not self.framed:
            return [self._rule(across, "", "", width, ink), *inside]
        edge = (upright, ink)
        rows = [self._rule(across, top_left, top_right, width, ink)]
        inside += [()] * (inner_height - len(inside))
        rows += [(edge, *fit(row, inner_width), edge) for row in inside[:inner_height]]
        rows.append(((bottom_left + across * inner_width + bottom_right, ink),))
        return rows

    def _rule(self, across: str, left: str, right: str, width: int, ink: str) -> Line:
        title_ink = "title-selected" if self.selected else "title"
        heading: Line = ((f" {self.title} ", title_ink),)
        legend = self.legend()
        if legend:
            heading = (*heading, (" ", "text"), *legend, (" ", "text"))
        room = width - cell_len(left + right) - 1
        if width_of(heading) > room:
            # Whole words and numbers only: half a number would be a wrong one.
            while len(heading) > 1 and width_of(heading) > room - 2:
                heading = heading[:-1]
            if width_of(heading) > room - 2:
                heading = fit(heading, max(0, room - 2), self.glyphs.ellipsis)
            heading = (*heading, (self.glyphs.ellipsis, "muted"))
        fill = max(0, room - width_of(heading))
        return ((left + across, ink), *heading, (across * fill + right, ink))
