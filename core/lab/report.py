"""An experiment as one HTML file that needs nothing else: no script, no network, charts as SVG. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

from specpanel.core.lab.store import Experiment
from specpanel.core.lab.svg import Bar, Line, load_chart, ratio_chart
from specpanel.core.speculation.schedule_search import spoken

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { border: 1px solid #8886; padding: .25rem .6rem; text-align: left; }
svg { width: 100%; height: auto; }
.conclusion { font-size: 1.15rem; border-left: 4px solid #0b6fa4; padding-left: .8rem; }
.wide { overflow-x: auto; }
"""
# The page may load nothing and run nothing, whatever a text in it tries.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

Table = Mapping[str, Any]


def report(found: Experiment) -> str:
    """The whole page."""
    return "\n".join(_page(found)) + "\n"


def _page(found: Experiment) -> Iterator[str]:
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(found.id)}</title><style>{_STYLE}</style></head><body>"
    yield f"<h1>{escape(found.title)}</h1>"
    yield f'<p class="conclusion">{escape(found.conclusion or found.state)}</p>'
    yield f"<p>{escape(found.kind)}, {escape(found.id)}, {escape(found.state)}</p>"
    result = found.result or {}
    yield from _SECTIONS.get(found.kind, _nothing)(result)
    notes = result.get("notes", ())
    if notes:
        yield "<h2>Notes</h2><ul>"
        yield from (f"<li>{escape(str(note))}</li>" for note in notes)
        yield "</ul>"
    yield "<h2>Environment</h2>"
    yield from _table(("", ""), found.environment.items())
    yield "<h2>Settings</h2>"
    yield from _table(("", ""), found.settings.items())
    yield "</body></html>"


def _nothing(result: Table) -> Iterator[str]:
    yield from ()


def _compare(result: Table) -> Iterator[str]:
    for pairing in result.get("pairings", ()):
        title = f"{pairing['b']} against {pairing['a']}"
        yield f"<h2>{escape(title)}</h2>"
        figures = [("all prompts", each) for each in pairing["overall"]]
        figures += [(kind, each) for kind, some in pairing["by_class"].items() for each in some]
        bars = [
            Bar(f"{each['figure']}, {kind}", each["value"], *_ends(each["interval"]))
            for kind, each in figures
            if not each["is_difference"] and each["value"]
        ]
        if bars:
            yield ratio_chart(f"{title}: ratios with 95 % intervals; 1 is no difference", bars)
        yield from _table(
            ("prompts", "figure", "before", "after", "ratio or difference", "95 %", "shown"),
            (
                (
                    *(kind, f"{each['figure']} {each['unit']}".strip(), each["a"], each["b"]),
                    *(each["value"], each["interval"], each["shown"]),
                )
                for kind, each in figures
            ),
        )
        yield "<h3>What differs</h3>"
        yield from _table(
            ("setting", "before", "after"),
            ((each["setting"], each["before"], each["after"]) for each in pairing["differs"]),
        )
    yield "<h2>Cost</h2>"
    yield from _table(
        (
            "",
            "tok/s",
            "device seconds a thousand tokens",
            "joules a thousand tokens",
            "rejected tokens a second",
        ),
        (
            (
                *(arm["arm"], arm["cost"]["tokens_per_s"]),
                *(arm["cost"]["device_s_per_1000_tokens"], _energy(arm["cost"])),
                arm["cost"]["rejected_tokens_per_s"],
            )
            for arm in result.get("arms", ())
        ),
    )


def _energy(cost: Table) -> object:
    """The figure, or why there is none."""
    joules = cost["joules_per_1000_tokens"]
    return f"n/a: {cost.get('energy_absent') or 'not known'}" if joules is None else joules


def _breakeven(result: Table) -> Iterator[str]:
    points = result.get("points", ())
    lines = [
        Line(
            f"needed, K={k}",
            tuple(
                (p["concurrency"], p["required_length"], *_ends(p["required_interval"]))
                for p in points
                if p["k"] == k
            ),
        )
        for k in sorted({point["k"] for point in points})
    ]
    reached = tuple(
        (point["concurrency"], point["length"], None, None)
        for point in result.get("real", ())
        if point.get("length")
    )
    if reached:
        lines.append(Line(f"AL of {result.get('drafter', '')}", reached))
    if points:
        yield "<h2>Acceptance length that is needed</h2>"
        yield load_chart("Acceptance length above which speculation pays, by load", "AL", lines)
        yield from _columns(_POINT, points)
    real = result.get("real", ())
    if real:
        yield "<h2>The drafter itself</h2>"
        yield from _columns(_REAL, real)
    held = result.get("holdouts", ())
    if held:
        yield "<h2>Loads foretold from their neighbours</h2>"
        yield from _columns(_HELD, held)


