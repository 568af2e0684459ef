"""One stored experiment whole: figures with whiskers, curves, schedules, and how a running one stands."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specpanel.app.run_words import duration_text, started_text
from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.ink import Line, Span, clean, fit, width_of, wrap
from specpanel.app.tui.lab_charts import (
    Point,
    RatioScale,
    breakeven_rows,
    required_points,
    whisker,
)
from specpanel.app.tui.lab_words import shown_ink, state_span
from specpanel.app.tui.widgets.pane import Pane
from specpanel.core.speculation.schedule_search import spoken

if TYPE_CHECKING:
    from specpanel.core.lab.store import Experiment

Table = Mapping[str, Any]
_NAME = 24
_RATIO = 8
_ENDS = 16
_FEWEST_WHISKER, _MOST_WHISKER = 13, 41
_BLOCKS_SHOWN = 8
_FEWEST_CHART, _MOST_CHART, _BESIDE_CHART = 12, 20, 13
_PLAIN = str.maketrans({"…": "..", "→": "->", "–": "-", "×": "x", "±": "+/-"})


class LabDetail(Pane):
    """Shows the chosen experiment; longer ones scroll."""

    def __init__(self, *, glyphs: Glyphs = BRAILLE) -> None:
        super().__init__("Result", glyphs=glyphs, id="lab-detail")
        self._found: Experiment | None = None
        self._progress: Sequence[Table] = ()
        self._servers = 0
        self.now: Point | None = None
        self._first = 0
        self._more = 0
        self._inside: list[Line] = []

    def show(self, found: "Experiment | None", progress: Sequence[Table], servers: int) -> None:
        """``servers`` is how many of a running one answer."""
        if found is None or self._found is None or found.id != self._found.id:
            self._first = 0
        self._found, self._progress, self._servers = found, progress, servers
        self.redraw()

    def scroll_rows(self, rows: int) -> bool:
        """Further down or up; whether that went anywhere."""
        before = self._first
        self._first = max(0, min(self._first + rows, self._first + self._more))
        self.redraw()
        return self._first != before

    def legend(self) -> Line:
        if self._more or self._first:
            return ((f"{self._first} rows above, {self._more} below", "muted"),)
        return ()

    def compose_rows(self, width: int, height: int) -> Sequence[Line]:
        # What is inside first: the title tells how much of it is seen.
        inner_width, inner_height = self.inside_size()
        rows = self._all_rows(inner_width, inner_height)
        self._first = max(0, min(self._first, len(rows) - inner_height))
        self._more = max(0, len(rows) - inner_height - self._first)
        self._inside = rows[self._first : self._first + inner_height]
        return super().compose_rows(width, height)

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        return self._inside

    def _all_rows(self, width: int, height: int) -> list[Line]:
        if self._found is None:
            return []
        try:
            chart = max(_FEWEST_CHART, min(_MOST_CHART, height - _BESIDE_CHART))
            shown = (self._found, self._progress, self._servers, self.now)
            rows = list(detail_rows(*shown, width, self.glyphs, chart))
        except (KeyError, TypeError, IndexError, ValueError):
            rows = [((" this version cannot read what was found", "bad"),)]
        if self.glyphs.name == "ascii":
            rows = [tuple((text.translate(_PLAIN), ink) for text, ink in row) for row in rows]
        return rows


def detail_rows(
    found: "Experiment",
    progress: Sequence[Table],
    servers: int,
    now: Point | None,
    width: int,
    glyphs: Glyphs,
    chart_rows: int = _FEWEST_CHART,
) -> Iterator[Line]:
    """Everything about an experiment, row by row."""
    took = None if found.ended_unix is None else found.ended_unix - found.started_unix
    when = started_text(found.started_unix, "%Y-%m-%d %H:%M")
    head: Line = (
        (f" {clean(found.title)}  ", "strong"),
        state_span(found.state, glyphs),
        (f"  {when}" + ("" if took is None else f", {duration_text(took)}"), "muted"),
    )
    yield head
    if found.conclusion:
        yield from _wrapped(found.conclusion, width, "text")
    if found.state == "running":
        yield from _running(progress, servers, width, glyphs)
        return
    result = found.result
    if result is not None:
        if found.kind == "breakeven":
            yield from _breakeven(result, now, width, glyphs, chart_rows)
        else:
            yield from _KINDS.get(found.kind, _nothing)(result, width, glyphs)
        for note in result.get("notes", ()):
            yield from _wrapped(f"note: {note}", width, "muted")
    yield from _around(found, width)


def _nothing(result: Table, width: int, glyphs: Glyphs) -> Iterator[Line]:
    yield from ()


def _wrapped(text: str, width: int, ink: str) -> Iterator[Line]:
    for part in wrap(clean(text), max(10, width - 2)):
        yield ((f" {part}", ink),)


def _fact(label: str, text: str, width: int, ink: str = "text") -> Iterator[Line]:
    for number, part in enumerate(wrap(clean(text), max(10, width - _NAME - 2))):
        name = fit(((f" {clean(label) if number == 0 else ''}", "muted"),), _NAME - 1)
        yield (*name, (" ", "text"), (part, ink))


def _around(found: "Experiment", width: int) -> Iterator[Line]:
    around = found.environment
    parts = (
        around.get("platform"),
        around.get("processor"),
        f"{around['cores']} cores" if around.get("cores") else None,
        f"vLLM {around['vllm_version']}" if around.get("vllm_version") else None,
    )
    yield from _fact("measured on", ", ".join(str(part) for part in parts if part), width, "muted")
    yield from _fact("name", found.id, width, "muted")


# -- a running one ----------------------------------------------------------------------------


def _running(progress: Sequence[Table], servers: int, width: int, glyphs: Glyphs) -> Iterator[Line]:
    if not progress:
        word = "no server" if servers == 0 else "1 server" if servers == 1 else f"{servers} servers"
        yield ((f" {word} up so far; nothing is measured yet", "warn"),)
        return
    blocks = [told for told in progress if told.get("kind") == "block"]
    for told in progress:
        if told.get("kind") == "point":
            yield from _wrapped(told["text"], width, "text")
    if not blocks:
        return
    for arm in blocks[-1]["ratios"]:
        yield ((f" {clean(arm)}: time per output token, block by block", "muted"),)
        shown = blocks[-_BLOCKS_SHOWN:]
        ends = [_ends(told, arm) for told in shown]
        scale = RatioScale.over([end for pair in ends if pair for end in pair] or [1.0])
        for told, pair in zip(shown, ends, strict=True):
            value, half = told["ratios"][arm], told["half_widths"].get(arm)
            cells = _whisker_cells(width)
            text = "n/a" if value is None else f"{value:.3f}"
            known = "" if half is None else f"±{half:.1%}"
            name = f"block {told['block']}, {told['elapsed_s']:.0f} s"
            low, high = pair or (None, None)
            newest = told is shown[-1]
            yield (
                *fit(((f"   {name}", "text" if newest else "muted"),), _NAME),
                *fit(((text, "strong" if newest else "text"),), _RATIO),
                *fit(((known, "text"),), _ENDS),
                *whisker(value, low, high, scale, cells, glyphs, "warn" if newest else "muted"),
            )


def _ends(told: Table, arm: str) -> tuple[float, float] | None:
    value, half = told["ratios"].get(arm), told["half_widths"].get(arm)
    return None if value is None or half is None else (value / (1 + half), value * (1 + half))


def _whisker_cells(width: int) -> int:
    room = width - _NAME - _RATIO - _ENDS - 2
    return max(_FEWEST_WHISKER, min(_MOST_WHISKER, room))


# -- the kinds --------------------------------------------------------------------------------


def _compare(result: Table, width: int, glyphs: Glyphs) -> Iterator[Line]:
    yield from _fact(
        "measured",
        f"{result['blocks']} blocks of {result['block_prompts']} prompts, {result['concurrency']} at a "
        f"time, {result['elapsed_s']:.0f} s, {result['arrangement']}; {result['stopped']}",
        width,
        "muted",
    )
    for pairing in result["pairings"]:
        yield ((f" {clean(pairing['b'])} against {clean(pairing['a'])}", "brand"),)
        yield from _pairing(pairing, width, glyphs)
        if len(starts := pairing.get("by_start", ())) > 1:
            ratios = " · ".join(f"{value:.3f}" for value in starts)
            yield from _fact("in each start", ratios, width, "muted")
        changes = ", ".join(
            f"{change['setting']} {change['before']} → {change['after']}"
            for change in pairing["differs"]
        )
        yield from _fact("differs", changes or "nothing", width, "muted")
    yield from _costs(result["arms"], width)


def _pairing(pairing: Table, width: int, glyphs: Glyphs) -> Iterator[Line]:
    rows: list[tuple[str, Table]] = [(each["figure"], each) for each in pairing["overall"]]
    rows[1:1] = [(f"  {kind}", each[0]) for kind, each in pairing["by_class"].items()]
    ends = [end for _, each in rows if not each["is_difference"] for end in _all_ends(each)]
    scale = RatioScale.over(ends)
    cells = _whisker_cells(width - 22 if width >= 100 else width)
    for name, each in rows:
        yield _figure(name, each, scale, cells, width, glyphs)


def _all_ends(each: Table) -> list[float]:
    between = each["interval"] or {}
    return [end for end in (each["value"], between.get("low"), between.get("high")) if end]


def _figure(
    name: str, each: Table, scale: RatioScale, cells: int, width: int, glyphs: Glyphs
) -> Line:
    label = fit(((f" {clean(name)}", "muted"),), _NAME, glyphs.ellipsis)
    if each["value"] is None:
        return (*label, ("n/a ", "muted"), (f"({clean(each['absent'] or '')})", "muted"))
    digits, between = (2, each["interval"]) if each["is_difference"] else (3, each["interval"])
    ink = shown_ink(each["shown"])
    value = f"{each['value']:+.2f}" if each["is_difference"] else f"{each['value']:.3f}"
    ends = "" if between is None else f"{between['low']:.{digits}f} … {between['high']:.{digits}f}"
    row: list[Span] = [
        *label,
        *fit(((value, "strong"),), _RATIO),
        *fit(((ends, "text"),), _ENDS),
    ]
    if each["is_difference"]:
        row.append((" " * cells, "text"))
    else:
        low, high = (None, None) if between is None else (between["low"], between["high"])
        row += whisker(each["value"], low, high, scale, cells, glyphs, ink)
    if each["a"] is not None and each["b"] is not None:
        sides: Span = (f"  {each['a']:.4g} → {each['b']:.4g} {each['unit']}", "muted")
        if width_of((*row, sides)) <= width:
            row.append(sides)
    return tuple(row)


def _costs(arms: Sequence[Table], width: int) -> Iterator[Line]:
    for arm in arms:
        cost = arm["cost"]
        parts = []
        if cost["tokens_per_s"] is not None:
            parts.append(f"{cost['tokens_per_s']:.1f} tok/s")
        if cost["device_s_per_1000_tokens"] is not None:
            parts.append(f"{cost['device_s_per_1000_tokens']:.1f} device s a thousand tokens")
        if cost["joules_per_1000_tokens"] is not None:
            parts.append(f"{cost['joules_per_1000_tokens']:.0f} J a thousand")
        else:
            parts.append(f"J n/a: {cost['energy_absent']}")
        if cost["rejected_tokens_per_s"] is not None:
            parts.append(f"{cost['rejected_tokens_per_s']:.1f} drafts a second rejected")
        if arm.get("acceptance_length") is not None:
            parts.insert(0, f"AL {arm['acceptance_length']:.2f}")
        yield from _fact(f"cost of {arm['arm']}", ", ".join(parts), width)


def _breakeven(
    result: Table, now: Point | None, width: int, glyphs: Glyphs, chart_rows: int
) -> Iterator[Line]:
    reached = [
        Point(point["concurrency"], point["length"])
        for point in result.get("real", ())
        if point.get("length")
    ]
    curves = required_points(result)
    yield from breakeven_rows(curves, reached, now, min(width, 110), chart_rows, glyphs)
    for load in sorted({point.load for curve in curves.values() for point in curve}):
        parts = []
        for k, curve in curves.items():
            point = next((one for one in curve if one.load == load), None)
            if point is not None:
                ends = "" if point.low is None else f" ({point.low:.2f} … {point.high:.2f})"
                parts.append(f"K={k} {point.length:.2f}{ends}")
        yield from _fact(f"needed at {load:g}", ", ".join(parts), width)
    for point in result.get("real", ()):
        ratio = "n/a" if point["tpot_ratio"] is None else f"{point['tpot_ratio']:.3f} ×"
        length = "n/a" if point["length"] is None else f"{point['length']:.2f}"
        between = point["tpot_ratio_interval"]
        ends = "" if between is None else f" ({between['low']:.2f} … {between['high']:.2f})"
        text = f"AL {length}, time per output token {ratio}{ends}"
        yield from _fact(f"{result['drafter']} at {point['concurrency']}", text, width)
    for held in result.get("holdouts", ()):
        text = (
            f"K={held['k']}: {held['foretold']:.2f} from its neighbours, measured "
            f"{held['measured']:.2f} ({held['error']:+.1%})"
        )
        yield from _fact(f"foretold at {held['concurrency']}", text, width, "muted")


def _tune(result: Table, width: int, glyphs: Glyphs) -> Iterator[Line]:
    yield from _fact("schedule", clean(spoken(result["words"])), width, "strong")
    for choice in result["choices"]:
        own = choice["fixed_ratio"]
        beside = "" if own is None else f", K={result['fixed_k']} would be {own:.2f}"
        text = f"K={choice['k']}: foretold {choice['ratio']:.2f} × plain{beside} ({choice['why']})"
        yield from _fact(f"{choice['concurrency']} at a time", text, width)
    scale = RatioScale.over([one["ratio"] for one in result["candidates"]])
    for one in result["candidates"]:
        between = one["interval"] or {}
        low, high = between.get("low"), between.get("high")
        chosen = any(
            (one["concurrency"], one["k"]) == (each["concurrency"], each["k"])
            for each in result["choices"]
        )
        ends = "" if low is None else f"{low:.2f} … {high:.2f}"
        ink = "good" if chosen else "muted"
        yield (
            *fit(((f"   K={one['k']} at {one['concurrency']}", ink),), _NAME),
            *fit(((f"{one['ratio']:.3f}", "text"),), _RATIO),
            *fit(((ends, "text"),), _ENDS),
            *whisker(one["ratio"], low, high, scale, _whisker_cells(width), glyphs, ink),
        )
    yield from _fact("evidence", result["experiment"], width, "muted")
    yield from _fact("profile", result["profile"], width, "muted")


def _parity(result: Table, width: int, glyphs: Glyphs) -> Iterator[Line]:
    itself = [] if result["itself"] is None else [result["itself"]]
    for found in [*itself, *result["features"]]:
        rest = "".join(
            f", {found[key]} {word}"
            for key, word in (("ties", "ties"), ("real", "differ"), ("unknown", "not known"))
            if found[key]
        )
        text = f"{found['identical']} of {found['compared']} identical{rest}"
        yield from _fact(found["feature"], text, width, "bad" if found["real"] else "text")
        for parting in found["differences"]:
            gap = parting["gap_nats"]
            apart = "gap n/a" if gap is None else f"gap {gap:.4f} nats"
            words = f"{parting['kind']}: {parting['prompt_id']}, token {parting['place']}, {apart}"
            yield from _fact("", words, width, "muted")
    yield from _fact("a tie is", f"within {result['tolerance_nats']:g} nats", width, "muted")


def _run(result: Table, width: int, glyphs: Glyphs) -> Iterator[Line]:
    for leg in result["legs"]:
        k = f" K={leg['draft_tokens']}" if leg["draft_tokens"] else ""
        speed = leg["output_tokens_per_s"]
        parts = ["n/a" if speed is None else f"{speed:.1f} tok/s"]
        parts += [
            f"{name} p50 {each['value_ms']:.1f} ms"
            for name, key in (("TPOT", "tpot_ms"), ("TTFT", "ttft_ms"))
            for each in leg[key]
            if each["share"] == 0.5
        ]
        length = (leg["acceptance"] or {}).get("acceptance_length")
        if length is not None:
            parts.append(f"AL {length:.2f}")
        yield from _fact(f"{leg['drafter']}{k}", ", ".join(parts), width)


def _guidellm(result: Table, width: int, glyphs: Glyphs) -> Iterator[Line]:
    for point in result["points"]:
        length, between = point["acceptance_length"], point["acceptance_length_interval"]
        known = "" if between is None else f" ({between['low']:.2f} … {between['high']:.2f})"
        parts = ["AL n/a" if length is None else f"AL {length:.2f}{known}"]
        for name, key in (("ITL", "itl_p50_ms"), ("TTFT", "ttft_p50_ms")):
            value = point[key]
            parts.append(f"{name} n/a" if value is None else f"{name} {value:.1f} ms")
        speed = point["output_tokens_per_s"]
        parts.append("n/a tok/s" if speed is None else f"{speed:.1f} tok/s")
        yield from _fact(f"{point['concurrency']} at a time", ", ".join(parts), width)


_KINDS = {
    "compare": _compare,
    "guidellm": _guidellm,
    "parity": _parity,
    "run": _run,
    "tune": _tune,
}
