"""The terminal app: one timer hands the newest Frames to the active screen; a driver fills the feed."""

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.screen import Screen

from specpanel.app.tui.charts.glyphs import Glyphs, choose_glyphs
from specpanel.app.tui.charts.subjects import TRACKS
from specpanel.app.tui.findings import LiveFindings
from specpanel.app.tui.keymap import read_keymap
from specpanel.app.tui.keys import Scope, bindings
from specpanel.app.tui.lab_jobs import LabJobs
from specpanel.app.tui.leaving import LeavingApp
from specpanel.app.tui.screens.base import PanelScreen
from specpanel.app.tui.screens.dialogs import HelpScreen
from specpanel.app.tui.screens.live import LiveScreen
from specpanel.app.tui.theming import (
    PATTERN_THEMES,
    UserThemes,
    fallback_variables,
    user_theme_folder,
)
from specpanel.app.tui.timeline import Timeline
from specpanel.app.tui.widgets.board import HOW_TO_BEGIN
from specpanel.core.errors import ConfigurationError
from specpanel.core.monitor.feed import Feed
from specpanel.core.session.notices import Notices
from specpanel.themes import DEFAULT, SHIPPED, ThemeFailure

if TYPE_CHECKING:  # each brings much of core; the first picture does not wait for it
    from specpanel.app.tui.screens.lab import LabScreen
    from specpanel.app.tui.screens.launch import LaunchScreen
    from specpanel.app.tui.screens.logs import LogsScreen
    from specpanel.app.tui.screens.mla import MlaScreen
    from specpanel.app.tui.screens.sessions import SessionsScreen
    from specpanel.app.tui.screens.train import TrainScreen
    from specpanel.core.session.desk import Desk

Notify = Callable[[str], None]
FeedDriver = Callable[[Notify], Awaitable[None]]
Begin = Callable[["Desk"], None]
OpenDesk = Callable[[], "Desk"]

TICK_S = 0.5
_TICKS_WITHOUT_FOCUS = 4  # 0.5 Hz while another window has the focus
_TICKS_BETWEEN_TERMINAL_CHECKS = 10
_SETTLED_S = 5.0
_COLLECT_S = 10.0
_TICKS_BETWEEN_THEME_CHECKS = 6  # each takes a thread


@dataclass(frozen=True, slots=True)
class Mode:
    """A screen of the app: its tab, its key and how it is made on the first visit."""

    id: str
    key: str
    label: str
    scopes: tuple[Scope, ...]
    build: Callable[["Panel"], PanelScreen]


MODE_TABLE: tuple[Mode, ...] = (
    Mode("launch", "1", "Launch", ("launch",), lambda panel: panel.build_launch()),
    Mode("live", "2", "Live", ("live", "zoom"), lambda panel: panel.build_live()),
    Mode("train", "3", "Train", ("train",), lambda panel: panel.build_train()),
    Mode("lab", "4", "Lab", ("lab",), lambda panel: panel.build_lab()),
    Mode("mla", "5", "MLA", ("mla",), lambda panel: panel.build_mla()),
    Mode("logs", "6", "Logs", ("logs",), lambda panel: panel.build_logs()),
    Mode("sessions", "7", "Sessions", ("sessions",), lambda panel: panel.build_sessions()),
)
"""The screens that exist, in the order of their tabs."""

_MODE_IDS = frozenset(mode.id for mode in MODE_TABLE)


