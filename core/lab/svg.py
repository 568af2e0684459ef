"""Charts as SVG text: ratios with their intervals, and lines over the load. Pure; texts are escaped."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 720
_ROW = 26
_LEFT, _RIGHT, _TOP, _BOTTOM = 230, 90, 16, 40
Scale = Callable[[float], float]

_COLOURS = ("#0b6fa4", "#b3560f", "#4b7d1a", "#8a3d8f", "#555555", "#a0203c")
_DASHES = ("", "7 4", "2 4", "10 3 2 3", "5 2", "1 3")  # told apart without colour


@dataclass(frozen=True, slots=True)
class Bar:
    """One row of ratios. ``low`` and ``high`` are absent where there is no interval."""

    label: str
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Line:
    """One curve. Points are (load, value, low, high)."""

    label: str
    points: tuple[tuple[float, float, float | None, float | None], ...]


def ratio_chart(title: str, bars: Sequence[Bar]) -> str:
    """Ratios on a logarithmic scale around 1, which is drawn as a line: left of it is less."""
    ends = [end for bar in bars for end in (bar.value, bar.low, bar.high, 1.0) if end and end > 0]
    low, high = min(ends) / 1.05, max(ends) * 1.05
    inner = WIDTH - _LEFT - _RIGHT
    height = _TOP + _ROW * len(bars) + _BOTTOM

    def x(value: float) -> float:
        return _LEFT + inner * math.log(value / low) / math.log(high / low)

    parts = [_begin(title, height)]
    for tick in _ratio_ticks(low, high):
        parts.append(_upright(x(tick), _TOP, height - _BOTTOM, "1.5" if tick == 1 else "0.5"))
        parts.append(_text(x(tick), height - _BOTTOM + 16, f"{tick:g}", "middle"))
    for number, bar in enumerate(bars):
        y = _TOP + _ROW * number + _ROW / 2
        parts.append(_text(_LEFT - 10, y + 4, bar.label, "end"))
        if bar.low is not None and bar.high is not None:
            parts.append(
                f'<line x1="{x(bar.low):.1f}" x2="{x(bar.high):.1f}" y1="{y}" y2="{y}" '
                f'stroke="{_COLOURS[0]}" stroke-width="3"/>'
            )
        parts.append(f'<circle cx="{x(bar.value):.1f}" cy="{y}" r="4.5" fill="{_COLOURS[0]}"/>')
        parts.append(_text(WIDTH - _RIGHT + 10, y + 4, f"{bar.value:.3f}", "start"))
    return "\n".join([*parts, "</svg>"])


def load_chart(title: str, unit: str, lines: Sequence[Line]) -> str:
    """Values over the load, which is on a logarithmic scale."""
    points = [point for line in lines for point in line.points]
    loads = sorted({point[0] for point in points})
    ends = [end for point in points for end in point[1:] if end is not None]
    low, high = min([*ends, 1.0]), max(ends) * 1.05
    height, left = 340, 60
    inner, tall = WIDTH - left - 170, height - _TOP - _BOTTOM
    span = math.log(loads[-1] / loads[0]) or 1.0

    def x(load: float) -> float:
        return left + (inner * math.log(load / loads[0]) / span if len(loads) > 1 else inner / 2)

    def y(value: float) -> float:
        return _TOP + tall * (high - value) / ((high - low) or 1.0)

    parts = [_begin(title, height)]
    for load in loads:
        parts.append(_upright(x(load), _TOP, height - _BOTTOM, "0.5"))
        parts.append(_text(x(load), height - _BOTTOM + 16, f"{load:g}", "middle"))
    parts.append(_text(left + inner / 2, height - 6, "requests at a time", "middle"))
    for step in range(5):
        value = low + (high - low) * step / 4
        parts.append(_text(left - 8, y(value) + 4, f"{value:.2f}", "end"))
        parts.append(
            f'<line x1="{left}" x2="{left + inner}" y1="{y(value):.1f}" y2="{y(value):.1f}" '
            'stroke="currentColor" stroke-opacity="0.2"/>'
        )
    parts.append(_text(left, _TOP - 4, unit, "start"))
    for number, line in enumerate(lines):
        parts += _line_parts(line, number, x, y, WIDTH - 160)
    return "\n".join([*parts, "</svg>"])


def _line_parts(line: Line, number: int, x: Scale, y: Scale, legend_x: float) -> list[str]:
    colour, dash = _COLOURS[number % len(_COLOURS)], _DASHES[number % len(_DASHES)]
    style = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}" fill="none"'
    path = " ".join(f"{x(point[0]):.1f},{y(point[1]):.1f}" for point in line.points)
    parts = [f'<polyline points="{path}" {style}/>']
    for load, value, low, high in line.points:
        parts.append(f'<circle cx="{x(load):.1f}" cy="{y(value):.1f}" r="3.5" fill="{colour}"/>')
        if low is not None and high is not None:
            parts.append(
                f'<line x1="{x(load):.1f}" x2="{x(load):.1f}" y1="{y(low):.1f}" '
                f'y2="{y(high):.1f}" stroke="{colour}" stroke-opacity="0.6"/>'
            )
    at = _TOP + 14 + 20 * number
    parts.append(f'<line x1="{legend_x}" x2="{legend_x + 30}" y1="{at}" y2="{at}" {style}/>')
    parts.append(_text(legend_x + 38, at + 4, line.label, "start"))
    return parts


def _ratio_ticks(low: float, high: float) -> list[float]:
    every = (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
    near = [tick for tick in every if low <= tick <= high]
    return near or [1.0]


def _begin(title: str, height: float) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" xmlns="http://www.w3.org/2000/svg" '
        f'font-size="12" font-family="system-ui, sans-serif" fill="currentColor">\n'
        f"<title>{escape(title)}</title>"
    )


def _upright(x: float, top: float, bottom: float, width: str) -> str:
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}" stroke="currentColor" '
        f'stroke-opacity="0.4" stroke-width="{width}"/>'
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
