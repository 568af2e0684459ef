"""A stored experiment as the row of a list: its verdict, its ratio, what it is about. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.ink import Span, clean
from specpanel.app.tui.lab_verdict import word_span
from specpanel.core.speculation.schedule_search import spoken

if TYPE_CHECKING:
    from specpanel.core.lab.store import Experiment

Table = Mapping[str, Any]
KIND_WORDS = {
    "compare": "compare",
    "breakeven": "break-even",
    "tune": "schedule",
    "parity": "parity",
    "run": "run",
    "guidellm": "guidellm",
}
STARTING: Span = ("starting", "warn")
_STATES: dict[str, tuple[str, str]] = {
    "running": ("serving", "good"),
    "done": ("good", "muted"),
    "interrupted": ("warning", "warn"),
    "failed": ("exited", "bad"),
    "abandoned": ("warning", "warn"),
}
_SHOWN_INKS = {"better": "good", "worse": "bad", "no difference shown": "muted", "unknown": "muted"}


@dataclass(frozen=True, slots=True)
class Brief:
    """``said`` is the verdict, ``figures`` a ratio or what takes its place, with ``ends`` its interval."""

    said: Span
    figures: str
    value: float | None = None
    ends: tuple[float, float] | None = None
    ink: str = "text"


def state_span(state: str, glyphs: Glyphs) -> Span:
    sign, ink = _STATES.get(state, ("warning", "muted"))
    return f"{glyphs.states[sign]} {clean(state)}", ink


def shown_ink(shown: str) -> str:
    return _SHOWN_INKS.get(shown, "muted")


def brief(found: "Experiment", progress: Sequence[Table], glyphs: Glyphs) -> Brief:
    """What the experiment shows, or how it stands."""
    if found.state == "running":
        return _on_its_way(progress)
    if found.result is None:
        return Brief(("-", "muted"), "")
    try:
        return _BRIEFS.get(found.kind, _other)(found.result, glyphs)
    except (KeyError, TypeError, IndexError, ValueError):
        return Brief(("?", "muted"), "not readable by this version")


def _on_its_way(progress: Sequence[Table]) -> Brief:
    if not progress:
        return Brief(STARTING, "")
    last = progress[-1]
    if last.get("kind") != "block":
        return Brief(("measuring", "warn"), f"{len(progress)} points")
    ratio = next(iter((last.get("ratios") or {}).values()), None)
    half = next(iter((last.get("half_widths") or {}).values()), None)
    block = f"block {last.get('block')}"
    if ratio is None:
        return Brief(("measuring", "warn"), block)
    known = "" if half is None else f" ±{half:.1%}"
    ends = None if half is None else (ratio / (1 + half), ratio * (1 + half))
    return Brief(("measuring", "warn"), f"{ratio:.3f}{known}, {block}", ratio, ends, "warn")


def _compare(result: Table, glyphs: Glyphs) -> Brief:
    pairing = result["pairings"][0]
    tpot = pairing["overall"][0]
    said = (
        word_span(pairing["word"], glyphs)
        if pairing.get("word")
        else (clean(tpot["shown"]), shown_ink(tpot["shown"]))
    )
    return _ratio(said, tpot["value"], tpot["interval"], glyphs)


def _ratio(said: Span, value: float | None, between: Table | None, glyphs: Glyphs) -> Brief:
    if value is None:
        return Brief(said, "n/a")
    if between is None:
        return Brief(said, f"{value:.3f}", value, None, said[1])
    dots = ".." if glyphs.name == "ascii" else "…"
    text = f"{value:.3f} ({between['low']:.2f} {dots} {between['high']:.2f})"
    return Brief(said, text, value, (between["low"], between["high"]), said[1])


def _breakeven(result: Table, glyphs: Glyphs) -> Brief:
    points = result["points"]
    if not points:
        return Brief(("-", "muted"), "")
    loads = sorted({point["concurrency"] for point in points})
    cheapest = {
        load: min(p["required_length"] for p in points if p["concurrency"] == load)
        for load in (loads[0], loads[-1])
    }
    needs = ", ".join(f"{length:.2f} at {load}" for load, length in cheapest.items())
    return Brief(("needs AL", "text"), needs)


def _tune(result: Table, glyphs: Glyphs) -> Brief:
    return Brief(("schedule", "text"), clean(spoken(result["words"])))


def _parity(result: Table, glyphs: Glyphs) -> Brief:
    features = result["features"]
    same = (
        f"{sum(one['identical'] for one in features)} of {sum(one['compared'] for one in features)}"
    )
    if result["lossless"]:
        return Brief((f"{glyphs.states['good']} lossless", "good"), f"{same} identical")
    return Brief((f"{glyphs.states['exited']} differs", "bad"), f"{same} identical")


def _run(result: Table, glyphs: Glyphs) -> Brief:
    verdict = result["verdict"]
    said = word_span(verdict["word"], glyphs)
    speed = result["legs"][-1]["output_tokens_per_s"] if result["legs"] else None
    if verdict.get("ratio") is None:
        return Brief(said, "" if speed is None else f"{speed:.1f} tok/s")
    return _ratio(said, verdict["ratio"], verdict["interval"], glyphs)


def _guidellm(result: Table, glyphs: Glyphs) -> Brief:
    ends = (result["points"][0], result["points"][-1])
    lengths = [
        f"{point['acceptance_length']:.2f} at {point['concurrency']}"
        for point in ends
        if point["acceptance_length"] is not None
    ]
    return Brief(("AL", "text"), ", ".join(dict.fromkeys(lengths)) or "n/a")


def _other(result: Table, glyphs: Glyphs) -> Brief:
    return Brief(("done", "muted"), "")


_BRIEFS = {
    "compare": _compare,
    "breakeven": _breakeven,
    "tune": _tune,
    "parity": _parity,
    "run": _run,
    "guidellm": _guidellm,
}
