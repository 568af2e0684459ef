"""The base of what updates: a widget that shows rows of inked text and refreshes only changed cells."""

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.events import Click
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from specpanel.app.tui.ink import Line, changed_cells, fit
from specpanel.app.tui.theming import ink_styles


class Canvas(Widget):
    """Shows the rows that ``compose_rows`` returns, cut or filled to its size.

    Call ``redraw`` when something may have changed: rows are compared with what is shown, and only the
    cells that differ are sent to the compositor.
    """

    class Picked(Message):
        """A row was clicked. ``place`` counts what the widget lists."""

        def __init__(self, canvas: "Canvas", place: int) -> None:
            super().__init__()
            self.canvas = canvas
            self.place = place

    DEFAULT_CSS = """
    Canvas { width: 1fr; height: 1fr; }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._composed: Sequence[Line] | None = None
        self._shown_rows: list[Line] = []
        self._shown_strips: list[Strip | None] = []
        self._inks: dict[str, Style] | None = None
        self.refreshed_regions = 0
        """Regions handed to the compositor so far."""

    def compose_rows(self, width: int, height: int) -> Sequence[Line]:
        """The rows to show now; the same object as before where nothing has changed."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draws again and refreshes what changed."""
        width, height = self.size
        if width < 1 or height < 1:
            return
        composed = self.compose_rows(width, height)
        if composed is self._composed and len(self._shown_rows) == height:
            return
        self._composed = composed
        rows = [fit(row, width) for row in composed[:height]]
        rows += [fit((), width)] * (height - len(rows))
        if len(self._shown_rows) != height:
            self._shown_rows, self._shown_strips = rows, [None] * height
            self.refresh()
            return
        regions = []
        for y, (old, new) in enumerate(zip(self._shown_rows, rows, strict=True)):
            change = changed_cells(old, new)
            if change is None:
                continue
            start, cells = change
            self._shown_rows[y], self._shown_strips[y] = new, None
            regions.append(Region(start, y, cells, 1))
        if regions:
            self.refreshed_regions += len(regions)
            self.refresh(*regions)

    def text_rows(self) -> list[str]:
        """What is shown, as plain text."""
        return ["".join(text for text, _ in row) for row in self._shown_rows]

    def forget_rows(self) -> None:
        """The next ``redraw`` draws everything."""
        self._shown_rows = []

    def place_at(self, row: int) -> int | None:
        """Which of the things that are listed stands in a row of the widget; None where none does."""
        return None

    def on_click(self, event: Click) -> None:
        place = self.place_at(event.y)
        if place is not None:
            event.stop()
            self.post_message(self.Picked(self, place))

    def on_resize(self) -> None:
        self.forget_rows()
        self.redraw()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._inks = None
        self._shown_strips = [None] * len(self._shown_strips)

    def render_line(self, y: int) -> Strip:
        if y >= len(self._shown_rows):
            return Strip.blank(self.size.width, self.rich_style)
        strip = self._shown_strips[y]
        if strip is None:
            strip = self._shown_strips[y] = self._strip(self._shown_rows[y])
        return strip

    def render_lines(self, crop: Region) -> list[Strip]:
        """What Textual's own gives, without the way through borders, padding and links: none has any.

        All widgets between two changes are asked for their lines at each change, so this is what a
        redraw costs.
        """
        if self.outer_size != self.size or self.opacity < 1:
            return super().render_lines(crop)
        filters, background = self.get_line_filters(), self.background_colors[1]
        left, right = crop.column_span
        whole = (left, right) == (0, self.size.width)
        strips = []
        for y in crop.line_range:
            strip = self.render_line(y)
            for line_filter in filters:
                strip = strip.apply_filter(line_filter, background)
            strips.append(strip if whole else strip.crop(left, right))
        return strips

    def _strip(self, row: Line) -> Strip:
        styles = self._inks
        if styles is None:
            styles = self._inks = ink_styles(self.app.theme_variables, self.rich_style)
        return Strip([Segment(text, styles[ink]) for text, ink in row], self.size.width)
