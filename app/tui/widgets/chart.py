"""The charts of the Live screen as widgets: a line chart and the bars by draft position."""

from collections.abc import Callable, Iterable, Sequence

from specpanel.app.tui.charts.bar_plot import bar_lines
from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.charts.line_plot import LinePlot
from specpanel.app.tui.figures import ABSENT, clock
from specpanel.app.tui.ink import Line, Span, clean, fit
from specpanel.app.tui.timeline import Moment
from specpanel.app.tui.widgets.pane import Pane
from specpanel.core.monitor.frame import Frame

Sample = Callable[[Frame], Sequence[float | None]]
Reason = Callable[[Frame | None], str]
History = Callable[[], tuple[Sequence[Moment], float]]


class ChartPane(Pane):
    """What the Live screen asks of a chart. ``history`` gives the Moments to show and the window in s."""

    def __init__(self, title: str, *, glyphs: Glyphs, history: History, id: str) -> None:
        super().__init__(title, glyphs=glyphs, id=id)
        self._history = history

    def reload(self) -> None:
        """Starts over from the history: after a resize or with another window."""
        self.load(*self._history())

    def on_resize(self) -> None:
        self.forget_rows()
        self.reload()

    def load(self, moments: Sequence[Moment], window_s: float) -> None:
        """Shows ``moments`` and nothing else."""
        raise NotImplementedError

    def extend(self, moments: Sequence[Moment]) -> None:
        """Takes what is new."""
        raise NotImplementedError


class LineChart(ChartPane):
    """Lines over time; the legend carries the newest values, or those under the cursor."""

    def __init__(
        self,
        title: str,
        plot: LinePlot,
        *,
        sample: Sample,
        reason: Reason,
        glyphs: Glyphs,
        history: History,
        show_value: Callable[[float], str],
        id: str,
    ) -> None:
        super().__init__(title, glyphs=glyphs, history=history, id=id)
        self.plot = plot
        self._sample = sample
        self._reason = reason
        self._show_value = show_value
        self._values: Sequence[float | None] = [None] * len(plot.series)
        self._latest: Frame | None = None

    def load(self, moments: Sequence[Moment], window_s: float) -> None:
        width, height = self.inside_size()
        self.plot.resize(width, height, window_s)
        self._latest = None
        self._take(moments)
        self.redraw()

    def extend(self, moments: Sequence[Moment]) -> None:
        self._take(moments)
        self.redraw()

    def move_cursor(self, columns: int) -> None:
        """Moves the value cursor by cells; it starts at the right edge."""
        self.plot.move_cursor(columns)
        self.redraw()

    def drop_cursor(self) -> None:
        self.plot.cursor = None
        self.redraw()

    def _take(self, moments: Iterable[Moment]) -> None:
        for moment in moments:
            if moment.breaks:
                self.plot.break_lines()
                if self._latest is not None and self._latest.epoch != moment.frame.epoch:
                    self.plot.mark(moment.time_s, "restart")
            self._values = self._sample(moment.frame)
            self._latest = moment.frame
            self.plot.add(moment.time_s, self._values)
            if moment.frame.mark is not None:
                self.plot.mark(moment.time_s, moment.frame.mark)
        self.plot.empty_reason = clean(self._reason(self._latest))

    def legend(self) -> Line:
        reading = self.plot.reading()
        values = self._values if reading is None else reading[1]
        spans: list[Span] = []
        group = ""
        if reading is not None:
            spans.append((f"{clock(reading[0])[3:]} ago  ", "strong"))
        # The line that lies on top is named first.
        for series, value in reversed(list(zip(self.plot.series, values, strict=True))):
            sample = self.glyphs.sample
            if self.plot.patterns:
                sample = self.glyphs.dashes[series.dash % len(self.glyphs.dashes)]
            if series.group != group:
                spans.append((f" {series.group} " if group else f"{series.group} ", "muted"))
                group = series.group
            shown = ABSENT if value is None else self._show_value(value)
            spans += [(f"{sample} ", series.ink), (f"{series.name} ", "muted")]
            spans.append((f"{shown} ", "muted" if value is None else "strong"))
        return tuple(spans)

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        return self.plot.draw()


class PositionChart(ChartPane):
    """Acceptance by draft position, now: unconditional, or given that the position before was accepted."""

    def __init__(self, *, glyphs: Glyphs, history: History, reason: Reason, id: str) -> None:
        super().__init__("Acceptance by position", glyphs=glyphs, history=history, id=id)
        self.conditional = False
        self._reason = reason
        self._frame: Frame | None = None

    def load(self, moments: Sequence[Moment], window_s: float) -> None:
        self._frame = moments[-1].frame if moments else None
        self.redraw()

    def extend(self, moments: Sequence[Moment]) -> None:
        if moments:
            self._frame = moments[-1].frame
        self.redraw()

    def toggle_conditional(self) -> None:
        self.conditional = not self.conditional
        self.redraw()

    def legend(self) -> Line:
        kind = "given previous" if self.conditional else "of all drafts"
        sample = self._frame.speculation if self._frame else None
        window = f", {sample.window_s:.0f} s" if sample is not None else ""
        return ((kind, "muted"), (window, "muted"))

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        sample = self._frame.speculation if self._frame else None
        if sample is None or not sample.positions:
            reason = clean(self._reason(self._frame))
            pad = max(0, (width - len(reason)) // 2)
            blank = fit((), width)
            return [blank] * (height // 2) + [
                fit(((" " * pad, "text"), (reason, "muted")), width, self.glyphs.ellipsis)
            ]
        return bar_lines(
            sample.positions, width, height, conditional=self.conditional, glyphs=self.glyphs
        )
