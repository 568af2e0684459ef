"""Acceptance by draft position as horizontal bars, each with its 95 % interval drawn over its end."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.ink import Line, fit, text_of

if TYPE_CHECKING:
    from specpanel.core.monitor.frame import Interval, PositionRate

_LABEL_CELLS = 4
_FIGURE_CELLS = 21  # "  91.2 %  88.1 – 93.6"
_SHORT_FIGURE_CELLS = 8


def bar_lines(
    positions: Sequence["PositionRate"],
    width: int,
    height: int,
    *,
    conditional: bool = False,
    glyphs: Glyphs = BRAILLE,
) -> list[Line]:
    """``height`` rows of ``width`` cells; as many positions as fit, spaced out where there is room."""
    if width < 16 or height < 1:
        return [fit((), max(0, width)) for _ in range(max(0, height))]
    rows: list[Line] = []
    shown = list(positions[:height])
    if len(positions) > height:
        shown = list(positions[: max(0, height - 1)])
    gap = 1 if len(shown) * 2 - 1 <= height else 0
    if len(shown) * 2 + 1 <= height:
        rows.append(fit((), width))
    for position in shown:
        rows.append(_bar_row(position, width, conditional=conditional, glyphs=glyphs))
        if len(rows) < height:
            rows.extend(fit((), width) for _ in range(gap))
    hidden = len(positions) - len(shown)
    if hidden:
        rows.append(fit(((f"     {hidden} more positions: z zooms", "muted"),), width))
    rows.extend(fit((), width) for _ in range(height - len(rows)))
    if gap and text_of(rows[height - 1]).strip() == "" and text_of(rows[height - 2]).strip() == "":
        line = f"{glyphs.whisker[0]}{glyphs.whisker[1] * 2}{glyphs.whisker[2]}"
        rows[height - 1] = fit(((f"    {line} 95 % interval", "muted"),), width)
    return rows[:height]


def _bar_row(position: "PositionRate", width: int, *, conditional: bool, glyphs: Glyphs) -> Line:
    rate = position.conditional if conditional else position.rate
    label = (f"{position.position:>3} ", "muted")
    if rate is None:
        reason = "n/a (nothing accepted at the position before)" if conditional else "n/a"
        return fit((label, (reason, "muted")), width, glyphs.ellipsis)
    long = width >= 44
    figures = _FIGURE_CELLS if long else _SHORT_FIGURE_CELLS
    bar = _bar(rate, width - _LABEL_CELLS - figures - 1, glyphs)
    dash = "–" if glyphs.name != "ascii" else "-"
    spans = [label, *bar, (f" {rate.estimate * 100:5.1f} %", "strong")]
    if long:
        spans.append((f"  {rate.low * 100:4.1f} {dash} {rate.high * 100:4.1f}", "muted"))
    return fit(spans, width, glyphs.ellipsis)


def _bar(rate: "Interval", cells: int, glyphs: Glyphs) -> list[tuple[str, str]]:
    """The bar up to the estimate; from the low end of the interval on a thin line runs over it."""
    steps = len(glyphs.bar)
    eighths = round(_clamped(rate.estimate) * cells * steps)
    full, part = divmod(eighths, steps)
    low = min(full, int(_clamped(rate.low) * cells))
    high = min(cells, round(_clamped(rate.high) * cells))
    spans: list[tuple[str, str]] = [(glyphs.bar[-1] * low, "bar")]
    inside = full - low
    if inside > 0:
        spans.append((_whisker(glyphs.whisker[0], inside, glyphs.bar_low), "bar-interval"))
    used = full
    if part:
        spans.append((glyphs.bar[part - 1], "bar"))
        used += 1
    outside = high - used
    if outside > 0:
        tail = glyphs.whisker[1] * (outside - 1) + glyphs.whisker[2]
        spans.append((tail, "interval"))
        used = high
    spans.append((glyphs.bar_track * max(0, cells - used), "grid"))
    return [span for span in spans if span[0]]


def _whisker(first: str, cells: int, middle: str) -> str:
    return first + middle * (cells - 1)


def _clamped(value: float) -> float:
    return min(1.0, max(0.0, value))
