"""Measured paths of MLA as text: a table, and a map of query by context beside vLLM's choice. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specpanel.kernels.calibrate import Calibration
from specpanel.kernels.cells import Cell
from specpanel.kernels.cost import work
from specpanel.kernels.crossings import Crossing
from specpanel.kernels.dims import MLADims
from specpanel.kernels.dispatch import choose
from specpanel.kernels.vllm_rules import TIER_TITLES, Ranges, Tier, use_masked_mha

_TIERS: tuple[Tier, ...] = ("dense_mha", "masked_mha", "sparse_mqa")
_SHADES = " ░▒▓█"
_BACKEND = "FLASHMLA_SPARSE"
_MOST_UNDECIDED = 4
_MOST_COLUMNS = 14


def calibration_text(found: Calibration, *, plot: bool) -> str:
    """What was measured and, with ``plot``, the map and the thresholds; without a line end at its end."""
    return "\n".join(_lines(found, plot))


def ceilings_text(measured: Mapping[str, Any]) -> str:
    """What the device reaches at best, to hold the paths against."""
    gemm, copy = measured["gemm_flop_per_s"], measured["copy_byte_per_s"]
    shown = f"{gemm / 1e12:.1f} TFLOP/s" if gemm >= 1e12 else f"{gemm / 1e9:.1f} GFLOP/s"
    return f"This device at best: a matrix product {shown}, copying memory {copy / 1e9:.1f} GB/s"


def sdpa_text(compared: Mapping[str, Any]) -> str:
    """Portable masked MHA against torch's attention with the same mask."""
    lines = [
        "\nPortable masked MHA beside torch's scaled_dot_product_attention with the same mask "
        f"({compared['heads']} heads, {compared['tokens']} tokens, top-k {compared['topk']}, float32):"
    ]
    for rounds in compared["by_threads"]:
        count = rounds["threads"]
        told = ", ".join(
            f"{name} {rounds[kind]['ours_ms']:.0f} ms against {rounds[kind]['theirs_ms']:.0f} ms "
            f"({rounds[kind]['ratio']:.2f} x)"
            for kind, name in (("processor", "processor time"), ("elapsed", "elapsed"))
        )
        lines.append(f"  {count} thread{'s' if count > 1 else ''}: {told}")
    memory = "peak memory n/a"
    if compared["memory_ratio"] is not None:
        sizes = (compared["ours_peak_bytes"] / 2**20, compared["theirs_peak_bytes"] / 2**20)
        memory = (
            f"peak memory {sizes[0]:.0f} MiB against {sizes[1]:.0f} MiB "
            f"({compared['memory_ratio']:.2f} x)"
        )
    return "\n".join([*lines, f"  {memory}"])


def _lines(found: Calibration, plot: bool) -> Iterator[str]:
    key = found.key
    yield f"{key.device}, {key.compute_units} units, {key.engine} paths in {key.dtype}, torch {key.torch}"
    yield (
        f"heads of {key.nope}+{key.rope}/{key.v} over a latent of {key.lora}, top-k {key.topk}, "
        f"selection {key.pattern}"
    )
    yield ""
    yield from _table(found)
    for heads in sorted({cell.heads for cell in found.cells}) if plot else ():
        yield ""
        yield from _map(found, heads)
        yield from _verdict(found, heads)
    if plot:
        yield ""
        yield from _confidence(found)
    if not found.complete:
        yield "The time was up before everything was measured; a larger --budget measures all of it."


def _confidence(found: Calibration) -> Iterator[str]:
    """What the thresholds lose, and which steps decide nothing."""
    if (regret := found.regret()) is not None:
        yield (
            "Time lost by these thresholds against the best path of each cell: "
            f"{regret.mean:.1%} on average, {regret.worst:.1%} at worst "
            f"(within two standard errors of noise at most {regret.at_most:.1%})."
        )
    undecided = found.undecided()
    for cell in undecided[:_MOST_UNDECIDED]:
        yield (
            f"Undecided: {cell.heads} heads, {cell.query:,} new tokens after {cell.context:,}: "
            f"{cell.gain:.2f} ± {cell.noise:.1%} after {cell.timings['sparse_mqa'].repeats} turns."
        )
    if undecided:
        more = len(undecided) - _MOST_UNDECIDED
        yield (
            (f"And {more} more. " if more > 0 else "")
            + "There the paths are too close, or the machine was too busy, to tell; what lies within the "
            "noise decides nothing."
        )


def _table(found: Calibration) -> Iterator[str]:
    unit, per_ms = ("TFLOP/s", 1e9) if _fastest(found) >= 1e12 else ("GFLOP/s", 1e6)
    yield (
        f"{'heads':>5}{'query':>8}{'context':>9}"
        + "".join(f"{TIER_TITLES[tier] + ' ms':>16}{unit:>9}" for tier in _TIERS)
        + f"{'MQA/MHA':>9}{'noise':>7}"
    )
    for cell in found.cells:
        row = f"{cell.heads:>5}{cell.query:>8}{cell.context:>9}"
        for tier in _TIERS:
            timing = cell.timings.get(tier)
            if timing is None:
                row += f"{'n/a':>16}{'':>9}"
                continue
            done = work(_dims(found, cell.heads), tier, cell.query, cell.context).flop
            row += f"{timing.median_ms:>16.3f}{done / timing.median_ms / per_ms:>9.1f}"
        yield row + f"{cell.gain:>9.2f}{cell.noise:>7.1%}"


