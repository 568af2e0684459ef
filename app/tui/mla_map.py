"""Maps of new tokens by cached context: how much faster MHA is than MQA, and who takes what. Pure.

A column is a number of new tokens, a row one of cached tokens, both on a logarithmic scale; the lowest row
has nothing cached. Where MHA and MQA are equally fast, the map has a line.
"""

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specpanel.app.tui.charts.cells import runs
from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.charts.heat_plot import HEAT_LEVELS, heat_ink
from specpanel.app.tui.ink import Line, Span
from specpanel.kernels.calibrate import Calibration
from specpanel.kernels.cells import Cell
from specpanel.kernels.cost import estimates_ms
from specpanel.kernels.dispatch import choose
from specpanel.kernels.explain import Explanation
from specpanel.kernels.prompt_steps import step_of
from specpanel.kernels.vllm_rules import Step, Tier, decide, use_masked_mha

LABEL_CELLS = 6
TIER_INKS: dict[Tier, str] = {
    "dense_mha": "series-1",
    "masked_mha": "series-6",
    "sparse_mqa": "series-2",
}
TIER_MARKS: dict[Tier, str] = {"dense_mha": "█", "masked_mha": "▓", "sparse_mqa": "░"}
_ASCII_MARKS: dict[Tier, str] = {"dense_mha": "D", "masked_mha": "M", "sparse_mqa": "."}
_OCTAVES = 2.0  # from MQA four times as fast to MHA four times as fast
_LONGEST, _SHORTEST, _FIRST_CONTEXT = 65536, 128, 1024


@dataclass(frozen=True, slots=True)
class Axes:
    """Columns and rows of a map; ``contexts`` are from the lowest row up."""

    queries: tuple[int, ...]
    contexts: tuple[int, ...]


Gain = Callable[[int, int], float | None]
"""(new tokens, cached tokens) → time of MQA over that of the MHA form; None: not known."""

Taken = Callable[[int, int], Tier]


def mark_of(tier: Tier, glyphs: Glyphs) -> str:
    return (_ASCII_MARKS if glyphs.name == "ascii" else TIER_MARKS)[tier]


def wide_axes(columns: int, rows: int) -> Axes:
    """From 128 new tokens to 64K, and from nothing cached to 64K."""
    queries = spaced(_SHORTEST, _LONGEST, columns)
    contexts = spaced(_FIRST_CONTEXT, _LONGEST, rows - 1) if rows > 1 else ()
    return Axes(queries, (0, *contexts))


