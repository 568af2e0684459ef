"""What stands beside a chart's title: every series with its line, its name and a value. Pure."""

from collections.abc import Sequence

from specpanel.app.tui.charts.line_plot import LinePlot
from specpanel.app.tui.charts.subjects import Subject
from specpanel.app.tui.figures import ABSENT, clock
from specpanel.app.tui.ink import Line, Span


def legend_of(plot: LinePlot, subject: Subject, newest: Sequence[float | None]) -> Line:
    """The ``newest`` values, or those under the plot's cursor; the line that lies on top comes first."""
    reading = plot.reading()
    values = newest if reading is None else reading[1]
    spans: list[Span] = [] if reading is None else [ago(reading[0])]
    group = ""
    for series, value in reversed(list(zip(plot.series, values, strict=True))):
        sample = plot.glyphs.sample
        if plot.patterns:
            sample = plot.glyphs.dashes[series.dash % len(plot.glyphs.dashes)]
        if series.group != group:
            spans.append((f" {series.group} " if group else f"{series.group} ", "muted"))
            group = series.group
        shown = ABSENT if value is None else subject.show_value(value)
        spans += [(f"{sample} ", series.ink), (f"{series.name} ", "muted")]
        spans.append((f"{shown} ", "muted" if value is None else "strong"))
    return tuple(spans)


def ago(seconds: float) -> Span:
    return f"{clock(seconds)[3:]} ago  ", "strong"
