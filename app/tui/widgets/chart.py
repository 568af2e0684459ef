"""The charts of the Live screen as widgets: lines, and acceptance by draft position as bars or as a map."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from specpanel.app.tui.charts.bar_plot import bar_lines
from specpanel.app.tui.charts.heat_plot import HeatPlot
from specpanel.app.tui.charts.legend import ago, legend_of
from specpanel.app.tui.charts.subjects import POSITIONS, Subject
from specpanel.app.tui.figures import ABSENT
from specpanel.app.tui.ink import Line, Span, clean, fit, wrap
from specpanel.app.tui.timeline import Moment
from specpanel.app.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from specpanel.app.tui.charts.glyphs import Glyphs
    from specpanel.core.monitor.frame import Frame

Reason = Callable[["Frame | None"], str]
History = Callable[[str], tuple[Iterable[Moment], float]]
"""By the name of a track: the Moments to show, and the window in seconds."""

_BARS_TITLE = "Acceptance by position"
_MAP_TITLE = "By position"  # leaves room for what the shades mean


class ChartPane(Pane):
    """What the Live screen asks of a chart that shows one track of the timeline."""

    def __init__(
        self, title: str, *, track: str, glyphs: "Glyphs", history: History, id: str
    ) -> None:
        super().__init__(title, glyphs=glyphs, id=id)
        self.track = track
        self._history = history
        self._latest: Frame | None = None

    def place_at(self, row: int) -> int | None:
        return 0

    def reload(self) -> None:
        """Starts over from the history: after a resize or with another window."""
        moments, window_s = self._history(self.track)
        self.load(moments, window_s)

    def show(self, moments: Iterable[Moment], newest: "Frame | None") -> None:
        """Takes what is new; ``newest`` is the Frame behind the last of it."""
        self._latest = newest
        self.extend(moments)

    def know(self, newest: "Frame | None") -> None:
        """The newest Frame, while the chart is hidden."""
        self._latest = newest

    def on_resize(self) -> None:
        self.forget_rows()
        self.reload()

    def load(self, moments: Iterable[Moment], window_s: float) -> None:
        """Shows ``moments`` and nothing else."""
        raise NotImplementedError

    def extend(self, moments: Iterable[Moment]) -> None:
        """Adds ``moments`` and draws."""
        raise NotImplementedError

    def wear(self, *, patterns: bool) -> None:
        """Whether lines differ by dash pattern from now on."""

    def move_cursor(self, columns: int) -> None:
        """Moves the value cursor by cells, where there is one; it starts at the right edge."""

    def drop_cursor(self) -> None:
        """Takes the value cursor away."""


class LineChart(ChartPane):
    """Lines over time; the legend carries the newest values, or those under the cursor."""

    def __init__(
        self, subject: Subject, *, glyphs: "Glyphs", patterns: bool, history: History, id: str
    ) -> None:
        super().__init__(subject.title, track=subject.id, glyphs=glyphs, history=history, id=id)
        self.subject = subject
        self.plot = subject.plot(glyphs=glyphs, patterns=patterns)
        self._values: Sequence[float | None] = [None] * len(subject.series)

    def wear(self, *, patterns: bool) -> None:
        if patterns != self.plot.patterns:
            self.plot.patterns = patterns
            self.reload()

    def load(self, moments: Iterable[Moment], window_s: float) -> None:
        width, height = self.inside_size()
        self.plot.resize(width, height, window_s)
        self.extend(moments)

    def extend(self, moments: Iterable[Moment]) -> None:
        for moment in moments:
            self._values = moment.values
            self.plot.take(moment.time_s, self._values, breaks=moment.breaks, note=moment.note)
        self.plot.empty_reason = clean(self.subject.reason(self._latest))
        self.redraw()

    def move_cursor(self, columns: int) -> None:
        self.plot.move_cursor(columns)
        self.redraw()

    def drop_cursor(self) -> None:
        self.plot.cursor = None
        self.redraw()

    def legend(self) -> Line:
        return legend_of(self.plot, self.subject, self._values)

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        return self.plot.draw()


class PositionChart(ChartPane):
    """Acceptance by draft position: bars for now, or a map of position by time.

    Rates are of all drafts, or given that the position before was accepted.
    """

    def __init__(
        self,
        *,
        glyphs: "Glyphs",
        history: History,
        reason: Reason,
        paragraphs: Callable[[], Sequence[str]] = tuple,
        id: str,
    ) -> None:
        """``paragraphs`` say more of why there are no drafts, where something is known of it."""
        super().__init__(_BARS_TITLE, track=POSITIONS, glyphs=glyphs, history=history, id=id)
        self.conditional = False
        self.over_time = False
        self.heat = HeatPlot(glyphs=glyphs)
        self._reason = reason
        self._paragraphs = paragraphs
        self._now: tuple[object, Sequence[Line]] | None = None

    def load(self, moments: Iterable[Moment], window_s: float) -> None:
        self.heat.resize(*self.inside_size(), window_s)
        self.extend(moments)

    def extend(self, moments: Iterable[Moment]) -> None:
        if self.over_time:
            for moment in moments:
                self.heat.take(moment.time_s, moment.values, note=moment.note)
            self.heat.empty_reason = clean(self._reason(self._latest))
        self.redraw()

    def toggle_conditional(self) -> None:
        self.conditional = self.heat.conditional = not self.conditional
        self.redraw()

    def toggle_over_time(self) -> None:
        self.over_time = not self.over_time
        self.title = _MAP_TITLE if self.over_time else _BARS_TITLE
        self.drop_cursor()
        self.reload()

    def move_cursor(self, columns: int) -> None:
        if self.over_time:
            self.heat.move_cursor(columns)
            self.redraw()

    def drop_cursor(self) -> None:
        self.heat.cursor = None
        self.redraw()

    def legend(self) -> Line:
        kind = "given previous" if self.conditional else "of all drafts"
        reading = self.heat.reading() if self.over_time else None
        if reading is not None:
            rates: list[Span] = [ago(reading[0])]
            for position, rate in enumerate(reading[1], start=1):
                shown = ABSENT if rate is None else f"{rate * 100:.0f} %"
                rates += [(f"{position} ", "muted"), (f"{shown}  ", "strong")]
            return tuple(rates)
        if self.over_time:
            return (*self.heat.legend(), ("  ", "muted"), (kind, "muted"))
        sample = self._latest.speculation if self._latest else None
        window = f", {sample.window_s:.0f} s" if sample is not None else ""
        return ((kind, "muted"), (window, "muted"))

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        if self.over_time:
            return self.heat.draw()
        sample = self._latest.speculation if self._latest else None
        positions = () if sample is None else sample.positions
        reasons = () if positions else (*self._paragraphs(), self._reason(self._latest))
        shows = (width, height, positions, self.conditional, reasons)
        if self._now is None or self._now[0] != shows:
            rows = (
                bar_lines(
                    positions, width, height, conditional=self.conditional, glyphs=self.glyphs
                )
                if positions
                else self._no_bars(reasons, width, height)
            )
            self._now = shows, rows
        return self._now[1]

    def _no_bars(self, reasons: Sequence[str], width: int, height: int) -> Sequence[Line]:
        """Why there is nothing to draw: whole sentences where they are known, else the reason's few words.

        The words are the last of ``reasons``.
        """
        room = max(1, width - 2)
        told = [row for text in reasons[:-1] for row in wrap(clean(text), room)][:height]
        if told:
            above = max(0, (height - len(told)) // 2)
            rows: list[Line] = [((f" {row}", "text"),) for row in told]
            return [fit(row, width, self.glyphs.ellipsis) for row in [*[()] * above, *rows]]
        reason = clean(reasons[-1])
        pad = max(0, (width - len(reason)) // 2)
        return [fit((), width)] * (height // 2) + [
            fit(((" " * pad, "text"), (reason, "muted")), width, self.glyphs.ellipsis)
        ]