# The key of a column in a result, and its heading.
_POINT = {
    "concurrency": "at a time",
    "k": "K",
    "plain_step_ms": "plain step, ms",
    "step_ms": "step, ms",
    "required_length": "AL needed",
    "required_interval": "95 %",
    "measured_length": "AL it was measured at",
}
_REAL = {
    "concurrency": "at a time",
    "k": "K",
    "length": "AL",
    "tokens_a_step": "tokens a step",
    "tpot_ratio": "time per output token, ratio",
    "tpot_ratio_interval": "95 %",
}
_HELD = {
    "concurrency": "at a time",
    "k": "K",
    "foretold": "AL foretold",
    "measured": "AL measured",
    "error": "error",
}
_SWEEP = {
    "concurrency": "at a time",
    "requests": "requests",
    "errored": "failed",
    "acceptance_length": "AL",
    "acceptance_length_interval": "95 %",
    "counted_length": "AL by the counters",
    "tokens_a_step": "tokens a step",
    "tpot_p50_ms": "TPOT p50, ms",
    "tpot_p99_ms": "TPOT p99, ms",
    "itl_p50_ms": "ITL p50, ms",
    "itl_p99_ms": "ITL p99, ms",
    "ttft_p50_ms": "TTFT p50, ms",
    "ttft_p99_ms": "TTFT p99, ms",
    "output_tokens_per_s": "tok/s",
}
_CHOICE = {
    "concurrency": "at a time",
    "k": "K",
    "ratio": "foretold ratio to plain decoding",
    "fixed_ratio": "ratio of the profile's own K",
    "why": "why",
}


def _columns(heads: Mapping[str, str], rows: Iterable[Table]) -> Iterator[str]:
    """Some keys of each row, under headings that a person reads."""
    yield from _table(tuple(heads.values()), ([row.get(key) for key in heads] for row in rows))


def _tune(result: Table) -> Iterator[str]:
    yield f"<h2>K by batch size</h2><p>{escape(spoken(result.get('words', ())))}</p>"
    bars = [
        Bar(f"K={one['k']} at {one['concurrency']}", one["ratio"], *_ends(one["interval"]))
        for one in result.get("candidates", ())
        if one["k"]
    ]
    if bars:
        yield ratio_chart("Foretold time per output token over that of plain decoding", bars)
    yield from _columns(_CHOICE, result.get("choices", ()))
    yield f"<p>From {escape(str(result.get('experiment')))}</p>"


def _run(result: Table) -> Iterator[str]:
    yield "<h2>Measured</h2>"
    yield from _table(
        ("drafter", "K", "requests", "tok/s", "time per output token p50, ms", "AL"),
        (
            (
                *(leg["drafter"], leg["draft_tokens"], leg["requests"] - leg["failed"]),
                leg["output_tokens_per_s"],
                next((each["value_ms"] for each in leg["tpot_ms"] if each["share"] == 0.5), None),
                (leg["acceptance"] or {}).get("acceptance_length"),
            )
            for leg in result.get("legs", ())
        ),
    )


def _parity(result: Table) -> Iterator[str]:
    yield "<h2>Answers compared</h2>"
    itself = [result["itself"]] if result.get("itself") else []
    yield from _table(
        ("feature", "compared", "identical", "ties", "differ", "not known"),
        (
            (
                *(each["feature"], each["compared"], each["identical"], each["ties"]),
                *(each["real"], each["unknown"]),
            )
            for each in [*itself, *result.get("features", ())]
        ),
    )


def _guidellm(result: Table) -> Iterator[str]:
    points = result.get("points", ())
    lengths = tuple(
        (
            *(point["concurrency"], point["acceptance_length"]),
            *_ends(point["acceptance_length_interval"]),
        )
        for point in points
        if point["acceptance_length"]
    )
    if lengths:
        yield "<h2>Acceptance length by load</h2>"
        yield load_chart(
            "Acceptance length by load, with 95 % intervals",
            "AL",
            [Line(f"AL of {result['drafter']}", lengths)],
        )
    yield "<h2>guidellm's latencies beside vLLM's acceptance</h2>"
    yield from _columns(_SWEEP, points)


_SECTIONS = {
    "guidellm": _guidellm,
    "compare": _compare,
    "breakeven": _breakeven,
    "parity": _parity,
    "tune": _tune,
    "run": _run,
}


def _ends(interval: Table | None) -> tuple[float | None, float | None]:
    return (None, None) if interval is None else (interval["low"], interval["high"])


def _table(head: tuple[str, ...], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    yield '<div class="wide"><table>'
    if any(head):
        yield "<tr>" + "".join(f"<th>{escape(str(name))}</th>" for name in head) + "</tr>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{escape(_cell(value))}</td>" for value in row) + "</tr>"
    yield "</table></div>"


def _cell(value: object) -> str:
    if value is None:
        return "n/a"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        if {"low", "high"} <= value.keys():
            return f"{value['low']:.3f} … {value['high']:.3f}"
        return ", ".join(f"{key}: {_cell(each)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_cell(each) for each in value)
    return str(value)
