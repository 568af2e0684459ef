"""How a latency is spread: a bar a bucket of its histogram, from top to bottom. Pure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len

from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.figures import milliseconds
from specpanel.app.tui.ink import Line, Span, fit

if TYPE_CHECKING:
    from specpanel.core.monitor.frame import BucketCounts, Quantiles

_FEWEST_CELLS = 20
_PERCENT_CELLS = 6  # " 100 %"
_MARK_CELLS = 8  # " p50 p99"


def histogram_lines(
    buckets: "BucketCounts",
    quantiles: "Quantiles | None",
    width: int,
    height: int,
    *,
    glyphs: Glyphs = BRAILLE,
) -> list[Line]:
    """``height`` rows of ``width`` cells: bounds in ms, a bar, its share, and where p50 and p99 lie.

    Where there are more buckets than rows, neighbours share one.
    """
    blank = fit((), max(0, width))
    if not buckets or width < _FEWEST_CELLS or height < 1:
        return [blank] * max(0, height)
    shown = merged(buckets, height)
    labels = [_bounds(low, high, glyphs) for low, high, _ in shown]
    label_cells = max(map(cell_len, labels))
    total = sum(count for *_, count in shown)
    most = max(count for *_, count in shown)
    room = max(4, width - label_cells - 2 - _PERCENT_CELLS - _MARK_CELLS)
    rows: list[Line] = []
    for (low, high, count), label in zip(shown, labels, strict=True):
        pad = " " * (label_cells - cell_len(label))
        bar = _bar(count / most * room, room, glyphs)
        spans: list[Span] = [(f" {pad}{label} ", "muted"), *bar]
        spans.append((f"{count / total * 100:4.0f} %", "strong" if count else "muted"))
        spans.append((_marks(low, high, quantiles), "key"))
        rows.append(fit(spans, width, glyphs.ellipsis))
    above = (height - len(rows)) // 2
    return [*[blank] * above, *rows, *[blank] * (height - len(rows) - above)]


def merged(buckets: "BucketCounts", most: int) -> "BucketCounts":
    """At most ``most`` buckets: as many neighbours as it takes are added up, the same number each time."""
    step = -(-len(buckets) // most)
    parts = [buckets[at : at + step] for at in range(0, len(buckets), step)]
    return tuple((part[0][0], part[-1][1], sum(count for *_, count in part)) for part in parts)


def _bounds(low_ms: float, high_ms: float | None, glyphs: Glyphs) -> str:
    dash = "-" if glyphs.name == "ascii" else "–"
    if high_ms is None:
        return f"> {_number(low_ms)}"
    return f"{_number(low_ms)} {dash} {_number(high_ms)}"


def _number(value_ms: float) -> str:
    text = milliseconds(value_ms) if value_ms < 1 or value_ms >= 1000 else f"{value_ms:.4g}"
    return "0" if value_ms == 0 else text


def _bar(cells: float, room: int, glyphs: Glyphs) -> list[Span]:
    steps = len(glyphs.bar)
    full, part = divmod(round(cells * steps), steps)
    if cells > 0 and not full and not part:
        part = 1  # one observation in a thousand is seen all the same
    bar = glyphs.bar[-1] * full + (glyphs.bar[part - 1] if part else "")
    return [(bar, "bar"), (glyphs.bar_track * (room - len(bar)), "grid")]


def _marks(low_ms: float, high_ms: float | None, quantiles: "Quantiles | None") -> str:
    if quantiles is None:
        return ""
    told: Sequence[tuple[str, float]] = (
        ("p50", quantiles.p50.value_ms),
        ("p99", quantiles.p99.value_ms),
    )
    upper = float("inf") if high_ms is None else high_ms
    beyond = {"p50": quantiles.p50.beyond, "p99": quantiles.p99.beyond}
    return "".join(
        f" {name}"
        for name, value in told
        if (high_ms is None if beyond[name] else low_ms < value <= upper or value == low_ms == 0)
    )