def measured_axes(cells: Sequence[Cell], columns: int, rows: int) -> Axes:
    """From the first query that was measured to the last; each measured context has rows of its own."""
    queries = [cell.query for cell in cells]
    contexts = sorted({cell.context for cell in cells})
    return Axes(
        spaced(min(queries), max(queries), columns),
        tuple(contexts[row * len(contexts) // rows] for row in range(rows)),
    )


def estimated_gain(found: Explanation) -> Gain:
    """By the cost model; it explains and decides nothing."""
    serving = found.serving
    rank = serving.dims.on_rank(serving.tensor_parallel)

    def gain(query: int, context: int) -> float | None:
        times = estimates_ms(rank, serving.gpu, query, context)
        mha = times["dense_mha"] or times["masked_mha"]
        mqa = times["sparse_mqa"]
        return None if mha is None or mqa is None else mqa / mha

    return gain


def vllm_takes(found: Explanation) -> Taken:
    """What vLLM does with such a step, chunks aside."""
    return lambda query, context: decide(found.deployment, step_of(query, context)).tier


def measured_gain(cells: Sequence[Cell]) -> Gain:
    """Between two measured queries of a context the logarithm is interpolated; elsewhere nothing is known."""
    rows: dict[int, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: cell.query):
        rows.setdefault(cell.context, []).append(cell)

    def gain(query: int, context: int) -> float | None:
        row = rows.get(context, [])
        at = bisect.bisect_left(row, query, key=lambda cell: cell.query)
        if at < len(row) and row[at].query == query:
            return row[at].gain
        if not 0 < at < len(row):
            return None
        left, right = row[at - 1], row[at]
        share = math.log(query / left.query) / math.log(right.query / left.query)
        return math.exp(math.log(left.gain) * (1 - share) + math.log(right.gain) * share)

    return gain


def ours_takes(calibration: Calibration, heads: int) -> Taken:
    """What the calibrated thresholds take."""

    def taken(query: int, context: int) -> Tier:
        step = Step(query, query + context, context_chunk=context)
        return choose(calibration.rows, heads, step, calibration.key.topk).tier

    return taken


def b200_takes(calibration: Calibration, heads: int) -> Taken:
    """What vLLM's table for FlashMLA on B200 says where the model's heads come to so many a rank."""
    key = calibration.key
    qk = key.nope + key.rope
    total = 64 if (qk, key.v) == (256, 256) else 128

    def taken(query: int, context: int) -> Tier:
        if query + context <= key.topk:
            return "dense_mha"
        masked = total % heads == 0 and use_masked_mha(
            backend="FLASHMLA_SPARSE",
            tensor_parallel=total // heads,
            qk=qk,
            v=key.v,
            query_len=query,
            seq_len=query + context,
            has_context=context > 0,
        )
        return "masked_mha" if masked else "sparse_mqa"

    return taken


def gain_map(axes: Axes, gain: Gain, glyphs: Glyphs, *, colors: bool) -> list[Line]:
    """The rows of the map, the highest first. With colours a row holds two of the axes' contexts."""
    halves = 2 if colors else 1
    grid = [[gain(query, context) for query in axes.queries] for context in axes.contexts]
    lines = []
    for bottom in range(len(grid) - halves, -1, -halves):
        pixels = grid[bottom : bottom + halves]
        above = grid[bottom + halves] if bottom + halves < len(grid) else pixels[-1]
        cells: list[Span] = []
        for column in range(len(axes.queries)):
            here = [row[column] for row in pixels]
            beside = [row[min(column + 1, len(row) - 1)] for row in pixels]
            if _crosses([*here, *beside, above[column]]):
                cells.append(("●" if glyphs.name != "ascii" else "o", "strong"))
            elif colors:
                cells.append(_half_blocks(here[-1], here[0]))
            else:
                cells.append((_shade(here[0], glyphs), "text"))
        lines.append((_label(axes.contexts, bottom, halves, glyphs), *runs(cells)))
    return lines


def tier_map(axes: Axes, taken: Taken, glyphs: Glyphs, *, colors: bool) -> list[Line]:
    """Who takes what: a character and an ink a tier, so that it can be read without colours, too.

    With colours every other context is shown, so that the rows are those of ``gain_map``.
    """
    lines = []
    step = 2 if colors else 1
    for bottom in range(len(axes.contexts) - step, -1, -step):
        context = axes.contexts[bottom]
        tiers = [taken(query, context) for query in axes.queries]
        cells = [(mark_of(tier, glyphs), TIER_INKS[tier]) for tier in tiers]
        lines.append((_label(axes.contexts, bottom, step, glyphs), *runs(cells)))
    return lines


def query_axis(axes: Axes, glyphs: Glyphs) -> Line:
    """The labels below a map."""
    columns = len(axes.queries)
    text = [" "] * columns
    free = 0
    for power in range(7, 21):
        tokens = 1 << power
        if not axes.queries[0] <= tokens <= axes.queries[-1]:
            continue
        at = min(range(columns), key=lambda column: abs(math.log(axes.queries[column] / tokens)))
        name = short(tokens)
        at = min(at, columns - len(name))
        if at >= free:
            text[at : at + len(name)] = name
            free = at + len(name) + 1
    return ((" " * (LABEL_CELLS - 1) + glyphs.corner, "axis"), ("".join(text), "axis"))


def scale_line(glyphs: Glyphs, *, colors: bool) -> Line:
    """What the shades say."""
    if not colors:
        return (("MQA 4x faster ", "muted"), (glyphs.shades, "text"), (" MHA 4x faster", "muted"))
    ramp = tuple(("█", heat_ink(level)) for level in range(0, HEAT_LEVELS, 2))
    return (("MQA 4x faster ", "muted"), *ramp, (" MHA 4x faster", "muted"))


def short(tokens: int) -> str:
    """``16384`` as ``16K``."""
    return f"{tokens // 1024}K" if tokens >= 1024 and tokens % 1024 == 0 else str(tokens)


def spaced(first: int, last: int, count: int) -> tuple[int, ...]:
    """Lengths evenly apart on a logarithmic scale; a power of two stands for what is nearest to it.

    Thresholds are powers of two, and some hold for that length alone.
    """
    if count < 2 or first == last:
        return (first,) * max(1, count)
    step = math.log(last / first) / (count - 1)
    found = []
    for place in range(count):
        length = first * math.exp(step * place)
        power = 1 << round(math.log2(length))
        near = abs(math.log(power / length)) <= step / 2 and first <= power <= last
        found.append(power if near else round(length))
    return tuple(found)


def _label(contexts: Sequence[int], row: int, step: int, glyphs: Glyphs) -> Span:
    """The cached tokens of a row; nothing where the row below is called the same."""
    name = _called(contexts[row])
    if row >= step and _called(contexts[row - step]) == name:
        name = ""
    return f"{name:>{LABEL_CELLS - 1}}{glyphs.axis}", "axis"


def _called(tokens: int) -> str:
    return str(tokens) if tokens < 1024 else f"{tokens / 1024:.0f}K"


def _crosses(gains: Sequence[float | None]) -> bool:
    known = [gain for gain in gains if gain is not None]
    return any(gain > 1 for gain in known) and any(gain <= 1 for gain in known)


def _share(gain: float) -> float:
    return min(1.0, max(0.0, (math.log2(gain) + _OCTAVES) / (2 * _OCTAVES)))


def _half_blocks(upper: float | None, lower: float | None) -> Span:
    top, bottom = (
        None if gain is None else round(_share(gain) * (HEAT_LEVELS - 1)) for gain in (upper, lower)
    )
    if top is None and bottom is None:
        return " ", "grid"
    if top == bottom:
        return "█", heat_ink(top)
    return ("▄", heat_ink(bottom)) if top is None else ("▀", heat_ink(top, bottom))


def _shade(gain: float | None, glyphs: Glyphs) -> str:
    if gain is None:
        return " "
    return glyphs.shades[round(_share(gain) * (len(glyphs.shades) - 1))]
