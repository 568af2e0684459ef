"""What all screens share: the top bar, the key line, and the one line of a terminal that is too small."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.events import Resize
from textual.widget import Widget

from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.compositing import OnePassScreen
from specpanel.app.tui.ink import Line
from specpanel.app.tui.keymap import Keymap
from specpanel.app.tui.keys import Scope
from specpanel.app.tui.screens.layout import too_small
from specpanel.app.tui.widgets.bars import KeyLine, TopBar, coming_words
from specpanel.app.tui.widgets.canvas import Canvas
from specpanel.core.monitor.feed import Feed

if TYPE_CHECKING:
    from specpanel.app.tui.panel import Panel
    from specpanel.core.session.desk import Desk


class TooSmall(Canvas):
    """Says what is needed and nothing else."""

    DEFAULT_CSS = """
    TooSmall { display: none; }
    """

    def compose_rows(self, width: int, height: int) -> Sequence[Line]:
        size = self.screen.size
        text = too_small(size.width, size.height) or ""
        row: Line = ((" " * max(0, (width - len(text)) // 2) + text, "warn"),)
        return [()] * ((height - 1) // 2) + [row]


class PanelScreen(OnePassScreen):
    """A screen of the mode table. The app hands the feed to ``receive`` while the screen is active."""

    tab = ""
    over_recording = False  # what is shown is no server, so nothing is asked of one from here
    scopes: ClassVar[tuple[Scope, ...]] = ()
    """The keys that work here, where they are others than the mode's."""

    def __init__(self, tabs: Sequence[tuple[str, str]], *, glyphs: Glyphs) -> None:
        super().__init__()
        self.glyphs = glyphs
        self.top_bar = TopBar(tabs, self.tab, glyphs=glyphs, coming=self._coming)
        self.key_line = KeyLine((), glyphs=glyphs)
        self._too_small = TooSmall(id="too-small")

    @property
    def panel(self) -> "Panel":
        return cast("Panel", self.app)

    @property
    def keymap(self) -> Keymap:
        """The keys as they are bound."""
        return self.panel.keymap

    @property
    def desk(self) -> "Desk | None":
        """What starts, switches and stops servers; None over a recording."""
        return self.panel.desk

    def _coming(self, wide: bool) -> Line:
        return () if self.desk is None else coming_words(self.desk, self.glyphs, wide=wide)

    def compose(self) -> ComposeResult:
        yield self.top_bar
        yield from self.compose_body()
        yield self.key_line
        yield self._too_small

    def compose_body(self) -> Iterable[Widget]:
        """What stands between the top bar and the key line."""
        raise NotImplementedError

    def receive(self, feed: Feed) -> None:
        """Takes what is new in the feed; called at every tick and when the screen comes back."""
        raise NotImplementedError

    def fit_to(self, width: int, height: int) -> None:
        """Fits the body to a size that is large enough."""

    def on_resize(self, event: Resize) -> None:
        small = too_small(event.size.width, event.size.height) is not None
        self.set_class(small, "-too-small")
        if small:
            self._too_small.redraw()
        else:
            self.fit_to(event.size.width, event.size.height)
