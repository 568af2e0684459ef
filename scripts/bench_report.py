"""The measurements of ``bench_tui.py`` as a page of Markdown."""

import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

# What is asked of the Live screen: the most that a figure may be.
LIMITS = {
    "first_paint_s": 0.8,
    "busy_cpu": 2.5,
    "quiet_cpu": 1.0,
    "memory_mb": 60.0,
    "bytes_a_redraw": 12 * 1024.0,
}
ROWS: tuple[tuple[str, str, str], ...] = (
    ("first_paint_s", "first paint", "{:.2f} s"),
    ("busy_cpu", "CPU, server busy", "{:.1f} %"),
    ("quiet_cpu", "CPU, server quiet", "{:.1f} %"),
    ("memory_mb", "memory in the end", "{:.0f} MB"),
    ("bytes_a_redraw", "bytes a redraw", "{:.0f}"),
    ("redraws_a_second", "redraws a second", "{:.1f}"),
)
OURS = "specpanel"
GROWTH_LIMIT_MB = 1.0


class Measured(Protocol):
    """Figures of one program; each list of ``ROWS`` has one entry a round."""

    failed: str | None


def report(
    figures: Mapping[str, Measured],
    versions: Mapping[str, str],
    host: str,
    rounds: int,
    seconds: float,
    replayed: tuple[float, float] | None,
) -> str:
    ran = [
        name for name in figures if figures[name].failed is None and _of(figures[name], "busy_cpu")
    ]
    lines = [
        "# Measurements",
        "",
        f"Made by `make bench-tui` on {datetime.now(UTC):%Y-%m-%d}: {host}.",
        "",
        f"Medians of {rounds} rounds in which the programs took turns, in a terminal of 140x45, over",
        "the same local server: a real exposition of vLLM 0.32 whose counters grow, read once a second.",
        f"CPU is that of the program and of all it starts, over {seconds:g} s, in per cent of one core.",
        "First paint is the time from the start until a screen full of text was written. A redraw is what is",
        "written with less than a tenth of a second between its pieces. Ratios are to specpanel.",
        "",
        "| | " + " | ".join(f"{name} {versions[name]}" for name in ran) + " | asked of specpanel |",
        "|---|" + "---|" * (len(ran) + 1),
    ]
    for key, label, shape in ROWS:
        lines.append(_row(key, label, shape, [figures[name] for name in ran], ran))
    lines.append("")
    for name, found in figures.items():
        if found.failed is not None:
            lines.append(f"{name} {versions[name]} did not run: `{found.failed.replace('`', '')}`.")
    if replayed is not None:
        early, growth = replayed
        lines += [
            "Memory of specpanel after ten minutes of Frames, replayed at high speed:",
            f"{early:.1f} MB (asked: at most {LIMITS['memory_mb']:.0f}).",
            f"Over the hour after them it grew by {growth:.1f} MB (asked: under {GROWTH_LIMIT_MB:g}).",
        ]
    return "\n".join(lines).rstrip() + "\n"


def _of(found: Measured, key: str) -> Sequence[float]:
    values: Sequence[float] = getattr(found, key)
    return values


def _row(key: str, label: str, shape: str, found: Sequence[Measured], names: Sequence[str]) -> str:
    medians = [statistics.median(_of(program, key)) for program in found]
    ours = medians[names.index(OURS)] if OURS in names else 0.0
    cells = []
    for name, median in zip(names, medians, strict=True):
        ratio = f" ({median / ours:.1f} x)" if name != OURS and ours else ""
        cells.append(shape.format(median) + ratio)
    limit = f"at most {shape.format(LIMITS[key])}" if key in LIMITS else ""
    return f"| {label} | " + " | ".join(cells) + f" | {limit} |"
