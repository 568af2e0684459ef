"""The Lab: what experiments found, how running ones stand, and the keys to start, stop and send them on."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import BindingType
from textual.widget import Widget
from textual.worker import Worker

from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.keys import bindings
from specpanel.app.tui.lab_charts import Point
from specpanel.app.tui.lab_detail import LabDetail
from specpanel.app.tui.lab_list import LabList
from specpanel.app.tui.screens.base import PanelScreen
from specpanel.app.tui.screens.lab_new import NewExperimentScreen, Wish
from specpanel.app.tui.screens.sessions_dialogs import ConfirmScreen
from specpanel.app.tui.widgets.canvas import Canvas
from specpanel.core.errors import NotRunningError, SpecpanelError
from specpanel.core.lab.arms import launch_fingerprint
from specpanel.core.lab.export import write_report
from specpanel.core.lab.jobs import stop_experiment
from specpanel.core.lab.store import RUNNING, Experiment, Store, store_path
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Frame

if TYPE_CHECKING:
    from specpanel.core.session.desk import Desk

_FRAMES_FROM_ROWS = 32
_DETAIL_FROM_ROWS = 18
_TICKS_BETWEEN_LOOKS = 4


def list_rows(height: int, found: int) -> int:
    """Rows for the list of ``height`` rows between the bars; the detail takes the rest, from 18 rows on."""
    if height < _DETAIL_FROM_ROWS:
        return height
    return min(max(6, found + 3), max(7, height // 3))


@dataclass(frozen=True, slots=True)
class _Read:
    found: tuple[Experiment, ...]
    progress: dict[str, tuple[dict[str, Any], ...]]
    servers: dict[str, int]  # that answer, of running experiments


class LabScreen(PanelScreen):
    """Reads the store in a thread: when it is entered, asked to, or the file has changed."""

    tab = "Lab"
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("lab")]

    def __init__(self, tabs: Sequence[tuple[str, str]], *, glyphs: Glyphs) -> None:
        super().__init__(tabs, glyphs=glyphs)
        self.list = LabList(glyphs=glyphs)
        self.detail = LabDetail(glyphs=glyphs)
        self.whole = False
        self._servers: dict[str, int] = {}
        self._awaited: int | None = None  # the process whose row is not there yet
        self._follows = False  # whether that row is chosen when it appears
        self._seen: tuple[object, ...] = ()
        self._ticks = 0

    def compose_body(self) -> Iterable[Widget]:
        yield self.list
        yield self.detail

    def on_mount(self) -> None:
        key = self.keymap.shown("lab.new")
        self.list.how_to_begin = (
            ("Nothing was measured yet.", "strong"),
            ("", "text"),
            (f"{key} chooses an experiment and starts it:", "text"),
            ("does speculation pay, from which acceptance on, with which K?", "text"),
            ("", "text"),
            ("specpanel compare, breakeven, tune, parity and run keep", "muted"),
            ("what they find here, too.", "muted"),
        )
        self._show_keys()

    def on_screen_resume(self) -> None:
        self.top_bar.show(self.panel.feed.latest)
        self._fit_again()  # what was starting may have its row by now, or have failed without one
        self.reread()

    def receive(self, feed: Feed) -> None:
        self.top_bar.show(feed.latest)
        self._show_now(feed.latest)
        self._ticks += 1
        if self._ticks % _TICKS_BETWEEN_LOOKS == 0 and self._state_of_store() != self._seen:
            self.reread()

    def _state_of_store(self) -> tuple[object, ...]:
        """Changes when somebody writes, in this process or another."""
        path = store_path()
        found: list[object] = []
        for name in (path, path.with_name(f"{path.name}-wal")):
            try:
                status = os.stat(name)
                found += [status.st_mtime_ns, status.st_size]
            except OSError:
                found.append(None)
        return tuple(found)

    # Reading

    def _work(self, group: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        _: Worker[None] = self.run_worker(work, group=group, exclusive=True)

    def reread(self) -> None:
        """Reads the store again."""
        self._seen = self._state_of_store()
        self._work("lab-read", self._read)

    async def _read(self) -> None:
        try:
            read = await asyncio.to_thread(_read_store)
        except SpecpanelError as error:
            self.panel.say(str(error), severity="error")
            read = _Read((), {}, {})
        self._servers = read.servers
        before = len(self.list.found)
        self.list.put(read.found, read.progress)
        place = None if self._awaited is None else self.list.place_of(self._awaited)
        if place is not None:
            if self._follows and not self.whole:
                self.list.move(place - self.list.cursor)
            self._await(None)
        if len(read.found) != before:
            self._fit_again()
        self._show_chosen()

    def _show_chosen(self) -> None:
        chosen = self.list.chosen
        progress = () if chosen is None else self.list.progress.get(chosen.id, ())
        self._show_now(self.panel.feed.latest, redraw=False)
        self.detail.show(chosen, progress, 0 if chosen is None else self._servers.get(chosen.id, 0))
        self._show_keys()

    def _show_now(self, frame: Frame | None, *, redraw: bool = True) -> None:
        """Where the server that is watched stands on the chosen curve, where it is of the same target."""
        chosen, now = self.list.chosen, None
        if chosen is not None and chosen.kind == "breakeven" and frame is not None:
            now = _now(chosen, frame, self.desk)
        if now != self.detail.now:
            self.detail.now = now
            if redraw:
                self.detail.redraw()

    def _show_keys(self) -> None:
        entries = self.keymap.line_entries("lab", "panel")
        if self.whole:
            entries.insert(0, (self.keymap.shown("lab.close"), "List"))
        self.key_line.show(entries, ())

    # Size

    def fit_to(self, width: int, height: int) -> None:
        body = height - 2
        framed = height >= _FRAMES_FROM_ROWS
        shown = len(self.list.found) + (self.list.starting is not None)
        rows = 0 if self.whole else list_rows(body, shown)
        if not self.list.found:
            rows = body
        self.list.framed = self.detail.framed = framed
        self.list.display = rows > 0
        self.detail.display = rows < body
        self.list.styles.height = max(1, rows)
        self.list.forget_rows()
        self.detail.forget_rows()
        self.list.redraw()
        self.detail.redraw()

    def _fit_again(self) -> None:
        self.fit_to(self.size.width, self.size.height)
        self._show_keys()

    def on_canvas_picked(self, event: Canvas.Picked) -> None:
        """A click on an experiment chooses it, one on the chosen one opens it."""
        if event.place == self.list.cursor:
            self.action_open()
        else:
            self.action_move(event.place - self.list.cursor)

    # Keys

    def action_move(self, step: int) -> None:
        """Along the list; through the result where that has the screen."""
        if self.whole:
            self.detail.scroll_rows(step)
            return
        self._follows = False
        self.list.move(step)
        self._show_chosen()

    def action_open(self) -> None:
        if self.list.chosen is None:
            self.panel.say(f"nothing to open; {self.keymap.shown('lab.new')} starts an experiment")
            return
        self.whole = not self.whole
        self._fit_again()

    def action_close(self) -> None:
        if self.whole:
            self.action_open()

    def action_reread(self) -> None:
        self.reread()

    def action_new(self) -> None:
        if self.panel.lab.running:
            self.panel.say(
                "an experiment of this panel is on its way; two would disturb each other"
            )
            return
        served = None if self.desk is None else self.desk.current
        current = None if served is None or served.profile is None else served.profile.name
        sending = self.desk is not None and self.desk.sending
        question = NewExperimentScreen(current, glyphs=self.glyphs, sending=sending)
        self.app.push_screen(question, self._wished)

    def _wished(self, wish: Wish | None) -> None:
        if wish is not None:
            self.run_worker(self._run(wish), group="lab-job")

    async def _run(self, wish: Wish) -> None:
        try:
            job = self.panel.lab.start(wish.command())
        except SpecpanelError as error:
            self.panel.say(str(error), severity="error")
            return
        if self.desk is not None and self.desk.sending:
            self.desk.set_traffic(False)
        self._await(job.process.pid, wish)
        self.panel.say(f"started: {wish.words}. It goes on when the panel is left")
        await self.panel.lab.until_ended(job, self.panel.say)
        if self._awaited == job.process.pid:
            self._await(None)
        self.reread()

    def _await(self, pid: int | None, wish: Wish | None = None) -> None:
        """Shows that an experiment starts, until it has a row of its own or has ended without one."""
        self._awaited, self._follows = pid, pid is not None
        self.list.starting = None if wish is None else (wish.kind, ", ".join(wish.profiles))
        if self.is_current:
            self._fit_again()

    def _stop_and_delete(self) -> tuple[str, str]:
        """What these two keys are for."""
        key = self.keymap.shown
        return (
            f"{key('lab.stop')} stops a running experiment",
            f"{key('lab.delete')} deletes a result",
        )

    def action_stop(self) -> None:
        chosen = self.list.chosen
        if chosen is None or chosen.state != RUNNING:
            stops, deletes = self._stop_and_delete()
            self.panel.say(f"{stops}; {deletes}")
            return
        sentences = (chosen.title, "What it has measured is kept, and its servers are ended.")
        question = ConfirmScreen("Stop this experiment?", sentences, "stop it")
        self.app.push_screen(question, partial(self._stop_answered, chosen))

    def _stop_answered(self, found: Experiment, yes: bool | None) -> None:
        if not yes:
            return
        try:
            stop_experiment(found)
            self.panel.say(f"stopping {found.title}: it ends its servers first")
        except NotRunningError as error:
            self.panel.say(str(error), severity="warning")

    def action_delete(self) -> None:
        chosen = self.list.chosen
        if chosen is None or chosen.state == RUNNING:
            stops, deletes = self._stop_and_delete()
            self.panel.say(f"{deletes}; {stops}")
            return
        sentences = (f"{chosen.id}: {chosen.title}", "It cannot be brought back.")
        question = ConfirmScreen("Delete this result?", sentences, "delete it")
        self.app.push_screen(question, partial(self._delete_answered, chosen))

    def _delete_answered(self, found: Experiment, yes: bool | None) -> None:
        if yes:
            self._work("lab-delete", partial(self._delete, found))

    async def _delete(self, found: Experiment) -> None:
        def delete() -> None:
            with Store() as store:
                store.delete(found.id)

        try:
            await asyncio.to_thread(delete)
            self.panel.say(f"deleted {found.id}")
        except SpecpanelError as error:
            self.panel.say(str(error), severity="error")
        self.panel.lab.changes += 1
        self.reread()

    def action_report(self) -> None:
        chosen = self.list.chosen
        if chosen is None or chosen.result is None:
            self.panel.say("there is no result to write a page of")
            return
        self._work("lab-report", partial(self._report, chosen))

    async def _report(self, found: Experiment) -> None:
        try:
            path = await asyncio.to_thread(write_report, found)
            self.panel.say(f"wrote {path}")
        except SpecpanelError as error:
            self.panel.say(str(error), severity="error")


def _read_store() -> _Read:
    if not store_path().exists():
        return _Read((), {}, {})
    with Store() as store:
        found = store.experiments()
        running = [one.id for one in found if one.state == RUNNING]
        return _Read(
            found,
            {name: store.progress(name) for name in running},
            {name: len(store.runs(name)) for name in running},
        )


def _now(found: Experiment, frame: Frame, desk: "Desk | None") -> Point | None:
    served = None if desk is None else desk.current
    profile = None if served is None else served.profile
    length = None if frame.speculation is None else frame.speculation.acceptance_length
    load = None if frame.engine is None else frame.engine.running
    if profile is None or length is None or not load:
        return None
    plain = launch_fingerprint(profile.without_drafter())
    return Point(load, length) if found.settings.get("plain_launch") == plain else None
