"""Latency over time as lines, or as it is spread in the newest window."""

from collections.abc import Sequence

from specpanel.app.tui.charts.histogram_plot import histogram_lines
from specpanel.app.tui.charts.subjects import Spread, spread_of
from specpanel.app.tui.ink import Line, clean, fit, shorten
from specpanel.app.tui.widgets.chart import LineChart

_SIDE_BY_SIDE_CELLS = 76
_TITLE = "Latency spread ms"


class LatencyChart(LineChart):
    """Quantiles over time; asked to, the histograms of TTFT and TPOT instead, beside or above each other."""

    as_histogram = False

    def toggle_histogram(self) -> None:
        self.as_histogram = not self.as_histogram
        self.title = _TITLE if self.as_histogram else self.subject.title
        self.drop_cursor()
        self.reload()

    def move_cursor(self, columns: int) -> None:
        if not self.as_histogram:
            super().move_cursor(columns)

    def legend(self) -> Line:
        if not self.as_histogram:
            return super().legend()
        latency = self._latest.latency if self._latest else None
        return () if latency is None else ((f"last {latency.window_s:.0f} s", "muted"),)

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        if not self.as_histogram:
            return super().compose_inside(width, height)
        first, second = spread_of(self._latest, "ttft"), spread_of(self._latest, "tpot")
        if width >= _SIDE_BY_SIDE_CELLS:
            left = self._spread(first, width // 2 - 1, height)
            right = self._spread(second, width - width // 2, height)
            return [(*one, (" ", "text"), *other) for one, other in zip(left, right, strict=True)]
        upper = height - height // 2
        return [*self._spread(first, width, upper), *self._spread(second, width, height // 2)]

    def _spread(self, spread: Spread, width: int, height: int) -> list[Line]:
        """A heading and the bars, or why there are none."""
        ellipsis = self.glyphs.ellipsis
        heading = fit(((f" {clean(spread.heading)}", "strong"),), width, ellipsis)
        if spread.buckets:
            bars = histogram_lines(
                spread.buckets, spread.quantiles, width, height - 1, glyphs=self.glyphs
            )
            return [heading, *bars][:height]
        reason = shorten(clean(spread.reason), max(0, width - 1), ellipsis)
        said: Line = fit(((f" {reason}", "muted"),), width)
        return [heading, said, *[fit((), width)] * max(0, height - 2)][:height]