class Panel(LeavingApp):
    """Draws a feed.

    Args:
        feed: the Frames to show; somebody else publishes them.
        driver: fills the feed from a recording. It gets a function that shows a notice. On leaving
            it is cancelled and awaited. A ``SpecpanelError`` it raises is shown, and decides the exit
            status.
        desk: starts, switches and stops servers, and fills the feed instead of a driver.
        open_desk: makes the desk instead, in a thread, once the first picture is there.
        begin: the first thing asked of the desk, once the app runs.
        first_mode: the screen that is shown first.
        auto_tick: run the timer; tests call ``tick`` by hand instead.
        theme_folder: the user's themes; the XDG configuration folder when it is ``None``.

    Raises:
        ConfigurationError: ``theme`` or the environment names a theme or symbols that do not exist.
    """

    TITLE = "specpanel"
    CSS_PATH = "panel.tcss"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("panel"),
        Binding("ctrl+q", "quit", "Quit", show=False, priority=True),
    ]

    def __init__(
        self,
        feed: Feed,
        *,
        driver: FeedDriver | None = None,
        desk: "Desk | None" = None,
        open_desk: OpenDesk | None = None,
        begin: Begin | None = None,
        first_mode: str = "live",
        auto_tick: bool = True,
        theme: str | None = None,
        theme_folder: Path | None = None,
        glyphs: Glyphs | None = None,
        window_minutes: int = 5,
        how_to_begin: Sequence[tuple[str, str]] = HOW_TO_BEGIN,
    ) -> None:
        # Textual begins with the screen of this mode, and else with an empty one of its own.
        self.DEFAULT_MODE = first_mode if first_mode in _MODE_IDS else MODE_TABLE[0].id  # type: ignore[misc]
        super().__init__()
        for mode in MODE_TABLE:
            self.add_mode(mode.id, partial(mode.build, self))
        self.feed = feed
        self.timeline = Timeline(TRACKS)
        feed.subscribe(self.timeline.take)
        self.findings = LiveFindings()
        feed.subscribe(self.findings.take)
        self.lab = LabJobs()
        self.left_behind = []
        self.glyphs = choose_glyphs() if glyphs is None else glyphs
        self.keymap, self._key_complaints = read_keymap()
        self.set_keymap(dict(self.keymap.chosen))
        self.desk = desk
        self._open_desk = open_desk
        self.desk_is_coming = open_desk is not None
        self._asked_early = []
        self.notices = Notices()
        self.detached = []
        self._in_a_hurry = threading.Event()
        self._begin = begin
        self._fill = driver
        self._auto_tick = auto_tick
        self._window_minutes = window_minutes
        self._how_to_begin = how_to_begin
        self._early_signal: int | None = None
        self._ticks = 0
        self.set_class(self.glyphs.name == "ascii", "-ascii")
        wanted = theme or os.environ.get("SPECPANEL_THEME") or DEFAULT
        self._user_themes = UserThemes(theme_folder or user_theme_folder())
        self._theme_check: asyncio.Task[None] | None = None
        self._theme_failures = self._load_themes(wanted)

    # Start

    def get_driver_class(self) -> type[Driver]:
        found = super().get_driver_class()
        if found.__name__ != "LinuxDriver":  # Windows, or one that the environment names
            return found
        from specpanel.app.tui.driver import PatientDriver

        return PatientDriver

    def _load_themes(self, wanted: str) -> list[ThemeFailure]:
        themes, failures = self._user_themes.load()
        for theme in themes:
            self.register_theme(theme)
        if wanted not in self.available_themes:
            broken = next((failure for failure in failures if failure.path.stem == wanted), None)
            raise ConfigurationError(
                f"no theme is called {wanted}" if broken is None else f"the theme {broken}",
                f"There is {', '.join(SHIPPED)}, {user_theme_folder()}/NAME.toml and Textual's own.",
            )
        self.theme = wanted
        return failures

    async def reload_themes(self) -> None:
        """Takes the user's themes that were written since; a broken one is named and stays as it was."""
        found = await asyncio.to_thread(self._user_themes.changes)
        if found is None or self._stopping:
            return
        themes, failures = found
        for failure in failures:
            self.say(f"Theme skipped: {failure}", severity="warning")
        for theme in themes:
            self.register_theme(theme)
        if self.theme in {theme.name for theme in themes}:
            self.mutate_reactive(App.theme)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return fallback_variables(dark=self.current_theme.dark)

    @property
    def patterns(self) -> bool:
        """Whether lines must differ by dash pattern, because colours cannot tell them apart."""
        return self.no_color or self.theme in PATTERN_THEMES

    @property
    def tabs(self) -> list[tuple[str, str]]:
        shown = self.keymap.shown
        modes = [(shown(f"panel.{mode.id}"), mode.label) for mode in MODE_TABLE]
        return [*modes, (shown("panel.help"), "Help")]

    def build_launch(self) -> "LaunchScreen":
        from specpanel.app.tui.screens.launch import LaunchScreen

        return LaunchScreen(self.tabs, glyphs=self.glyphs)

    def build_live(self) -> LiveScreen:
        return LiveScreen(
            self.tabs,
            timeline=self.timeline,
            findings=self.findings,
            glyphs=self.glyphs,
            patterns=self.patterns,
            window_minutes=self._window_minutes,
            how_to_begin=self._how_to_begin,
            busy=self._fill is not None or self._begin is not None,
        )

    def build_train(self) -> "TrainScreen":
        from specpanel.app.tui.screens.train import TrainScreen

        return TrainScreen(self.tabs, glyphs=self.glyphs, patterns=self.patterns)

    def build_lab(self) -> "LabScreen":
        from specpanel.app.tui.screens.lab import LabScreen

        return LabScreen(self.tabs, glyphs=self.glyphs)

    def build_mla(self) -> "MlaScreen":
        from specpanel.app.tui.screens.mla import MlaScreen

        return MlaScreen(self.tabs, glyphs=self.glyphs)

    def build_sessions(self) -> "SessionsScreen":
        from specpanel.app.tui.screens.sessions import SessionsScreen

        return SessionsScreen(self.tabs, glyphs=self.glyphs)

    def build_logs(self) -> "LogsScreen":
        from specpanel.app.tui.screens.logs import LogsScreen

        return LogsScreen(self.tabs, glyphs=self.glyphs, notices=self.notices)

    def heed_early(self, number: int, _frame: object = None) -> None:
        """A signal before the app listens itself: it leaves as soon as it can."""
        self._early_signal = number

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._leave_unasked)
        loop.add_signal_handler(signal.SIGHUP, self._leave_unseen)
        loop.add_signal_handler(signal.SIGINT, self.call_later, self.action_quit)
        if self._early_signal is not None:
            unseen = self._early_signal == signal.SIGHUP
            self.call_later(self._leave_unseen if unseen else self._leave_unasked)

    async def on_mount(self) -> None:
        if not self.is_headless:
            self._listen_to_signals()
        for failure in self._theme_failures:
            self.say(f"Theme skipped: {failure}", severity="warning")
        for complaint in self._key_complaints:
            self.say(f"Key skipped: {complaint}", severity="warning")
        if self._fill is not None:
            self._filler = self.run_worker(
                partial(self._run_driver, self._fill),
                group="driver",
                exclusive=True,
                exit_on_error=False,
            )
        if self.desk is not None:
            self._take_desk(self.desk)
        elif self._open_desk is not None:
            self.call_after_refresh(
                self.run_worker, partial(self._fetch_desk, self._open_desk), group="desk"
            )
        if self._auto_tick:
            self.set_interval(TICK_S, self._timed_tick)
            self.set_timer(_SETTLED_S, self._settle)

    def _settle(self) -> None:
        """What is loaded by now stays for good: no collection needs to walk through it again.

        So each costs some milliseconds, and is done often: drawing leaves cycles behind, and Python would let
        a quarter of the heap's size of them pile up.
        """
        gc.enable()  # whoever opened the panel may have spared the start the search for garbage
        gc.collect()
        gc.freeze()
        self.set_interval(_COLLECT_S, lambda: gc.collect())

    async def _fetch_desk(self, open_desk: OpenDesk) -> None:
        desk = await asyncio.to_thread(open_desk)
        if not self._stopping:
            self.desk_is_coming = False
            self._take_desk(desk)

    def _take_desk(self, desk: "Desk") -> None:
        self.desk = desk
        desk.subscribe(self.hear)
        if self._begin is not None:
            self._begin(desk)
        early, self._asked_early = self._asked_early, []
        for what in early:
            self.ask(what)

    async def _run_driver(self, driver: FeedDriver) -> None:
        await driver(self.say)

    # The picture

    def _timed_tick(self) -> None:
        self._ticks += 1
        if self._ticks % _TICKS_BETWEEN_THEME_CHECKS == 0 and (
            self._theme_check is None or self._theme_check.done()
        ):
            self._theme_check = asyncio.create_task(self.reload_themes())
        if self._ticks % _TICKS_BETWEEN_TERMINAL_CHECKS == 0 and not self._terminal_is_there():
            self._leave_unseen()
        elif self.app_focus or self._ticks % _TICKS_WITHOUT_FOCUS == 0:
            self.tick()

    def tick(self) -> None:
        """Hands what is new to the active screen; a hidden one catches up when it comes back."""
        if not self._stopping:
            self.show_failure()
        self.mind_detached()
        screen = self.screen
        if isinstance(screen, PanelScreen):
            with screen.one_pass():
                screen.receive(self.feed)
                screen.top_bar.look()  # what the desk is about is in no Frame

    # Keys

    def action_help(self) -> None:
        self.push_screen(HelpScreen((*self._scopes(self.screen), "panel")))

    def _scopes(self, screen: Screen[object]) -> tuple[Scope, ...]:
        if isinstance(screen, PanelScreen) and screen.scopes:
            return screen.scopes
        mode = next((mode for mode in MODE_TABLE if mode.id == self.current_mode), MODE_TABLE[0])
        return mode.scopes

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        for key in self.keymap.keys_of(*self._scopes(screen), "panel"):
            if key.id != "panel.palette":
                namespace = self if key.scope == "panel" else screen
                run = partial(self.run_action, key.action, namespace)
                yield SystemCommand(f"{key.help}  ({key.shown})", key.label, run)
        yield SystemCommand("Choose a theme", "Colours of the panel", self.action_change_theme)
