"""The base of what updates: a widget that shows rows of inked text and refreshes only changed ones."""

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.events import Click
from textual.filter import LineFilter
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from specpanel.app.tui.compositing import OnePassScreen
from specpanel.app.tui.ink import Line, fit
from specpanel.app.tui.theming import InkStyles, ink_styles


class Canvas(Widget):
    """Shows the rows that ``compose_rows`` returns, cut or filled to its size.

    Call ``redraw`` when something may have changed: rows are compared with what is shown, and only those
    that differ are sent to the compositor.
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
        self._composed: Sequence[Line] = ()
        self._shown_rows: list[Line] = []
        self._shown_strips: list[Strip | None] = []
        self._inks: _Inks | None = None
        self.refreshed_regions = 0
        """Rows handed to the compositor so far."""

    def compose_rows(self, width: int, height: int) -> Sequence[Line]:
        """The rows to show now; the same objects as before where nothing has changed."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draws again and refreshes the rows that changed."""
        width, height = self.size
        if width < 1 or height < 1:
            return
        composed = self.compose_rows(width, height)
        shown = self._shown_rows
        if composed is self._composed and len(shown) == height:
            return
        before, self._composed = self._composed, composed
        if len(shown) != height:
            rows = [fit(row, width) for row in composed[:height]]
            rows += [fit((), width)] * (height - len(rows))
            self._shown_rows, self._shown_strips = rows, [None] * height
            self.refresh()
            return
        changed = []
        for y in range(height):
            new = composed[y] if y < len(composed) else ()
            if y < len(before) and new is before[y]:
                continue
            row = fit(new, width)
            if row != shown[y]:
                shown[y], self._shown_strips[y] = row, None
                changed.append(Region(0, y, width, 1))
        if changed:
            self.refreshed_regions += len(changed)
            screen = self.screen
            if not (isinstance(screen, OnePassScreen) and screen.takes(self, changed)):
                self.refresh(*changed)

    def text_rows(self) -> list[str]:
        """What is shown, as plain text."""
        return ["".join(text for text, _ in row) for row in self._shown_rows]

    def forget_rows(self) -> None:
        """The next ``redraw`` draws everything."""
        self._shown_rows = []
        self._composed = ()

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
        self._forget_inks()

    def _forget_inks(self) -> None:
        self._inks = None
        self._shown_strips = [None] * len(self._shown_strips)

    def render_line(self, y: int) -> Strip:
        if y >= len(self._shown_rows):
            return self._strip(fit((), self.size.width))
        strip = self._shown_strips[y]
        if strip is None:
            strip = self._shown_strips[y] = self._strip(self._shown_rows[y])
        return strip

    def render_lines(self, crop: Region) -> list[Strip]:
        """What Textual's own gives, without the way through borders, padding and links: none has any."""
        if self.outer_size != self.size or self.opacity < 1:
            return super().render_lines(crop)
        if self._inks is not None and self._inks.filters != self.get_line_filters():
            self._forget_inks()
        left, right = crop.column_span
        strips = [self.render_line(y) for y in crop.line_range]
        if (left, right) == (0, self.size.width):
            return strips
        return [strip.crop(left, right) for strip in strips]

    def _strip(self, row: Line) -> Strip:
        inks = self._inks
        if inks is None:
            styles = ink_styles(self.app.theme_variables, self.rich_style)
            inks = self._inks = _Inks(styles, self.get_line_filters(), self.background_colors[1])
        return Strip([Segment(text, inks[ink]) for text, ink in row], self.size.width)


class _Inks(dict[str, Style | None]):
    """Style by ink as the terminal gets it: a filter is asked once an ink, not once a row."""

    def __init__(self, styles: InkStyles, filters: Sequence[LineFilter], background: Color) -> None:
        super().__init__()
        self._styles = styles
        self._background = background
        self.filters = filters

    def __missing__(self, ink: str) -> Style | None:
        segments = [Segment(" ", self._styles[ink])]
        for line_filter in self.filters:
            segments = line_filter.apply(segments, self._background)
        self[ink] = style = segments[0].style
        return style
