"""What the four charts of the Live screen draw from a Frame."""

from collections.abc import Sequence

from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.charts.line_plot import LinePlot, Series
from specpanel.app.tui.figures import grouped, milliseconds
from specpanel.app.tui.widgets.chart import ChartPane, History, LineChart, PositionChart
from specpanel.core.monitor.frame import Frame, Quantiles

_ACCEPTANCE = (Series("lifetime", "faint", 1), Series("now", "series-1", 0))
_LATENCY = (
    Series("p99", "series-4", 2, "TTFT"),
    Series("p50", "series-2", 1, "TTFT"),
    Series("p99", "series-3", 2, "TPOT"),
    Series("p50", "series-1", 0, "TPOT"),
)
_THROUGHPUT = (Series("output", "series-1", 0),)


def acceptance_values(frame: Frame) -> Sequence[float | None]:
    sample = frame.speculation
    if sample is None:
        return (None, None)
    return (sample.lifetime_acceptance_length, sample.acceptance_length)


def latency_values(frame: Frame) -> Sequence[float | None]:
    latency = frame.latency
    if latency is None:
        return (None, None, None, None)
    return (*_p99_and_p50(latency.ttft), *_p99_and_p50(latency.tpot))


def _p99_and_p50(quantiles: Quantiles | None) -> tuple[float | None, float | None]:
    if quantiles is None:
        return None, None
    return quantiles.p99.value_ms, quantiles.p50.value_ms


def throughput_values(frame: Frame) -> Sequence[float | None]:
    return (frame.engine.generation_tokens_per_s if frame.engine else None,)


def no_drafts_because(frame: Frame | None) -> str:
    """Why nothing about drafts can be drawn."""
    if frame is None or frame.speculation is None:
        return "n/a: no metrics yet"
    return f"n/a: {frame.speculation.absent or 'no drafts'}"


def no_latency_because(frame: Frame | None) -> str:
    if frame is None or frame.latency is None:
        return "n/a: no metrics yet"
    return f"n/a: no request finished in the last {frame.latency.window_s:.0f} s"


def no_throughput_because(frame: Frame | None) -> str:
    return "n/a: no metrics yet" if frame is None or frame.engine is None else "n/a: not reported"


def live_charts(*, glyphs: Glyphs, patterns: bool, history: History) -> tuple[ChartPane, ...]:
    """Acceptance length, acceptance by position, latency and throughput, in this order."""
    return (
        LineChart(
            "Acceptance length",
            LinePlot(_ACCEPTANCE, glyphs=glyphs, low=1.0, high=2.0, patterns=patterns),
            sample=acceptance_values,
            reason=no_drafts_because,
            glyphs=glyphs,
            history=history,
            show_value=lambda value: f"{value:.2f}",
            id="acceptance",
        ),
        PositionChart(glyphs=glyphs, history=history, reason=no_drafts_because, id="positions"),
        LineChart(
            "Latency ms",
            LinePlot(_LATENCY, glyphs=glyphs, log=True, patterns=patterns),
            sample=latency_values,
            reason=no_latency_because,
            glyphs=glyphs,
            history=history,
            show_value=milliseconds,
            id="latency",
        ),
        LineChart(
            "Tokens/s",
            LinePlot(_THROUGHPUT, glyphs=glyphs, low=0.0, high=10.0, patterns=patterns),
            sample=throughput_values,
            reason=no_throughput_because,
            glyphs=glyphs,
            history=history,
            show_value=grouped,
            id="throughput",
        ),
    )