def _fastest(found: Calibration) -> float:
    """FLOP a second of the fastest path of any cell."""
    return max(
        (
            work(_dims(found, cell.heads), tier, cell.query, cell.context).flop
            / (timing.median_ms / 1e3)
            for cell in found.cells
            for tier, timing in cell.timings.items()
        ),
        default=0.0,
    )


def _dims(found: Calibration, heads: int) -> MLADims:
    key = found.key
    return MLADims(heads, heads, key.nope, key.rope, key.v, key.lora, topk=key.topk)


def _map(found: Calibration, heads: int) -> Iterator[str]:
    """Time of MQA over that of MHA: above 1 MHA is faster, and | marks where it passes 1."""
    cells = [cell for cell in found.cells if cell.heads == heads]
    queries = _columns(cells)
    contexts = sorted({cell.context for cell in cells}, reverse=True)
    width = 9 + 8 * len(queries)
    yield f"{heads} heads: time of MQA over MHA (darker: MHA faster; |: passes 1.0)"
    marks = max(6, len(queries) + 2)
    yield f"{'':<{width}}{'ours':<{marks}}vLLM    (M: MHA form, ·: MQA; vLLM's table is for {_BACKEND}, B200)"
    for context in contexts:
        row = {cell.query: cell for cell in cells if cell.context == context}
        ours, theirs = _choices(found, heads, row, queries)
        yield f"{context:>7} {_gains(row, queries)}".ljust(width) + f"{ours:<{marks}}{theirs}"
    yield f"{'context':>7} " + "".join(f"{query:>8}" for query in queries) + "  query"


def _columns(cells: Sequence[Cell]) -> list[int]:
    """Queries that were measured with every context; those of refined crossings stand in the table."""
    by_query: dict[int, set[int]] = {}
    for cell in cells:
        by_query.setdefault(cell.query, set()).add(cell.context)
    contexts = {cell.context for cell in cells}
    whole = sorted(query for query, found in by_query.items() if found == contexts)
    columns = whole if len(contexts) > 1 and whole else sorted(by_query)
    return columns[:: -(-len(columns) // _MOST_COLUMNS)]


def _gains(row: Mapping[int, Cell], queries: Sequence[int]) -> str:
    text, before = "", None
    for query in queries:
        cell = row.get(query)
        if cell is None:
            text += " " * 8
            continue
        passed = before is not None and (before > 1) != (cell.gain > 1)
        text += f"{'|' if passed else ' '}{cell.gain:>5.2f}{_shade(cell.gain) * 2}"
        before = cell.gain
    return text


def _shade(gain: float) -> str:
    """Five shades from MQA twice as fast to MHA twice as fast."""
    share = min(1.0, max(0.0, (math.log2(gain) + 1) / 2))
    return _SHADES[round(share * (len(_SHADES) - 1))]


def _choices(
    found: Calibration, heads: int, row: Mapping[int, Cell], queries: Sequence[int]
) -> tuple[str, str]:
    ours = theirs = ""
    for query in queries:
        cell = row.get(query)
        if cell is None:
            ours, theirs = ours + " ", theirs + " "
            continue
        tier = choose(found.rows, heads, cell.step, found.key.topk).tier
        ours += "·" if tier == "sparse_mqa" else "M"
        theirs += _vllm_mark(found, heads, cell)
    return ours, theirs


def _vllm_mark(found: Calibration, heads: int, cell: Cell) -> str:
    """What vLLM's table for FlashMLA on B200 says where the model's heads come to so many a rank."""
    key, step = found.key, cell.step
    if step.seq_len <= key.topk:
        return "M"
    total = 64 if (key.nope + key.rope, key.v) == (256, 256) else 128
    masked = total % heads == 0 and use_masked_mha(
        backend=_BACKEND,
        tensor_parallel=total // heads,
        qk=key.nope + key.rope,
        v=key.v,
        query_len=step.query_len,
        seq_len=step.seq_len,
        has_context=step.has_context,
    )
    return "M" if masked else "·"


def _verdict(found: Calibration, heads: int) -> Iterator[str]:
    if heads in found.refused:
        yield f"  refused: {found.refused[heads]}"
        return
    rows = found.rows[heads]
    yield f"  pure prefills: {_ranges(rows.pure)}"
    if any(cell.context for cell in found.cells):
        yield f"  with cached context: {_ranges(rows.context)}"
    for crossing in found.crossings():
        if crossing.heads == heads:
            yield f"  {_crossing(crossing)}"


def _crossing(crossing: Crossing) -> str:
    after = f" after {crossing.context:,} cached ones" if crossing.context else ""
    verb = "begins" if crossing.begins else "ceases"
    told = {
        "refined": "",
        "noise": "; what lies between is within the noise",
        "cut short": "; the time was up",
    }[crossing.state]
    return f"MHA {verb} to win between {crossing.after:,} and {crossing.until:,} new tokens{after}{told}"


def _ranges(ranges: Ranges) -> str:
    if not ranges:
        return "always sparse MQA"
    told = []
    for longest, shortest in ranges:
        if shortest > longest:
            told.append(f"up to {longest:,} tokens never")
        else:
            told.append(
                f"up to {longest:,} tokens" + (f" from {shortest:,} new ones" if shortest else "")
            )
    return "MHA " + "; ".join(told)
