"""The four charts of the Live screen."""

from collections.abc import Callable, Sequence

from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.charts.subjects import (
    ACCEPTANCE,
    LATENCY,
    TOKENS,
    Subject,
    no_drafts_because,
)
from specpanel.app.tui.widgets.chart import ChartPane, History, LineChart, PositionChart
from specpanel.app.tui.widgets.latency_chart import LatencyChart


def live_charts(
    *,
    glyphs: Glyphs,
    patterns: bool,
    history: History,
    about_no_drafts: Callable[[], Sequence[str]] = tuple,
) -> tuple[ChartPane, ...]:
    """Acceptance length, acceptance by position, latency and throughput, in this order."""

    def lines(subject: Subject, id: str) -> LineChart:
        return LineChart(subject, glyphs=glyphs, patterns=patterns, history=history, id=id)

    return (
        lines(ACCEPTANCE, "acceptance"),
        PositionChart(
            glyphs=glyphs,
            history=history,
            reason=no_drafts_because,
            paragraphs=about_no_drafts,
            id="positions",
        ),
        LatencyChart(LATENCY, glyphs=glyphs, patterns=patterns, history=history, id="latency"),
        lines(TOKENS, "throughput"),
    )
