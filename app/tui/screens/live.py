"""The Live screen: the numbers of the newest Frame and four charts of the last minutes."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.containers import Container
from textual.widget import Widget

from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.figures import clock
from specpanel.app.tui.ink import Line
from specpanel.app.tui.keys import Scope, bindings, line_entries
from specpanel.app.tui.screens.base import PanelScreen
from specpanel.app.tui.screens.layout import plan_live
from specpanel.app.tui.screens.live_charts import live_charts
from specpanel.app.tui.timeline import Moment, PhaseLog, Timeline
from specpanel.app.tui.widgets.bars import HostPane, TroubleLine
from specpanel.app.tui.widgets.board import HOW_TO_BEGIN, Board
from specpanel.app.tui.widgets.chart import ChartPane, PositionChart
from specpanel.app.tui.widgets.kpi_strip import KpiStrip
from specpanel.core.monitor.feed import Feed

WINDOWS_MINUTES = (1, 5, 15, 60)


class LiveScreen(PanelScreen):
    """Draws the feed. Freezing stops the picture, never the sampling."""

    tab = "Live"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("live", "zoom")]

    def __init__(
        self,
        tabs: Sequence[tuple[str, str]],
        *,
        glyphs: Glyphs,
        patterns: bool,
        window_minutes: int = 5,
        how_to_begin: Sequence[tuple[str, str]] = HOW_TO_BEGIN,
        busy: bool = False,
    ) -> None:
        super().__init__(tabs, glyphs=glyphs)
        self.timeline = Timeline()
        self._phases = PhaseLog()
        self._engine_seen_s: float | None = None
        self._seen_version = 0
        self._busy = busy
        self.window_minutes = window_minutes
        self.frozen = False
        self.zoomed = False
        self.selected = 0
        self.charts: tuple[ChartPane, ...] = live_charts(
            glyphs=glyphs, patterns=patterns, history=self.history
        )
        self.kpi = KpiStrip(glyphs=glyphs, id="kpi")
        self.trouble = TroubleLine(glyphs=glyphs)
        self.board = Board(how_to_begin, glyphs=glyphs)
        self.host = HostPane(glyphs=glyphs)
        self.grid = Container(*self.charts, id="charts")

    def compose_body(self) -> Iterable[Widget]:
        yield self.kpi
        yield self.trouble
        yield self.board
        yield self.grid
        yield self.host

    def on_mount(self) -> None:
        self._show_newest()

    def history(self) -> tuple[Sequence[Moment], float]:
        """The Moments that the charts show, and the window in seconds."""
        window_s = self.window_minutes * 60.0
        latest = self.timeline.latest
        moments = self.timeline.since(latest.time_s - window_s - 1.0) if latest else []
        return moments, window_s

    # What comes in

    def receive(self, feed: Feed) -> None:
        frames = feed.newer_than(self._seen_version)
        if not frames:
            return
        if self.frozen:
            latest = self.timeline.latest
            self._show_keys(frames[-1].time_unix - latest.frame.time_unix if latest else 0.0)
            return
        self._seen_version = feed.version
        first = len(self.timeline) == 0
        moments = self.timeline.extend(frames)
        for moment in moments:
            self._phases.add(moment.frame)
            if moment.frame.engine is not None:
                self._engine_seen_s = moment.time_s
        self._show_newest()
        for chart in self.charts:
            if not chart.display:
                continue
            if first:
                chart.reload()
            else:
                chart.extend(moments)

    def _show_newest(self) -> None:
        latest = self.timeline.latest
        frame = latest.frame if latest else None
        charted = self._is_charted()
        self.board.set_class(charted, "-absent")
        self.grid.set_class(not charted, "-absent")
        self.top_bar.show(frame)
        self.kpi.show(frame, None if self.desk is None else self.desk.before)
        self.trouble.show(frame, hidden=not charted)
        self.host.show(frame)
        if not charted:
            self.board.show(frame, tuple(self._phases), busy=self._busy)
        self._show_keys()

    def _is_charted(self) -> bool:
        """Whether the window holds anything to draw; otherwise the board stands there."""
        latest = self.timeline.latest
        if latest is None or self._engine_seen_s is None:
            return False
        return latest.time_s - self._engine_seen_s < self.window_minutes * 60

    def _show_keys(self, behind_s: float = 0.0) -> None:
        right: Line = ((f"{self.window_minutes} min", "muted"),)
        if self.frozen:
            right = ((f"frozen, {clock(behind_s)[3:]} behind", "warn"), ("  ", "text"), *right)
        scopes: tuple[Scope, ...] = ("zoom", "live", "panel") if self.zoomed else ("live", "panel")
        self.key_line.show(line_entries(*scopes), right)

    # Size and arrangement

    def fit_to(self, width: int, height: int) -> None:
        plan = plan_live(width, height, zoomed=self.zoomed)
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
        self.host.framed = plan.framed
        self.host.redraw()

    def _fit_again(self) -> None:
        self.fit_to(self.size.width, self.size.height)

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

    def action_heat(self) -> None:
        for chart in self.charts:
            if isinstance(chart, PositionChart):
                chart.toggle_over_time()

    def _drop_cursor(self) -> None:
        self.charts[self.selected].drop_cursor()
