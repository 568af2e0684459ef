"""One chart of recorded Frames, without a screen: as rows of text, and as the numbers it draws. Pure."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

from specpanel.app.tui.charts.bar_plot import bar_lines
from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.charts.heat_plot import HeatPlot
from specpanel.app.tui.charts.legend import legend_of
from specpanel.app.tui.charts.subjects import SUBJECTS, Subject, no_drafts_because
from specpanel.app.tui.ink import Line, clean, fit, text_of
from specpanel.app.tui.timeline import Moment, Timeline
from specpanel.core.monitor.frame import Frame, Interval

ChartName = Literal["acceptance", "positions", "latency", "tokens", "heat"]
CHART_NAMES: tuple[ChartName, ...] = get_args(ChartName)

_SUBJECTS = {subject.id: subject for subject in SUBJECTS}


def moments_of(frames: Sequence[Frame], window_s: float | None) -> tuple[list[Moment], float]:
    """The last ``window_s`` seconds of a recording, all of it when ``None``, and their length in s."""
    timeline = Timeline(capacity=max(1, len(frames)))
    moments = timeline.extend(frames)
    if window_s is None:
        span_s = moments[-1].time_s - moments[0].time_s if moments else 0.0
        return moments, max(10.0, math.ceil(span_s / 10) * 10.0)
    return timeline.since(moments[-1].time_s - window_s) if moments else [], window_s


def chart_rows(
    chart: ChartName,
    moments: Sequence[Moment],
    window_s: float,
    width: int,
    height: int,
    glyphs: Glyphs,
) -> list[str]:
    """A heading and ``height`` - 1 rows of the chart, without colours: lines differ by pattern."""
    heading, lines = _drawn(chart, moments, window_s, width, max(0, height - 1), glyphs)
    return [text_of(fit(line, width, glyphs.ellipsis)).rstrip() for line in (heading, *lines)]


def _drawn(
    chart: ChartName,
    moments: Sequence[Moment],
    window_s: float,
    width: int,
    height: int,
    glyphs: Glyphs,
) -> tuple[Line, Sequence[Line]]:
    if chart == "heat":
        heat = HeatPlot(glyphs=glyphs, colors=False)
        heat.resize(width, height, window_s)
        for moment in moments:
            heat.take(moment.time_s, moment.frame.speculation, note=moment.note)
        heat.empty_reason = clean(no_drafts_because(_latest(moments)))
        return (("Acceptance by position  ", "title"), *heat.legend()), heat.draw()
    if chart == "positions":
        return _bars(_latest(moments), width, height, glyphs)
    subject = _SUBJECTS[chart]
    plot = subject.plot(glyphs=glyphs, patterns=True)
    plot.resize(width, height, window_s)
    values: Sequence[float | None] = [None] * len(subject.series)
    for moment in moments:
        values = subject.sample(moment.frame)
        plot.take(moment.time_s, values, breaks=moment.breaks, note=moment.note)
    plot.empty_reason = clean(subject.reason(_latest(moments)))
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


def _latest(moments: Sequence[Moment]) -> Frame | None:
    return moments[-1].frame if moments else None


def chart_series(chart: ChartName, moments: Sequence[Moment], window_s: float) -> dict[str, Any]:
    """The numbers behind the chart. Times are seconds of the recording; an absent value is ``None``."""
    content: dict[str, Any] = {"chart": chart, "window_s": window_s}
    if chart == "positions":
        content["positions"] = _position_rates(_latest(moments))
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
        content["absent"] = reason(_latest(moments))
    return content


def _has_values(content: dict[str, Any]) -> bool:
    if "positions" in content:
        return bool(content["positions"])
    return any(value is not None for series in content["series"] for value in series["values"])


def _line_series(subject: Subject, moments: Iterable[Moment]) -> list[dict[str, Any]]:
    samples = [subject.sample(moment.frame) for moment in moments]
    return [
        {
            "name": f"{series.group} {series.name}".strip(),
            "unit": subject.unit,
            "values": [sample[at] for sample in samples],
        }
        for at, series in enumerate(subject.series)
    ]


def _heat_series(moments: Sequence[Moment]) -> list[dict[str, Any]]:
    samples = [
        moment.frame.speculation.positions if moment.frame.speculation else () for moment in moments
    ]
    count = max((len(positions) for positions in samples), default=0)
    return [
        {
            "name": f"position {at + 1}",
            "unit": "accepted / drafts",
            "values": [
                positions[at].rate.estimate if at < len(positions) else None
                for positions in samples
            ],
        }
        for at in range(count)
    ]


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
