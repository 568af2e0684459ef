"""How the numbers of a Frame differ from those of the configuration before. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specpanel.app.tui.figures import grouped, milliseconds

if TYPE_CHECKING:
    from specpanel.app.tui.charts.glyphs import Glyphs
    from specpanel.app.tui.ink import Span
    from specpanel.core.monitor.frame import Frame, Quantiles


@dataclass(frozen=True, slots=True)
class _Compared:
    """A number of the strip, by its label there."""

    label: str
    value: Callable[["Frame"], float | None]
    shown: Callable[[float], str]
    more_is_better: bool


def _p50(quantiles: "Quantiles | None") -> float | None:
    return None if quantiles is None or quantiles.p50.beyond else quantiles.p50.value_ms


_COMPARED = (
    _Compared(
        "acceptance length",
        lambda frame: frame.speculation.acceptance_length if frame.speculation else None,
        lambda value: f"{value:.2f}",
        True,
    ),
    _Compared(
        "output",
        lambda frame: frame.engine.generation_tokens_per_s if frame.engine else None,
        grouped,
        True,
    ),
    _Compared(
        "TPOT p50 / p99",
        lambda frame: _p50(frame.latency.tpot) if frame.latency else None,
        milliseconds,
        False,
    ),
    _Compared(
        "TTFT p50 / p99",
        lambda frame: _p50(frame.latency.ttft) if frame.latency else None,
        milliseconds,
        False,
    ),
)


def changes(frame: "Frame | None", before: "Frame | None", glyphs: "Glyphs") -> dict[str, "Span"]:
    """The change of each number that both Frames have, by its label in the strip: ``▲0.42``."""
    if frame is None or before is None:
        return {}
    found: dict[str, Span] = {}
    for compared in _COMPARED:
        now, then = compared.value(frame), compared.value(before)
        if now is None or then is None:
            continue
        shown = compared.shown(abs(now - then))
        if not float(shown.replace(" ", "")):
            found[compared.label] = (f"={shown}", "muted")
            continue
        rose = now > then
        arrow = ("+" if rose else "-") if glyphs.name == "ascii" else ("▲" if rose else "▼")
        found[compared.label] = (
            f"{arrow}{shown}",
            "good" if rose == compared.more_is_better else "bad",
        )
    return found
