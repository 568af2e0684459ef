"""One chart of recorded Frames, without a screen: as rows of text, and as the numbers it draws. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from specpanel.app.tui.charts.bar_plot import bar_lines
from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.charts.heat_plot import HeatPlot
from specpanel.app.tui.charts.histogram_plot import histogram_lines
from specpanel.app.tui.charts.legend import legend_of
from specpanel.app.tui.charts.subjects import (
    POSITIONS,
    SUBJECTS,
    TRACKS,
    Subject,
    no_drafts_because,
    spread_of,
)
from specpanel.app.tui.ink import Line, clean, fit, text_of
from specpanel.app.tui.timeline import Moment, Timeline
from specpanel.core.monitor.frame import Frame, Interval

ChartName = Literal["acceptance", "positions", "latency", "tokens", "heat", "ttft", "tpot"]
CHART_NAMES: tuple[ChartName, ...] = get_args(ChartName)

_SUBJECTS = {subject.id: subject for subject in SUBJECTS}


@dataclass(frozen=True, slots=True)
class Stretch:
    """The end of a recording: its Frames on a time axis from ``since_s`` on, ``window_s`` seconds long."""

    timeline: Timeline
    since_s: float
    window_s: float

    def moments(self, chart: ChartName) -> list[Moment]:
        track = chart if chart in _SUBJECTS else POSITIONS
        return list(self.timeline.moments(track, since_s=self.since_s))

    @property
    def latest(self) -> Frame | None:
        return self.timeline.latest


def stretch_of(frames: Sequence[Frame], window_s: float | None) -> Stretch:
    """The last ``window_s`` seconds of a recording, all of it when ``None``."""
    timeline = Timeline(TRACKS, capacity=max(1, len(frames)))
    for frame in frames:
        timeline.take(frame)
    if window_s is not None:
        return Stretch(timeline, timeline.now_s - window_s, window_s)
    first_s = timeline.time_of(0) if frames else 0.0
    return Stretch(timeline, first_s, max(10.0, math.ceil((timeline.now_s - first_s) / 10) * 10.0))


def chart_rows(
    chart: ChartName,
    stretch: Stretch,
    width: int,
    height: int,
    glyphs: Glyphs,
) -> list[str]:
    """A heading and ``height`` - 1 rows of the chart, without colours: lines differ by pattern."""
    heading, lines = _drawn(chart, stretch, width, max(0, height - 1), glyphs)
    return [text_of(fit(line, width, glyphs.ellipsis)).rstrip() for line in (heading, *lines)]


def _drawn(
    chart: ChartName,
    stretch: Stretch,
    width: int,
    height: int,
    glyphs: Glyphs,
) -> tuple[Line, Sequence[Line]]:
    if chart == "heat":
        heat = HeatPlot(glyphs=glyphs, colors=False)
        heat.resize(width, height, stretch.window_s)
        for moment in stretch.moments(chart):
            heat.take(moment.time_s, moment.values, note=moment.note)
        heat.empty_reason = clean(no_drafts_because(stretch.latest))
        return (("Acceptance by position  ", "title"), *heat.legend()), heat.draw()
    if chart == "positions":
        return _bars(stretch.latest, width, height, glyphs)
    if chart == "ttft" or chart == "tpot":
        return _histogram(chart, stretch.latest, width, height, glyphs)
    subject = _SUBJECTS[chart]
    plot = subject.plot(glyphs=glyphs, patterns=True)
    plot.resize(width, height, stretch.window_s)
    values: Sequence[float | None] = [None] * len(subject.series)
    for moment in stretch.moments(chart):
        values = moment.values
        plot.take(moment.time_s, values, breaks=moment.breaks, note=moment.note)
    plot.empty_reason = clean(subject.reason(stretch.latest))
    return ((f"{subject.title}  ", "title"), *legend_of(plot, subject, values)), plot.draw()


def _bars(
    frame: Frame | None, width: int, height: int, glyphs: Glyphs
) -> tuple[Line, Sequence[Line]]:
    sample = frame.speculation if frame else None
    if sample is None or not sample.positions:
        reason = clean(no_drafts_because(frame))
        return (("Acceptance by position", "title"),), [((reason, "muted"),)]
    heading = f"Acceptance by position  of all drafts, last {sample.window_s:.0f} s"
    return ((heading, "title"),), bar_lines(sample.positions, width, height, glyphs=glyphs)


def _histogram(
    chart: Literal["ttft", "tpot"], frame: Frame | None, width: int, height: int, glyphs: Glyphs
) -> tuple[Line, Sequence[Line]]:
    spread = spread_of(frame, chart)
    if not spread.buckets:
        return ((spread.name, "title"),), [((clean(spread.reason), "muted"),)]
    lines = histogram_lines(spread.buckets, spread.quantiles, width, height, glyphs=glyphs)
    return ((spread.heading, "title"),), lines


def chart_series(chart: ChartName, stretch: Stretch) -> dict[str, Any]:
    """The numbers behind the chart. Times are seconds of the recording; an absent value is ``None``."""
    content: dict[str, Any] = {"chart": chart, "window_s": stretch.window_s}
    moments = stretch.moments(chart)
    if chart == "positions":
        content["positions"] = _position_rates(stretch.latest)
    elif chart == "ttft" or chart == "tpot":
        spread = spread_of(stretch.latest, chart)
        content["buckets"] = [
            {"from_ms": low, "to_ms": high, "count": count} for low, high, count in spread.buckets
        ]
        if not spread.buckets:
            content["absent"] = spread.reason
        return content
    else:
        content["times_s"] = [moment.time_s for moment in moments]
        content["breaks_s"] = [moment.time_s for moment in moments[1:] if moment.breaks]
        content["series"] = (
            _heat_series(moments) if chart == "heat" else _line_series(_SUBJECTS[chart], moments)
        )
        content["marks"] = [
            {"time_s": moment.time_s, "text": moment.note} for moment in moments if moment.note
        ]
    reason = _SUBJECTS[chart].reason if chart in _SUBJECTS else no_drafts_because
    if not _has_values(content):
        content["absent"] = reason(stretch.latest)
    return content


def _has_values(content: dict[str, Any]) -> bool:
    if "positions" in content:
        return bool(content["positions"])
    return any(value is not None for series in content["series"] for value in series["values"])


def _line_series(subject: Subject, moments: Sequence[Moment]) -> list[dict[str, Any]]:
    return [
        {
            "name": f"{series.group} {series.name}".strip(),
            "unit": subject.unit,
            "values": [moment.values[at] for moment in moments],
        }
        for at, series in enumerate(subject.series)
    ]


def _heat_series(moments: Sequence[Moment]) -> list[dict[str, Any]]:
    count = max((len(moment.values) for moment in moments), default=1) - 1
    return [
        {
            "name": f"position {at + 1}",
            "unit": "accepted / drafts",
            "values": [_rate(moment.values, at + 1) for moment in moments],
        }
        for at in range(count)
    ]


def _rate(counts: Sequence[float | None], position: int) -> float | None:
    """Accepted at ``position`` / drafts."""
    drafts, accepted = counts[0], counts[position]
    return accepted / drafts if drafts and accepted is not None else None


def _position_rates(frame: Frame | None) -> list[dict[str, Any]]:
    sample = frame.speculation if frame else None
    return [
        {
            "position": position.position,
            "accepted": position.accepted,
            "rate": _interval(position.rate),
            "conditional": _interval(position.conditional),
        }
        for position in (sample.positions if sample else ())
    ]


def _interval(found: Interval | None) -> dict[str, float] | None:
    if found is None:
        return None
    return {"estimate": found.estimate, "low": found.low, "high": found.high}
