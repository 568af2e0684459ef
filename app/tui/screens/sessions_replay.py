"""A past run in the Live screen's picture, over a feed of its own: the current server's stays as it is."""

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from textual.binding import BindingType

from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.charts.subjects import TRACKS
from specpanel.app.tui.figures import clock
from specpanel.app.tui.findings import LiveFindings
from specpanel.app.tui.ink import Line, clean
from specpanel.app.tui.keys import Scope, bindings
from specpanel.app.tui.screens.live import LiveScreen
from specpanel.app.tui.timeline import HISTORY_FRAMES, Timeline
from specpanel.app.tui.widgets.bars import TopBar
from specpanel.core.errors import RecordingError
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Frame
from specpanel.core.monitor.recording import read_recording
from specpanel.core.session.endings import how_it_ended, without_frames
from specpanel.core.session.history import read_run
from specpanel.core.session.watching import replay_recording

SPEEDS = (1.0, 4.0, 16.0, 64.0)


class ReplayBar(TopBar):
    """The top bar without the server: what is shown is long over."""

    def show(self, frame: Frame | None) -> None:
        super().show(None)


class ReplayScreen(LiveScreen):
    """Shows a recording whole, its last hour at once; ``p`` plays it from its start."""

    tab = "Sessions"
    over_recording = True
    scopes: ClassVar[tuple[Scope, ...]] = ("replay", "live", "zoom")
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("replay")]

    def __init__(
        self,
        path: Path,
        tabs: Sequence[tuple[str, str]],
        *,
        glyphs: Glyphs,
        patterns: bool,
        window_minutes: int = 5,
        speed: float = 0.0,
    ) -> None:
        super().__init__(
            tabs,
            timeline=Timeline(TRACKS),
            findings=LiveFindings(),
            glyphs=glyphs,
            patterns=patterns,
            window_minutes=window_minutes,
            busy=True,
        )
        self.path = path
        self.speed = speed
        self.done = False
        self._ending: str | None = None  # how it failed, once the replay is through
        self._tabs = tabs
        self._own_feed = Feed()
        self._own_feed.subscribe(self.timeline.take)
        self._own_feed.subscribe(self.findings.take)
        self._left = threading.Event()
        self.top_bar = ReplayBar(tabs, self.tab, glyphs=glyphs, coming=self._coming)

    def on_mount(self) -> None:
        super().on_mount()
        self.run_worker(self._fill(), group="replay", exclusive=True)

    def on_unmount(self) -> None:
        self._left.set()

    def receive(self, feed: Feed) -> None:
        """Draws the recording's own feed; the panel's goes on behind it."""
        super().receive(self._own_feed)

    # The recording

    async def _fill(self) -> None:
        try:
            if self.speed > 0:
                # The worker is cancelled with the screen: nobody else ends it.
                never = asyncio.Event()
                await replay_recording(
                    self.path, self._own_feed, lambda _: None, never, speed=self.speed
                )
            else:
                await self._show_whole()
        except RecordingError as error:
            self.panel.say(str(error), severity="warning")
            if self.timeline.latest is None and self.is_current:
                self.app.pop_screen()
                return
        with suppress(FileNotFoundError):
            self._ending = how_it_ended(await asyncio.to_thread(read_run, self.path))
        self.done = True
        self.receive(self._own_feed)
        self._show_newest()

    async def _show_whole(self) -> None:
        frames, error = await asyncio.to_thread(_last_frames, self.path, self._left)
        for frame in frames:
            self._own_feed.publish(frame)
        if error is not None:
            raise error
        if not frames:
            raise without_frames(self.path)

    def _told_failure(self) -> str | None:
        return self._ending

    def _headline(self) -> tuple[str, str] | None:
        """How the run failed, over what its acceptance showed."""
        return super()._headline() if self._ending is None else ("bad", clean(self._ending))

    # The marks that this is no live server

    def _coming(self, wide: bool) -> Line:
        latest = self._newest
        name = clean(self.path.stem) if wide else ""
        spans: Line = ((" REPLAY ", "tab-on"), (f" {name}" if name else "", "strong"))
        if latest is None:
            return (*spans, ("" if self.done else " reading", "warn"))
        pace = "" if self.speed == 0 or self.done else f" {self.speed:.0f}x"
        words = f" {latest.server.state} {clock(latest.elapsed_s)}{pace}"
        return (*spans, (words, "muted"))

    def _show_keys(self, behind_s: float = 0.0) -> None:
        super()._show_keys(behind_s)
        scopes: tuple[Scope, ...] = ("replay", "live", "panel")
        if self.zoomed:
            scopes = ("zoom", *scopes)
        right: Line = ((f"{self.window_minutes} min", "muted"),)
        if self.frozen:
            right = (("frozen  ", "warn"), *right)
        self.key_line.show(self.keymap.line_entries(*scopes), right)

    # Keys

    def action_back(self) -> None:
        """Out of the zoom, then out of the replay."""
        if self.zoomed:
            self.action_zoom()
        else:
            self.app.pop_screen()

    def action_play(self, step: int) -> None:
        """Plays from the start; pressed again, faster and from the start."""
        faster = next((speed for speed in SPEEDS if speed > self.speed), SPEEDS[0])
        self.app.switch_screen(
            ReplayScreen(
                self.path,
                self._tabs,
                glyphs=self.glyphs,
                patterns=self.panel.patterns,
                window_minutes=self.window_minutes,
                speed=faster if step > 0 else 0.0,
            )
        )


def _last_frames(
    path: Path, left: threading.Event
) -> tuple[Sequence[Frame], RecordingError | None]:
    """The last hour of Frames, and what ended the reading early. Ends soon after ``left`` is set."""
    frames: deque[Frame] = deque(maxlen=HISTORY_FRAMES)
    try:
        for frame in read_recording(path):
            if left.is_set():
                break
            frames.append(frame)
    except RecordingError as error:
        return frames, error
    return frames, None
