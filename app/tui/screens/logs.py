"""The Logs screen: what the server wrote, or the panel's own notices, followed and searched."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal, get_args

from textual.binding import BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static
from textual.worker import Worker

from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.keys import bindings
from specpanel.app.tui.screens.base import PanelScreen
from specpanel.app.tui.screens.logs_reader import LogPage, LogReader, Wanted, newest_log
from specpanel.app.tui.widgets.log_view import LineDetail, LogHeader, LogPicture, LogView
from specpanel.core.engine.log_filter import Level, LogFilter
from specpanel.core.engine.log_index import Anchor, LogState
from specpanel.core.engine.log_source import LogFile, LogSource
from specpanel.core.engine.regex_child import SlowPatternError
from specpanel.core.errors import ConfigurationError
from specpanel.core.monitor.feed import Feed
from specpanel.core.session.notices import Notices
from specpanel.core.settings.paths import logs_folder

Source = Literal["server", "panel"]
SOURCES: tuple[Source, ...] = get_args(Source)
LEVELS: tuple[Level, ...] = get_args(Level)

REDRAW_S = 0.25  # at most four redraws a second of what comes in; a key redraws at once
_FRAMED_FROM_ROWS = 32
_SMALL_BELOW_ROWS = 20
_NO_LOG = (
    "No server has written a log yet.",
    "It appears here with the first start, and stays when the server ends.",
)
_NO_NOTICE = ("No notices yet.", "What the panel says for a moment is kept here.")


class LogsScreen(PanelScreen):
    """Shows one log through an index that works in a thread; the loop only draws.

    Args:
        notices: the panel's own notices.
        folder: where logs of servers lie; the state folder's when it is ``None``.
    """

    tab = "Logs"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("logs")]
    AUTO_FOCUS = ""
    DEFAULT_CSS = """
    #log-prompt { height: 1; }
    #log-prompt Static { width: 9; padding: 0 1; color: $accent; }
    #log-prompt Input { width: 1fr; background: $surface; }
    """

    def __init__(
        self,
        tabs: Sequence[tuple[str, str]],
        *,
        glyphs: Glyphs,
        notices: Notices,
        folder: Path | None = None,
    ) -> None:
        super().__init__(tabs, glyphs=glyphs)
        self._notices = notices
        self._folder = folder
        self._newest: Path | None = None  # of the folder, while the desk knows no log
        self.source: Source = "server"
        self.path: Path | None = None
        self.shown = LogFilter()
        self.cursor = 0
        self.follow = True
        self.wrap = False
        self.redraws = 0  # how often the picture was drawn
        self._reader: LogReader | None = None
        self._page = LogPage({}, LogState(), False)
        self._worker: Worker[None] | None = None
        self._asked = False
        self._turn = asyncio.Lock()  # the reader is for one thread at a time
        self._drawn_s = 0.0
        self._stale = False  # something has come that is not drawn
        self._looked_at: int | None = None  # offset of the cursor's line; typing a filter keeps it
        self._urgent = False  # what comes next is drawn at once: a key waits for it
        self._before_typing = self.shown
        self.header = LogHeader(glyphs=glyphs)
        self.view = LogView(glyphs=glyphs)
        self.detail = LineDetail(glyphs=glyphs)
        self.prompt = Input(placeholder="text, or /regex/", compact=True)
        self.prompt.cursor_blink = False
        self.prompt_row = Horizontal(
            Static(Content("Filter"), markup=False), self.prompt, id="log-prompt"
        )
        self.prompt_row.display = False

    def compose_body(self) -> Iterable[Widget]:
        yield self.header
        yield self.view
        yield self.prompt_row
        yield self.detail

    def on_mount(self) -> None:
        self.key_line.show(self.keymap.line_entries("logs", "panel"), ())
        self._open()

    def fit_to(self, width: int, height: int) -> None:
        framed = height >= _FRAMED_FROM_ROWS
        self.view.framed = self.detail.framed = framed
        self.detail.styles.height = 7 if framed else 3 if height < _SMALL_BELOW_ROWS else 4
        self._ask()

    # What comes in

    def receive(self, feed: Feed) -> None:
        self.top_bar.show(feed.latest)
        if self.source == "server" and self._server_log() != self.path:
            self._open()
        self._ask()

    def _server_log(self) -> Path | None:
        """The log of the current server, of one that starts, of the last one, or the newest there is."""
        desk = self.desk
        if desk is not None:
            for served in (desk.current, desk.starting):
                if served is not None and served.log is not None:
                    return served.log
            if desk.last_log is not None:
                return desk.last_log
        return self._newest

    def _open(self, anchor: Anchor = "end") -> None:
        """Look at the chosen source through the chosen filter, first of all around ``anchor``."""
        path = self._server_log() if self.source == "server" else None
        if path != self.path:
            self.path, self._looked_at = path, None
        source: LogSource | None = self._notices
        if self.source == "server":
            source = None if self.path is None else LogFile(self.path)
        self._forget_reader()
        self._reader = None if source is None else LogReader(source, self.shown, anchor)
        self._page = LogPage({}, LogState(), False)
        self.cursor = 0
        self.view.top = -self.view.size.height // 2  # what is looked for comes to the middle
        self._urgent = True
        self._ask()

    def _forget_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def on_unmount(self) -> None:
        self._forget_reader()

    def _ask(self) -> None:
        """Have the log read: at once, or right after the slice that is being read."""
        self._asked = True
        if self._worker is None or self._worker.is_finished:
            self._worker = self.run_worker(self._read(), group="logs")

    async def _read(self) -> None:
        while self._asked or (self._page.more and self.is_current):
            self._asked = False
            if self._reader is None:
                await self._look_for_a_log()
                continue
            reader = self._reader
            wanted = Wanted(self.cursor, max(1, self.view.size.height), self.follow)
            try:
                async with self._turn:
                    page = await asyncio.to_thread(reader.read, wanted)
            except SlowPatternError as error:
                self._refuse(reader, error)
                continue
            if reader is self._reader:
                self._take(page)

    def _refuse(self, reader: LogReader, error: SlowPatternError) -> None:
        """A regex that takes too long is dropped; what is on the screen was answering all the time."""
        if reader is self._reader:
            self.panel.say(str(error), severity="warning")
            self._show_only(replace(self.shown, pattern=""))

    async def _look_for_a_log(self) -> None:
        if self._server_log() is None:
            self._newest = await asyncio.to_thread(newest_log, self._folder or logs_folder())
        if self.source == "server" and self._server_log() is not None:
            self._open()
        else:
            self._draw()

    def _take(self, page: LogPage) -> None:
        if page.state.generation > self._page.state.generation:
            self.panel.say("The log was replaced or cut short; this is the new one")
            self.follow = True
        self._stale |= page.entries is not self._page.entries or page.more != self._page.more
        self._page = page
        if self.follow or not page.more:
            self.cursor = self._cursor_in(page.state)
        late = time.monotonic() - self._drawn_s >= REDRAW_S
        if self._urgent or (self._stale and late):
            self._draw()

    def _has_rows(self) -> bool:
        """Whether all that the screen can show around the cursor has been read."""
        state, rows = self._page.state, self.view.size.height
        cursor = self._cursor_in(state)
        ends = (max(state.first, cursor - rows), min(state.end - 1, cursor + rows))
        return all(ordinal in self._page.entries for ordinal in ends)

    def _cursor_in(self, state: LogState) -> int:
        if self.follow:
            return state.end - 1
        return max(state.first, min(self.cursor, state.end - 1))

    def _picture(self) -> LogPicture:
        state = self._page.state
        return LogPicture(
            self._page.entries,
            state,
            self._cursor_in(state),
            self.shown,
            self.follow,
            self.wrap,
            self._nothing_to_show(),
            self._page.marks,
        )

    def _nothing_to_show(self) -> tuple[str, ...]:
        if self._reader is None:
            return _NO_LOG
        if self.shown.narrows and self._page.state.lines:
            return ("No line matches so far.", "esc shows all lines again")
        return _NO_NOTICE if self.source == "panel" else ("The log is empty.",)

    def _draw(self) -> None:
        self._drawn_s = time.monotonic()
        self._stale = self._urgent = False
        self.redraws += 1
        picture = self._picture()
        if picture.entry is not None and not self.prompt_row.display:
            self._looked_at = picture.entry.offset
        place = "" if self.path is None else self.path.name
        sources = [(name, name == self.source) for name in SOURCES]
        self.header.show(sources, place, picture, self._page.more)
        self.view.show(picture)
        self.detail.show(picture)

    # Moving

    def action_move(self, lines: int) -> None:
        self._go(self._cursor_in(self._page.state) + lines)

    def action_page(self, pages: int) -> None:
        _, rows = self.view.inside_size()
        self.action_move(pages * max(1, rows - 1))

    def _go(self, ordinal: int) -> None:
        state = self._page.state
        self.cursor = max(state.first, min(ordinal, state.end - 1))
        if ordinal < state.end - 1:
            self.follow = False
        if self._has_rows():
            self._draw()
        else:
            self._urgent = True
        self._ask()

    def action_home(self) -> None:
        """To the first line; of a log that has not been indexed that far, at once all the same."""
        self.follow = False
        if self._page.state.lines_before is None and self._reader is not None:
            self._open("start")
        else:
            self._go(self._page.state.first)

    def action_end(self) -> None:
        """To the last line, and follow."""
        self.follow = True
        if self._page.state.at_end or self._reader is None:
            self._go(self._page.state.end - 1)
        else:
            self._open()

    def action_follow(self) -> None:
        if self.follow:
            self.follow = False
            self._draw()
        else:
            self.action_end()

    async def action_notable(self, step: int) -> None:
        """To the next warning or error, or the one before."""
        reader, here = self._reader, self._cursor_in(self._page.state)
        if reader is None:
            return
        try:
            async with self._turn:
                found = await asyncio.to_thread(reader.notable, here, step)
        except SlowPatternError as error:
            self._refuse(reader, error)
            return
        if reader is not self._reader:
            return
        if found is not None:
            self._go(found)
        elif self._page.more:
            self.panel.say("No warning or error that way so far; still indexing")
        else:
            self.panel.say(f"No warning or error {'after' if step > 0 else 'before'} this line")

    # What is shown

    def action_source(self) -> None:
        self.source = SOURCES[(SOURCES.index(self.source) + 1) % len(SOURCES)]
        self.follow = True
        self._open()

    def action_level(self) -> None:
        level = LEVELS[(LEVELS.index(self.shown.level) + 1) % len(LEVELS)]
        self._show_only(replace(self.shown, level=level))

    def action_probes(self) -> None:
        self._show_only(replace(self.shown, probes=not self.shown.probes))

    def action_wrap(self) -> None:
        self.wrap = not self.wrap
        self._draw()

    def _show_only(self, shown: LogFilter) -> None:
        """Another filter is another index, begun where one is looking."""
        if shown == self.shown:
            return
        self.shown = shown
        self._open("end" if self.follow or self._looked_at is None else self._looked_at)

    def action_filter(self) -> None:
        self._before_typing = self.shown
        self.prompt.value = self.shown.pattern
        self.prompt_row.display = True
        self.prompt.focus()

    def action_clear(self) -> None:
        """Leaves the prompt as if nothing had been typed; without one, shows all lines again."""
        if self.prompt_row.display:
            self._close_prompt()
            self._show_only(self._before_typing)
        else:
            self._show_only(LogFilter(probes=self.shown.probes))

    def on_input_changed(self, event: Input.Changed) -> None:
        if self.prompt_row.display:
            with suppress(ConfigurationError):  # a regex that is not finished yet
                self._show_only(replace(self.shown, pattern=event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        try:
            self._show_only(replace(self.shown, pattern=event.value))
        except ConfigurationError as error:
            self.panel.say(str(error), severity="warning")
        else:
            self._close_prompt()

    def _close_prompt(self) -> None:
        self.set_focus(None)
        self.prompt_row.display = False

    async def action_copy(self) -> None:
        """The line under the cursor, up to 64 KiB of it."""
        reader, entry = self._reader, self._picture().entry
        if reader is None or entry is None:
            return
        async with self._turn:
            line = await asyncio.to_thread(reader.whole, entry.offset)
        self.panel.copy_to_clipboard(line.text)
        self.panel.say("The first 64 KiB of the line are copied" if line.cut else "Line copied")

    def action_path(self) -> None:
        if self.source == "panel":
            self.panel.say("These notices are kept in memory, in no file")
        else:
            self.panel.say("There is no log yet" if self.path is None else str(self.path))
