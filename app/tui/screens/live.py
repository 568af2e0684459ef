"""The Live screen: the numbers of the newest Frame and four charts of the last minutes."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.containers import Container
from textual.theme import Theme
from textual.widget import Widget

from specpanel.app.tui.figures import clock
from specpanel.app.tui.keys import Scope, bindings
from specpanel.app.tui.lab_verdict import VerdictLine
from specpanel.app.tui.screens.base import PanelScreen
from specpanel.app.tui.screens.layout import plan_live
from specpanel.app.tui.screens.live_charts import live_charts
from specpanel.app.tui.widgets.bars import HostPane, TroubleLine
from specpanel.app.tui.widgets.board import HOW_TO_BEGIN, Board
from specpanel.app.tui.widgets.chart import ChartPane, PositionChart
from specpanel.app.tui.widgets.devices_pane import DevicesPane
from specpanel.app.tui.widgets.kpi_strip import KpiStrip
from specpanel.app.tui.widgets.latency_chart import LatencyChart

if TYPE_CHECKING:
    from specpanel.app.tui.charts.glyphs import Glyphs
    from specpanel.app.tui.findings import LiveFindings
    from specpanel.app.tui.ink import Line
    from specpanel.app.tui.timeline import Moment, Timeline
    from specpanel.app.tui.widgets.canvas import Canvas
    from specpanel.core.monitor.feed import Feed
    from specpanel.core.monitor.frame import Frame

WINDOWS_MINUTES = (1, 5, 15, 60)
_RESTING_FRAMES = 5  # between two pictures of a server on which nothing moves
_LINES_COME_IN_S = 5.0  # before the window begins, so that lines come in from the left


class LiveScreen(PanelScreen):
    """Draws the feed. Freezing stops the picture, never the sampling."""

    tab = "Live"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("live", "zoom")]

    def __init__(
        self,
        tabs: Sequence[tuple[str, str]],
        *,
        timeline: "Timeline",
        findings: "LiveFindings",
        glyphs: "Glyphs",
        patterns: bool,
        window_minutes: int = 5,
        how_to_begin: Sequence[tuple[str, str]] = HOW_TO_BEGIN,
        busy: bool = False,
    ) -> None:
        super().__init__(tabs, glyphs=glyphs)
        self.timeline = timeline
        self.findings = findings
        self._seen = 0
        self._charted = 0  # of the Frames that were seen, those that the charts have
        self._drawn: Frame | None = None  # the newest of them
        self._newest: Frame | None = None
        self._now_s = 0.0
        self._busy = busy
        self.window_minutes = window_minutes
        self.frozen = False
        self.zoomed = False
        self.selected = 0
        self.charts: tuple[ChartPane, ...] = live_charts(
            glyphs=glyphs,
            patterns=patterns,
            history=self.history,
            about_no_drafts=findings.about_no_drafts,
        )
        self.kpi = KpiStrip(glyphs=glyphs, id="kpi")
        self.verdict = VerdictLine(glyphs=glyphs)
        self.trouble = TroubleLine(glyphs=glyphs)
        self.board = Board(how_to_begin, glyphs=glyphs)
        self.devices = DevicesPane(glyphs=glyphs)
        self._devices_needed = 0
        self.host = HostPane(glyphs=glyphs)
        self.grid = Container(*self.charts, id="charts")

    def compose_body(self) -> Iterable[Widget]:
        yield self.kpi
        yield self.verdict
        yield self.trouble
        yield self.board
        yield self.grid
        yield self.devices
        yield self.host

    def on_mount(self) -> None:
        self.verdict.key = self.keymap.shown("live.baseline")
        ways = ("launch", "profiles"), ("logs", "the log"), ("help", "the keys"), ("quit", "leave")
        self.board.name_keys([(self.keymap.shown(f"panel.{id}"), what) for id, what in ways])
        self._show_newest()
        self.panel.theme_changed_signal.subscribe(self, self._wear)

    def _wear(self, _theme: Theme) -> None:
        for chart in self.charts:
            chart.wear(patterns=self.panel.patterns)

    def history(self, track: str) -> tuple[Iterator["Moment"], float]:
        """The Moments that a chart shows, up to the newest that was shown, and the window in seconds."""
        window_s = self.window_minutes * 60.0
        since_s = self._now_s - window_s - _LINES_COME_IN_S
        return self.timeline.moments(track, until=self._charted, since_s=since_s), window_s

    # What comes in

    def receive(self, feed: "Feed") -> None:
        timeline = self.timeline
        if timeline.count == self._seen:
            if timeline.count == 0:
                self._show_board(None)
            return
        if self.frozen:
            self._show_keys(timeline.now_s - self._now_s)
            return
        self._seen = timeline.count
        self._newest, self._now_s = timeline.latest, timeline.now_s
        self._show_newest()
        self._show_charts()

    def _show_charts(self) -> None:
        """Hands the charts what they have not seen."""
        if self._rests():
            return
        before, self._charted, self._drawn = self._charted, self._seen, self._newest
        for chart in self.charts:
            if chart.display:
                chart.show(self.timeline.moments(chart.track, before, self._seen), self._newest)
            else:
                chart.know(self._newest)

    def _rests(self) -> bool:
        """Whether the charts can wait: they were drawn a moment ago and only time has moved since."""
        if self._drawn is None or self._newest is None:
            return False
        recent = self._seen - self._charted < _RESTING_FRAMES
        return recent and _what_moves(self._newest) == _what_moves(self._drawn)

    def _show_newest(self) -> None:
        frame = self._newest
        charted = self._is_charted()
        self.board.set_class(charted, "-absent")
        self.grid.set_class(not charted, "-absent")
        self.top_bar.show(frame)
        self.kpi.show(frame, None if self.desk is None else self.desk.before)
        self._show_verdict(frame if charted else None)
        self.trouble.show(frame, hidden=not charted, finding=self._headline())
        self.host.show(frame)
        self._show_devices(frame)
        if not charted:
            self._show_board(frame)
        self._show_keys()

    def _show_verdict(self, frame: "Frame | None") -> None:
        desk = None if self.over_recording else self.desk
        served = None if desk is None else desk.current
        self.verdict.show(frame, served, self.panel.lab.changes)

    def _show_devices(self, frame: "Frame | None") -> None:
        self.devices.show(None if frame is None else frame.devices)
        if self.devices.rows_needed(self.size.width) != self._devices_needed:
            self._fit_again()

    def _show_board(self, frame: "Frame | None") -> None:
        """What stands there instead of charts, a start that failed before there was a server included."""
        desk = None if self.over_recording else self.desk
        busy = self._busy or (desk is not None and desk.busy is not None)
        failure = self._told_failure()
        over = self.over_recording and failure is not None
        self.board.show(
            None if over else frame, tuple(self.timeline.phases), busy=busy, failure=failure
        )

    def _told_failure(self) -> str | None:
        """What became of the last thing asked for, where it failed."""
        desk = self.desk
        failure = None if desk is None or desk.busy is not None else desk.failure
        return None if failure is None else str(failure)

    def _headline(self) -> tuple[str, str] | None:
        """What is wrong though the server is well, as (ink, text)."""
        return self.findings.headline(self.keymap.shown("live.why"))

    def _is_charted(self) -> bool:
        """Whether the window holds anything to draw; otherwise the board stands there."""
        seen_s = self.timeline.engine_seen_s
        return seen_s is not None and self._now_s - seen_s < self.window_minutes * 60

    def _show_keys(self, behind_s: float = 0.0) -> None:
        right: Line = ((f"{self.window_minutes} min", "muted"),)
        if self.frozen:
            right = ((f"frozen, {clock(behind_s)[3:]} behind", "warn"), ("  ", "text"), *right)
        scopes: tuple[Scope, ...] = ("zoom", "live", "panel") if self.zoomed else ("live", "panel")
        self.key_line.show(self.keymap.line_entries(*scopes), right)

    # Size and arrangement

    def fit_to(self, width: int, height: int) -> None:
        self._devices_needed = self.devices.rows_needed(width)
        plan = plan_live(width, height, zoomed=self.zoomed, devices=self._devices_needed)
        self.set_class(plan.framed, "-framed")
        self.trouble.most_rows = 2 if plan.framed else 1
        self.kpi.styles.height = plan.kpi_rows
        self.grid.styles.grid_size_columns = plan.columns
        self.grid.styles.grid_size_rows = plan.rows
        visible = {(self.selected + number) % len(self.charts) for number in range(plan.charts)}
        for number, chart in enumerate(self.charts):
            appears = number in visible and not chart.display
            chart.framed = plan.framed
            chart.selected = number == self.selected and plan.charts > 0
            chart.display = number in visible
            if appears:
                chart.forget_rows()
                chart.reload()
            else:
                chart.redraw()
        self.devices.set_class(plan.device_rows == 0, "-absent")
        self.devices.framed = plan.framed
        self.devices.styles.height = plan.device_rows + (2 if plan.framed else 0)
        self.devices.redraw()
        self.host.framed = plan.framed
        self.host.redraw()

    def _fit_again(self) -> None:
        self.fit_to(self.size.width, self.size.height)

    def on_canvas_picked(self, event: "Canvas.Picked") -> None:
        """A click on a chart chooses it, one on the chosen chart zooms."""
        place = next((n for n, chart in enumerate(self.charts) if chart is event.canvas), None)
        if place == self.selected:
            self.action_zoom()
        elif place is not None:
            self.action_select(place - self.selected)

    # Keys

    def action_freeze(self) -> None:
        self.frozen = not self.frozen
        self._show_keys()

    def action_window(self, step: int) -> None:
        place = WINDOWS_MINUTES.index(self.window_minutes) + step
        self.window_minutes = WINDOWS_MINUTES[min(len(WINDOWS_MINUTES) - 1, max(0, place))]
        for chart in self.charts:
            if chart.display:
                chart.reload()
        self._show_keys()

    def action_select(self, step: int) -> None:
        self._drop_cursor()
        self.selected = (self.selected + step) % len(self.charts)
        self._fit_again()

    def action_zoom(self) -> None:
        self._drop_cursor()
        self.zoomed = not self.zoomed
        self._fit_again()
        self._show_keys()

    def action_leave_zoom(self) -> None:
        if self.zoomed:
            self.action_zoom()

    def action_cursor(self, columns: int) -> None:
        chart = self.charts[self.selected]
        if self.zoomed:
            chart.move_cursor(columns)

    def action_conditional(self) -> None:
        for chart in self.charts:
            if isinstance(chart, PositionChart):
                chart.toggle_conditional()

    def action_why(self) -> None:
        from specpanel.app.tui.screens.why import WhyScreen

        desk = None if self.over_recording else self.desk
        served = None if desk is None else desk.current
        explanation = None if served is None else served.explanation
        self.app.push_screen(WhyScreen(self.findings.now, explanation, self._newest))

    def action_baseline(self) -> None:
        from specpanel.app.tui.lab_baseline import ask_for_baseline

        if self.over_recording:
            self.panel.say("This is a recording: there is nothing to measure")
        else:
            ask_for_baseline(self.panel, self.verdict.load)

    def action_devices(self) -> None:
        from specpanel.app.tui.screens.devices import DevicesScreen

        self.app.push_screen(
            DevicesScreen(
                self.panel.tabs, self._newest, glyphs=self.glyphs, replayed=self.over_recording
            )
        )

    def action_device_rows(self, rows: int) -> None:
        self.devices.scroll_rows(rows)

    def action_heat(self) -> None:
        for chart in self.charts:
            if isinstance(chart, PositionChart):
                chart.toggle_over_time()
                self._bring_up(chart)

    def action_histogram(self) -> None:
        for chart in self.charts:
            if isinstance(chart, LatencyChart):
                chart.toggle_histogram()
                self._bring_up(chart)

    def _bring_up(self, chart: ChartPane) -> None:
        """A chart that a key speaks to is one of those that are seen."""
        if not chart.display:
            self.selected = self.charts.index(chart)
            self._fit_again()

    def _drop_cursor(self) -> None:
        self.charts[self.selected].drop_cursor()


def _what_moves(frame: "Frame") -> tuple[object, ...]:
    """What of a Frame changes while a server works, or when something happens to it."""
    engine = frame.engine
    load = None if engine is None else (engine.running, engine.waiting, engine.requests_finished)
    state = (frame.epoch, frame.server.state, frame.server.url, frame.scrape.state, frame.mark)
    return (frame.totals, load, state)
