"""Past runs as plain text: a line in a list, one run whole, two side by side. Pure."""

from collections.abc import Iterator

from specpanel.app.cli.plain import summary_text
from specpanel.app.run_words import (
    ABSENT,
    drafter_text,
    duration_text,
    size_text,
    started_text,
    value_text,
)
from specpanel.core.printable import one_line, padded
from specpanel.core.session.history import PastRun
from specpanel.core.session.history_comparison import RunComparison

_SIDE = 26


def run_line(run: PastRun, width: int) -> str:
    """One row of the list; ``width`` is the longest name's."""
    begin = f"{padded(one_line(run.id), width)}  {started_text(run.started_unix):<16}"
    size = f"{size_text(run.size_bytes):>8}"
    if run.ended == "broken":
        return f"{begin}  {size}  ✗ broken: {one_line(run.why or '')}"
    figures = run.figures
    length = value_text(figures.acceptance_length if figures else None, interval=False)
    speed = value_text(figures.tokens_per_s if figures else None, interval=False)
    tpot = value_text(figures.tpot_p50_ms if figures else None, interval=False)
    ttft = value_text(figures.ttft_p50_ms if figures else None, interval=False)
    why = f": {one_line(run.why or '')}" if run.ended in ("failed", "exited") else ""
    return (
        f"{begin}  {size}  {duration_text(run.duration_s):>7}  {padded(drafter_text(run), 16)}  "
        f"AL {length:<5}  {speed:>6} tok/s  TPOT {tpot:>6} ms  TTFT {ttft:>6} ms  {run.ended}{why}"
    )


def run_text(run: PastRun) -> str:
    """One run for a person: its summary where there is one, else what its Frames tell."""
    return "\n".join(_run_lines(run))


def _run_lines(run: PastRun) -> Iterator[str]:
    yield one_line(run.id)
    yield _row("recording", f"{one_line(str(run.path), 400)} ({size_text(run.size_bytes)})")
    yield _row("started", started_text(run.started_unix, "%Y-%m-%d %H:%M:%S"))
    yield _row("took", duration_text(run.duration_s))
    yield _row("ended", run.ended + (f": {one_line(run.why, 400)}" if run.why else ""))
    if run.ended == "broken":
        return
    if run.summary is not None and run.summary.legs:
        yield summary_text(run.summary)
        return
    yield _row("model", one_line(run.model or ABSENT))
    yield _row("drafter", drafter_text(run))
    figures = run.figures
    if figures is None:
        return
    yield _row("figures of", "the whole run" if figures.whole_run else "its last moments")
    yield _row("acceptance length", value_text(figures.acceptance_length))
    yield _row("output tok/s", value_text(figures.tokens_per_s))
    yield _row("TPOT p50 ms", value_text(figures.tpot_p50_ms))
    yield _row("TTFT p50 ms", value_text(figures.ttft_p50_ms))


def _row(label: str, text: str) -> str:
    return f"  {label:<22}{text}"


def comparison_text(found: RunComparison) -> str:
    """Two runs side by side."""
    return "\n".join(_comparison_lines(found))


def _comparison_lines(found: RunComparison) -> Iterator[str]:
    yield f"A  {one_line(found.a.id)}"
    yield f"B  {one_line(found.b.id)}"
    yield ""
    yield f"{'':<22}{'A':<{_SIDE}}{'B':<{_SIDE}}B / A"
    for row in found.rows:
        label = f"{row.figure} {row.unit}".strip()
        a, b = value_text(row.a), value_text(row.b)
        yield f"{label:<22}{padded(a, _SIDE)}{padded(b, _SIDE)}{value_text(row.ratio, digits=3)}"
    yield ""
    if found.settings is None:
        yield "settings: not recorded in both"
    elif not found.settings:
        yield "settings: the same"
    for change in found.settings or ():
        yield one_line(f"{change.setting}: {change.before} → {change.after}")
    for note in found.notes:
        yield f"note: {one_line(note, 400)}"
