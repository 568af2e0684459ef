"""Experiments as plain text. Pure: reads the tables that the store holds."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from specpanel.app.run_words import duration_text, started_text
from specpanel.core.lab.curve import drafting_text
from specpanel.core.lab.events import BlockMeasured, PointProgress
from specpanel.core.lab.store import Experiment
from specpanel.core.monitor.frame import Interval
from specpanel.core.printable import one_line
from specpanel.core.speculation.schedule_search import spoken

_LABEL = 24
Table = Mapping[str, Any]


def block_line(event: BlockMeasured) -> str:
    """How the ratio stands after a block."""
    parts = []
    for arm, ratio in event.ratios.items():
        width = event.half_widths.get(arm)
        known = "" if width is None else f" ±{width:.1%}"
        parts.append(f"{arm} {'n/a' if ratio is None else f'{ratio:.3f}'}{known}")
    return f"{event.elapsed_s:5.0f} s  block {event.block}  {'   '.join(parts)}"


def progress_line(event: PointProgress) -> str:
    """How far a load of a sweep has got."""
    length = event.acceptance_length
    known = "" if length is None else f", AL {length:.2f} so far"
    return (
        f"{event.elapsed_s:5.0f} s  {event.done} of {event.requests} requests at "
        f"{event.concurrency} at a time{known}"
    )


def result_text(kind: str, result: Table | None, conclusion: str) -> str:
    """What an experiment found, for a person."""
    if result is None:
        return one_line(conclusion, 400)
    lines = _KINDS.get(kind, _any_lines)(result)
    return "\n".join([*lines, f"  {'conclusion':<{_LABEL}}{one_line(conclusion, 400)}"])


def row(label: str, text: str) -> str:
    return f"  {label:<{_LABEL}}{text}"


def interval_text(found: Table | None, digits: int = 3) -> str:
    if found is None:
        return ""
    return f"  95 % {found['low']:.{digits}f} … {found['high']:.{digits}f}"


def _any_lines(result: Table) -> Iterator[str]:
    for name, value in result.items():
        yield row(name, one_line(str(value), 200))


def _compare_lines(result: Table) -> Iterator[str]:
    yield (
        f"{result['blocks']} blocks of {result['block_prompts']} prompts, "
        f"{result['concurrency']} at a time, {result['elapsed_s']:.0f} s, {result['arrangement']}; "
        f"stopped: {result['stopped']}"
    )
    for arm in result["arms"]:
        yield from _arm_lines(arm)
    for pairing in result["pairings"]:
        yield f"{one_line(pairing['b'])} against {one_line(pairing['a'])}"
        for change in pairing["differs"]:
            yield row(
                "differs", one_line(f"{change['setting']}: {change['before']} → {change['after']}")
            )
        if not pairing["differs"]:
            yield row("differs", "nothing")
        for found in pairing["overall"]:
            yield row(found["figure"], contrast_text(found))
        for kind, figures in pairing["by_class"].items():
            yield row(f"  {one_line(kind, 20)}", contrast_text(figures[0]))
        if len(starts := pairing.get("by_start", ())) > 1:
            yield row("  in each start", "  ".join(f"{value:.3f} ×" for value in starts))
    for note in result["notes"]:
        yield row("note", one_line(note, 400))


def _arm_lines(arm: Table) -> Iterator[str]:
    k = f" K={arm['draft_tokens']}" if arm["draft_tokens"] else ""
    yield f"{one_line(arm['arm'])} ({one_line(arm['drafter'])}{k})"
    cost = arm["cost"]
    speed = "n/a" if cost["tokens_per_s"] is None else f"{cost['tokens_per_s']:.1f} tok/s"
    failed = f", {arm['failed']} failed" if arm["failed"] else ""
    yield row(
        "output", f"{speed}: {cost['output_tokens']} tokens of {arm['requests']} requests{failed}"
    )
    if arm.get("acceptance_length") is not None:
        steps = (
            "" if arm["tokens_a_step"] is None else f"   ({arm['tokens_a_step']:.2f} tokens a step)"
        )
        yield row("acceptance length", f"{arm['acceptance_length']:.2f}{steps}")
    if cost["device_s_per_1000_tokens"] is not None:
        yield row("device time", f"{cost['device_s_per_1000_tokens']:.1f} s a thousand tokens")
    if cost["rejected_tokens_per_s"] is not None:
        yield row("draft tokens rejected", f"{cost['rejected_tokens_per_s']:.1f} a second")
    joules = cost["joules_per_1000_tokens"]
    if joules is not None:
        yield row("energy", f"{joules:.0f} J a thousand tokens")
    else:
        yield row("energy", f"n/a ({one_line(cost['energy_absent'] or '')})")


def _breakeven_lines(result: Table) -> Iterator[str]:
    ks = sorted({point["k"] for point in result["points"]})
    found = {(point["concurrency"], point["k"]): point for point in result["points"]}
    yield f"required acceptance length, {result['max_tokens']} tokens an answer, {result['elapsed_s']:.0f} s"
    yield row("at a time", "".join(f"{f'K={k}':<24}" for k in ks) + "plain step")
    for load in sorted({point["concurrency"] for point in result["points"]}):
        cells = [_required_text(found.get((load, k))) for k in ks]
        plain = next(point["plain_step_ms"] for (at, _), point in found.items() if at == load)
        yield row(f"{load:>9}", "".join(f"{cell:<24}" for cell in cells) + f"{plain:.1f} ms")
    for point in result["real"]:
        yield row(f"{result['drafter']} at {point['concurrency']}", _real_text(point))
    for held in result["holdouts"]:
        yield row(
            f"foretold at {held['concurrency']}",
            f"K={held['k']}: {held['foretold']:.2f} from its neighbours, measured "
            f"{held['measured']:.2f} ({held['error']:+.1%})",
        )
    for note in result["notes"]:
        yield row("note", one_line(note, 400))


def _required_text(point: Table | None) -> str:
    if point is None:
        return "n/a"
    between = point["required_interval"]
    known = "" if between is None else f" ({between['low']:.2f} … {between['high']:.2f})"
    return f"{point['required_length']:.2f}{known}"


def _real_text(point: Table) -> str:
    length = "n/a" if point["length"] is None else f"{point['length']:.2f}"
    ratio = "n/a" if point["tpot_ratio"] is None else f"{point['tpot_ratio']:.3f} ×"
    between = point.get("drafter_ms_interval")
    cost = drafting_text(point["drafter_ms"], None if between is None else Interval(**between))
    interval = interval_text(point["tpot_ratio_interval"])
    return f"AL {length}, time per output token {ratio}{interval}, {cost}"


def tuned_text(table: Table) -> str:
    """A schedule, its evidence, and where it was written."""
    return "\n".join(_tuned_lines(table))


def _tuned_lines(table: Table) -> Iterator[str]:
    yield f"K by batch size, from {one_line(table['experiment'])}"
    rates = "  ".join(f"{n}: {rate:.0%}" for n, rate in enumerate(table["conditional"], 1))
    yield row("accepted, given before", rates)
    for choice in table["choices"]:
        fixed = choice["fixed_ratio"]
        own = "" if fixed is None else f", K={table['fixed_k']} would be {fixed:.2f}"
        yield row(
            f"{choice['concurrency']} at a time",
            f"K={choice['k']}: foretold {choice['ratio']:.2f} × plain decoding{own} ({choice['why']})",
        )
    yield row("schedule", one_line(spoken(table["words"])))
    yield row("best single K", str(table["best_k"]))
    for note in table["notes"]:
        yield row("note", one_line(note, 400))
    yield row("written", one_line(table["profile"], 400))


def _parity_lines(result: Table) -> Iterator[str]:
    k = f" K={result['draft_tokens']}" if result["draft_tokens"] else ""
    yield (
        f"{one_line(result['drafter'])}{k} against plain decoding: {result['prompts']} prompts, "
        f"{result['max_tokens']} tokens, {result['concurrency']} at a time, greedy"
    )
    itself = [] if result["itself"] is None else [result["itself"]]
    for found in [*itself, *result["features"]]:
        rest = [
            f"{found[key]} {word}"
            for key, word in (("ties", "ties"), ("real", "differ"), ("unknown", "not known"))
            if found[key]
        ]
        same = f"{found['identical']} of {found['compared']} identical"
        yield row(found["feature"], ", ".join([same, *rest]))
        for parting in found["differences"]:
            yield row("", _parting_text(parting))
    yield row("a tie is", f"log probabilities within {result['tolerance_nats']:g} nats")
    yield row("lossless", "yes" if result["lossless"] else "no")


def _parting_text(parting: Table) -> str:
    gap = parting["gap_nats"]
    apart = "n/a" if gap is None else f"{'≥ ' if parting['at_least'] else ''}{gap:.4f} nats"
    return (
        f"{parting['kind']}: {one_line(parting['prompt_id'], 60)}, token {parting['place']} is "
        f"{parting['with_drafter']}, was {parting['without_drafter']} (gap {apart})"
    )


def contrast_text(found: Table) -> str:
    """One figure of a pairing."""
    if found["value"] is None:
        return f"n/a ({one_line(found['absent'] or '')})"
    sides = ""
    if found["a"] is not None and found["b"] is not None:
        unit = f" {found['unit']}" if found["unit"] else ""
        sides = f"   ({_short(found['a'])} → {_short(found['b'])}{unit})"
    value = f"{found['value']:+.2f}" if found["is_difference"] else f"{found['value']:.3f} ×"
    interval = interval_text(found["interval"], 2 if found["is_difference"] else 3)
    absent = f"   no interval: {one_line(found['absent'])}" if found["absent"] else ""
    shown = "" if found["shown"] == "unknown" else f"   {found['shown']}"
    return f"{value}{interval}{shown}{sides}{absent}"


def _short(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def _run_lines(result: Table) -> Iterator[str]:
    """A run in short; its recording tells the rest."""
    yield f"{one_line(result['model'])}, {result['concurrency']} at a time"
    for leg in result["legs"]:
        k = f" K={leg['draft_tokens']}" if leg["draft_tokens"] else ""
        speed = leg["output_tokens_per_s"]
        told = "n/a" if speed is None else f"{speed:.1f} tok/s"
        tpot = next((each["value_ms"] for each in leg["tpot_ms"] if each["share"] == 0.5), None)
        each = "" if tpot is None else f", time per output token p50 {tpot:.1f} ms"
        done = leg["requests"] - leg["failed"]
        yield row(f"{one_line(leg['drafter'])}{k}", f"{told}{each}, {done} requests")
        length = (leg["acceptance"] or {}).get("acceptance_length")
        if length is not None:
            yield row("acceptance length", f"{length:.2f}")


def _guidellm_lines(result: Table) -> Iterator[str]:
    k = f" K={result['draft_tokens']}" if result["draft_tokens"] else ""
    yield (
        f"{one_line(result['drafter'])}{k} through guidellm {one_line(result['guidellm_version'])}, "
        f"{result['requests']} requests at each load; p50, ms"
    )
    yield f"  {'at a time':<11}{'AL, 95 %':<20}{'counted':<9}{'TPOT':<8}{'ITL':<8}{'TTFT':<9}tok/s"
    for point in result["points"]:
        between = point["acceptance_length_interval"]
        known = "" if between is None else f" ({between['low']:.2f} … {between['high']:.2f})"
        length = f"{_figure(point['acceptance_length'], 2)}{known}"
        yield (
            f"  {point['concurrency']:<11}{length:<20}{_figure(point['counted_length'], 2):<9}"
            f"{_figure(point['tpot_p50_ms']):<8}{_figure(point['itl_p50_ms']):<8}"
            f"{_figure(point['ttft_p50_ms']):<9}{_figure(point['output_tokens_per_s'])}"
        )
    for note in result["notes"]:
        yield row("note", one_line(note, 400))


def _figure(value: float | None, digits: int = 1) -> str:
    return "n/a" if value is None else f"{value:.{digits}f}"


_KINDS: dict[str, Callable[[Table], Iterator[str]]] = {
    "breakeven": _breakeven_lines,
    "compare": _compare_lines,
    "guidellm": _guidellm_lines,
    "parity": _parity_lines,
    "run": _run_lines,
    "tune": _tuned_lines,
}


def experiment_line(found: Experiment) -> str:
    """One row of the list."""
    return (
        f"{one_line(found.id):<34}  {started_text(found.started_unix):<16}  {found.state:<11}  "
        f"{one_line(found.title, 40)}  {one_line(found.conclusion or '', 120)}".rstrip()
    )


def experiment_text(found: Experiment) -> str:
    """One experiment whole."""
    around = found.environment
    took = None if found.ended_unix is None else found.ended_unix - found.started_unix
    machine = ", ".join(
        str(part)
        for part in (
            around.get("platform"),
            around.get("processor"),
            f"{around['cores']} cores" if around.get("cores") else None,
            f"vLLM {around['vllm_version']}" if around.get("vllm_version") else None,
        )
        if part
    )
    head = [
        one_line(found.id),
        row("what", one_line(found.title, 200)),
        row("started", started_text(found.started_unix, "%Y-%m-%d %H:%M:%S")),
        row("took", duration_text(took)),
        row("state", found.state),
        row("on", one_line(machine, 200)),
    ]
    if found.conclusion is None:
        return "\n".join(head)
    return "\n".join([*head, result_text(found.kind, found.result, found.conclusion)])
