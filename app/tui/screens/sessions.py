"""The Sessions screen: servers that run and runs that are over, to adopt, stop, replay, compare, delete."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual.binding import BindingType
from textual.widget import Widget
from textual.widgets import Input
from textual.worker import Worker

from specpanel.app.run_words import size_text
from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.keys import bindings
from specpanel.app.tui.owner_words import owner_sentence
from specpanel.app.tui.screens.base import PanelScreen
from specpanel.app.tui.screens.sessions_dialogs import ConfirmScreen
from specpanel.app.tui.screens.sessions_replay import ReplayScreen
from specpanel.app.tui.widgets.canvas import Canvas
from specpanel.app.tui.widgets.run_detail import RunDetail
from specpanel.app.tui.widgets.run_list import RunList
from specpanel.core.engine.ownership import Owner, owner_of
from specpanel.core.engine.process import running_servers, stop_server
from specpanel.core.engine.registry import ServerRecord
from specpanel.core.errors import SpecpanelError
from specpanel.core.monitor.feed import Feed
from specpanel.core.session.history import PastRun, delete_run, past_runs, read_run
from specpanel.core.session.history_comparison import compare

_STOP_S = 20.0
_FRAMES_FROM_ROWS = 32
_DETAIL_ROWS = 11
_DETAIL_FROM_ROWS = 20
_FEWEST_LIST_ROWS = 6
_MOST_COMPARED_ROWS = 24


def detail_rows(height: int, *, comparing: bool) -> int:
    """Rows for the lower pane of ``height`` rows between the bars; 0 hides it. A comparison needs more.

    As many as ``height`` means that the comparison has the screen for itself.
    """
    if height < _DETAIL_FROM_ROWS:
        return height if comparing else 0
    if comparing:
        return min(_MOST_COMPARED_ROWS, height - _FEWEST_LIST_ROWS)
    return _DETAIL_ROWS


class SessionsScreen(PanelScreen):
    """Reads state files and recordings in threads: when it is entered, asked to, or the desk changed."""

    tab = "Sessions"
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("sessions")]

    def __init__(self, tabs: Sequence[tuple[str, str]], *, glyphs: Glyphs) -> None:
        super().__init__(tabs, glyphs=glyphs)
        self._tabs = tabs
        self.runs = RunList(glyphs=glyphs)
        self.detail = RunDetail(glyphs=glyphs)
        self.filter_input = Input(compact=True, placeholder="filter", id="run-filter")
        self.filter_input.cursor_blink = False
        self.filter_input.display = False
        self._desk_seen: tuple[object, ...] = ()
        self._owners: dict[str, Owner] = {}

    def compose_body(self) -> Iterable[Widget]:
        yield self.runs
        yield self.filter_input
        yield self.detail

    def on_mount(self) -> None:
        key = self.keymap.shown
        self.runs.name_keys(key("panel.launch"), key("sessions.reread"), key("sessions.close"))
        self._show_keys()

    def on_screen_resume(self) -> None:
        self.top_bar.show(self.panel.feed.latest)
        self._desk_seen = self._desk_state()
        self.reread()

    def receive(self, feed: Feed) -> None:
        self.top_bar.show(feed.latest)
        state = self._desk_state()
        if state != self._desk_seen:
            self._desk_seen = state
            self.reread()

    def _desk_state(self) -> tuple[object, ...]:
        desk = self.desk
        if desk is None:
            return ()
        served = desk.current
        record = None if served is None else served.record
        return (desk.busy, record and record.id, served is not None and served.is_up)

    # Reading

    def _work(self, group: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        _: Worker[None] = self.run_worker(work, group=group, exclusive=True)

    def reread(self) -> None:
        """Reads state files and recordings again."""
        self.runs.reading = True
        self.runs.redraw()
        self._work("sessions-read", self._read)

    async def _read(self) -> None:
        running = await asyncio.to_thread(running_servers)
        past: list[PastRun] = list(self.runs.past)
        try:
            past = await asyncio.to_thread(past_runs)
        except SpecpanelError as error:
            self.panel.say(str(error), severity="error")
        self._owners = await asyncio.to_thread(_owners, running)
        self.runs.needs = {id: owner.need for id, owner in self._owners.items()}
        served = None if self.desk is None else self.desk.current
        self.runs.current = served.record.id if served is not None and served.record else None
        self.runs.put(running, past)
        self._show_chosen()

    def _show_chosen(self) -> None:
        chosen = self.runs.chosen
        owner = self._owners.get(chosen.id) if isinstance(chosen, ServerRecord) else None
        self.detail.show(chosen, None if owner is None else owner.words)
        self._show_keys()

    def _show_keys(self) -> None:
        chosen = self.runs.chosen
        size = size_text(chosen.size_bytes) if isinstance(chosen, PastRun) else ""
        entries = self.keymap.line_entries("sessions", "panel")
        if self.runs.filter or self.detail.comparison is not None:
            entries.insert(0, (self.keymap.shown("sessions.close"), "Close"))
        self.key_line.show(entries, ((size, "muted"),) if size else ())

    # Size

    def fit_to(self, width: int, height: int) -> None:
        body = height - 2
        rows = detail_rows(body, comparing=self.detail.comparison is not None)
        framed = height >= _FRAMES_FROM_ROWS
        self.runs.framed = self.detail.framed = framed
        self.runs.display = rows < body
        self.detail.display = rows > 0
        self.detail.styles.height = max(1, rows)
        self.runs.forget_rows()
        self.detail.forget_rows()
        self.runs.redraw()
        self.detail.redraw()

    def on_canvas_picked(self, event: Canvas.Picked) -> None:
        """A click on a session chooses it, one on the chosen session opens it."""
        if event.place == self.runs.cursor:
            self.action_open()
        else:
            self.action_move(event.place - self.runs.cursor)

    # Keys

    def action_move(self, step: int) -> None:
        self.runs.move(step)
        self._show_chosen()

    def action_reread(self) -> None:
        self.reread()

    def action_open(self) -> None:
        """Adopts a server, replays a run."""
        chosen = self.runs.chosen
        if isinstance(chosen, ServerRecord):
            self._adopt(chosen)
        elif isinstance(chosen, PastRun):
            if chosen.ended == "broken":
                self.panel.say(f"{chosen.id} cannot be replayed: {chosen.why}", severity="warning")
            else:
                self.app.push_screen(self._replay(chosen))

    def _replay(self, run: PastRun) -> ReplayScreen:
        return ReplayScreen(run.path, self._tabs, glyphs=self.glyphs, patterns=self.panel.patterns)

    def _adopt(self, record: ServerRecord) -> None:
        desk = self.desk
        if desk is None:
            self.panel.say(
                "this panel shows a recording; run specpanel without --replay to adopt a server",
                severity="warning",
            )
            return
        if record.id != self._current_id():
            busy = desk.busy is not None
            desk.adopt(record)  # a busy desk refuses, and says so
            if busy:
                return
        self.panel.action_show("live")

    def _current_id(self) -> str | None:
        """The id of the server on the desk, or of the one that is starting there."""
        desk = self.desk
        served = None if desk is None else desk.current
        return None if served is None or served.record is None else served.record.id

    def _stop_and_delete(self) -> tuple[str, str]:
        """What these two keys are for."""
        key = self.keymap.shown
        return (
            f"{key('sessions.stop')} stops a running server",
            f"{key('sessions.delete')} deletes a recording",
        )

    def action_stop(self) -> None:
        record = self.runs.chosen
        if not isinstance(record, ServerRecord):
            stops, deletes = self._stop_and_delete()
            self.panel.say(f"{stops}; {deletes}")
            return
        sentences = [f"{record.name} at {record.url}", "Its requests in flight end with it."]
        needed = owner_sentence(record)
        sentences += [needed] if needed else []
        question = ConfirmScreen("Stop this server?", sentences, "stop it")
        self.app.push_screen(question, partial(self._stop_answered, record))

    def _stop_answered(self, record: ServerRecord, yes: bool | None) -> None:
        if not yes:
            return
        if self.desk is not None and record.id == self._current_id():
            self.desk.stop()
        else:
            self.run_worker(self._stop(record), group=f"stop {record.id}")

    async def _stop(self, record: ServerRecord) -> None:
        self.panel.say(f"stopping {record.name}")
        report = await asyncio.to_thread(stop_server, record, _STOP_S)
        if report.survivors:
            left = ", ".join(map(str, report.survivors))
            self.panel.say(f"{record.name}: still there: {left}", severity="error")
        else:
            how = "killed" if report.killed else "stopped"
            self.panel.say(f"{how} {record.name} in {report.took_s:.1f} s")
        self.reread()

    def action_delete(self) -> None:
        run = self.runs.chosen
        if not isinstance(run, PastRun):
            stops, deletes = self._stop_and_delete()
            self.panel.say(f"{deletes}; {stops}")
            return
        sentences = (f"{run.id}, {size_text(run.size_bytes)}", "It cannot be brought back.")
        question = ConfirmScreen("Delete this recording?", sentences, "delete it")
        self.app.push_screen(question, partial(self._delete_answered, run))

    def _delete_answered(self, run: PastRun, yes: bool | None) -> None:
        if yes:
            self.run_worker(self._delete(run), group="sessions-delete")

    async def _delete(self, run: PastRun) -> None:
        try:
            await asyncio.to_thread(delete_run, run)
            self.panel.say(f"deleted {run.id}")
        except SpecpanelError as error:
            self.panel.say(str(error), severity="error")
        self.reread()

    def action_mark(self) -> None:
        run = self.runs.chosen
        if isinstance(run, PastRun) and run.ended != "broken":
            self.runs.mark(run)
        else:
            key = self.keymap.shown("sessions.mark")
            self.panel.say(f"{key} marks past runs that can be read, A and then B")

    def action_compare(self) -> None:
        """Compares the two marked; with one mark, that one with the chosen run."""
        paths = list(self.runs.marked)
        chosen = self.runs.chosen
        if len(paths) == 1 and isinstance(chosen, PastRun) and chosen.path not in paths:
            paths.append(chosen.path)
        if len(paths) < 2:
            mark, key = self.keymap.shown("sessions.mark"), self.keymap.shown("sessions.compare")
            self.panel.say(f"mark two past runs with {mark}, then {key} compares them")
            return
        self.runs.reading = True
        self.runs.redraw()
        self._work("sessions-compare", partial(self._compare, *paths))

    async def _compare(self, *paths: Path) -> None:
        try:
            a, b = [await asyncio.to_thread(read_run, path) for path in paths]
            found = await asyncio.to_thread(compare, a, b)
        except (SpecpanelError, FileNotFoundError) as error:
            self.panel.say(str(error), severity="error")
            self.reread()
            return
        self.runs.reading = False
        self.detail.compare(found)
        self._fit_again()

    def _fit_again(self) -> None:
        self.fit_to(self.size.width, self.size.height)
        self._show_keys()

    def action_close(self) -> None:
        """Closes the comparison, else drops the filter, else the marks."""
        if self.filter_input.display or self.runs.filter:
            self.filter_input.value = ""
            self._end_filter()
            self.runs.narrow("")
        elif self.detail.comparison is not None:
            self.detail.compare(None)
            self._fit_again()
        else:
            self.runs.marked = ()
            self.runs.redraw()
        self._show_chosen()

    # The filter

    def action_filter(self) -> None:
        self.filter_input.display = True
        self.filter_input.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.runs.narrow(event.value)
        self._show_chosen()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._end_filter()

    def _end_filter(self) -> None:
        self.set_focus(None)
        self.filter_input.display = False


def _owners(running: Sequence[ServerRecord]) -> dict[str, Owner]:
    """What needs each server, by its id."""
    found = ((record.id, owner_of(record)) for record in running)
    return {id: owner for id, owner in found if owner is not None}
