"""From measured times to thresholds: which prompts take an MHA form on this device, how surely. Pure.

What measures is handed in, so this works the same for portable torch on a CPU, for our Triton kernels and
for vLLM's own. A *win* is a step whose MHA form (dense within top-k, masked beyond) takes less time than
sparse MQA by more than the margin, a *loss* the opposite, and what lies between is neither.

A table is refused where the measurements contradict what thresholds can say: in one row of growing queries
MHA may lose, then win, then lose, and no more.
"""

import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from specpanel.kernels.dispatch import HeadRows, choose
from specpanel.kernels.errors import MLAError
from specpanel.kernels.vllm_rules import Ranges, Step, Tier

SCHEMA_VERSION = 1
KIND = "mla_calibration"
MARGIN = 0.03
REFINE_TO = 1.05
_MOST_REFINEMENTS = 6


@dataclass(frozen=True, slots=True)
class Timing:
    """Median of ``repeats`` runs, and the median distance from it."""

    median_ms: float
    mad_ms: float
    repeats: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One step, measured on every path that gives the exact answer."""

    heads: int
    query: int
    context: int
    timings: Mapping[Tier, Timing]

    @property
    def step(self) -> Step:
        return Step(self.query, self.query + self.context, context_chunk=self.context)

    @property
    def mha(self) -> Tier:
        return "dense_mha" if "dense_mha" in self.timings else "masked_mha"

    @property
    def gain(self) -> float:
        """Time of sparse MQA over that of the MHA form: above 1 MHA is faster."""
        return self.timings["sparse_mqa"].median_ms / self.timings[self.mha].median_ms

    @property
    def noise(self) -> float:
        """Relative noise of ``gain``."""
        pair = (self.timings["sparse_mqa"], self.timings[self.mha])
        return sum(timing.mad_ms / timing.median_ms for timing in pair)

    def outcome(self, margin: float = MARGIN) -> int:
        """1 for a win, -1 for a loss, 0 within the margin or the noise."""
        clear = max(margin, self.noise)
        distance = math.log(self.gain)
        return 0 if abs(distance) <= clear else 1 if distance > 0 else -1


@dataclass(frozen=True, slots=True)
class Key:
    """What a calibration holds for; it is used nowhere else."""

    device: str
    compute_units: int
    engine: str
    torch: str
    triton: str | None
    dtype: str
    pattern: str
    nope: int
    rope: int
    v: int
    lora: int
    topk: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """Everything that was measured and what follows from it.

    ``rows`` has the heads whose measurements make sense; ``refused`` says of the others why. ``regret``: the
    time lost against the best path of each cell, as a share: over all of them, and at the worst one.
    """

    key: Key
    cells: tuple[Cell, ...]
    rows: Mapping[int, HeadRows]
    refused: Mapping[int, str] = field(default_factory=dict)
    complete: bool = True

    def regret(self) -> tuple[float, float] | None:
        lost = [self._regret(cell) for cell in self.cells if cell.heads in self.rows]
        return (sum(lost) / len(lost), max(lost)) if lost else None

    def _regret(self, cell: Cell) -> float:
        best = min(timing.median_ms for timing in cell.timings.values())
        chosen = choose(self.rows, cell.heads, cell.step, self.key.topk).tier
        return cell.timings[chosen].median_ms / best - 1.0


@dataclass(frozen=True, slots=True)
class Grid:
    """What to measure: every query with every context, for each number of local heads."""

    heads: tuple[int, ...]
    queries: tuple[int, ...]
    contexts: tuple[int, ...] = (0,)

    def cells(self) -> list[tuple[int, int, int]]:
        """(heads, query, context), the cheap ones first."""
        every = itertools.product(self.heads, self.queries, self.contexts)
        return sorted(every, key=lambda cell: cell[0] * cell[1] * (cell[1] / 2 + cell[2]))


Measure = Callable[[int, int, int], Cell]


def calibrate(
    key: Key,
    grid: Grid,
    measure: Measure,
    *,
    margin: float = MARGIN,
    go_on: Callable[[], bool] = lambda: True,
) -> Calibration:
    """Measure ``grid``, refine every crossing to 5 %, and fit thresholds.

    Args:
        measure: times one cell: (heads, query, context).
        go_on: asked before each measurement; once it says no, what is there is fitted and marked incomplete.
    """
    cells: list[Cell] = []
    complete = True
    for heads, query, context in grid.cells():
        if not go_on():
            complete = False
            break
        cells.append(measure(heads, query, context))
    for heads, context in itertools.product(grid.heads, grid.contexts):
        complete &= _refine(cells, heads, context, measure, margin, go_on)
    return fitted(key, cells, margin=margin, complete=complete)


def fitted(
    key: Key, cells: Iterable[Cell], *, margin: float = MARGIN, complete: bool = True
) -> Calibration:
    """The thresholds that ``cells`` support, and the heads that they support none for."""
    ordered = tuple(sorted(cells, key=lambda cell: (cell.heads, cell.context, cell.query)))
    rows: dict[int, HeadRows] = {}
    refused: dict[int, str] = {}
    for heads in sorted({cell.heads for cell in ordered}):
        mine = [cell for cell in ordered if cell.heads == heads]
        reason = _contradiction(mine, margin)
        if reason is None:
            pure = [cell for cell in mine if not cell.context]
            cached = [cell for cell in mine if cell.context]
            rows[heads] = HeadRows(_pure_ranges(pure, margin), _context_ranges(cached, margin))
        else:
            refused[heads] = reason
    return Calibration(key, ordered, rows, refused, complete)


def dump(calibration: Calibration) -> str:
    """The calibration as JSON, ``schema_version`` first."""
    regret = calibration.regret()
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "key": asdict(calibration.key),
        "complete": calibration.complete,
        "rows": {str(heads): asdict(rows) for heads, rows in calibration.rows.items()},
        "refused": {str(heads): reason for heads, reason in calibration.refused.items()},
        "regret": None if regret is None else {"mean": regret[0], "worst": regret[1]},
        "cells": [asdict(cell) for cell in calibration.cells],
    }
    return json.dumps(data, indent=1)


def load(text: str, key: Key | None = None) -> Calibration:
    """A calibration out of JSON; thresholds are read, not fitted again.

    Args:
        key: what it is wanted for; None takes it for what it is.

    Raises:
        MLAError: it is no calibration, of another schema, or for something else; the message says what.
    """
    try:
        data = json.loads(text)
        if data["kind"] != KIND or data["schema_version"] != SCHEMA_VERSION:
            raise MLAError("the file is no calibration that this version reads", _AGAIN)
        found = Calibration(
            key=Key(**data["key"]),
            cells=tuple(_cell(cell) for cell in data["cells"]),
            rows={
                int(heads): HeadRows(_ranges(rows["pure"]), _ranges(rows["context"]))
                for heads, rows in data["rows"].items()
            },
            refused={int(heads): str(reason) for heads, reason in data["refused"].items()},
            complete=bool(data["complete"]),
        )
    except MLAError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError):
        raise MLAError("the file is no calibration", _AGAIN) from None
    if key is not None and found.key != key:
        wrong = [
            f"{name} {value!r} and not {asdict(key)[name]!r}"
            for name, value in asdict(found.key).items()
            if value != asdict(key)[name]
        ]
        raise MLAError(f"the calibration is for {', '.join(wrong)}", _AGAIN)
    return found


_AGAIN = "Calibrate here: specpanel mla calibrate."


def _refine(
    cells: list[Cell],
    heads: int,
    context: int,
    measure: Measure,
    margin: float,
    go_on: Callable[[], bool],
) -> bool:
    """Halve the gap between a win and a neighbour that is none until they are 5 % apart. False: cut short."""
    for _ in range(_MOST_REFINEMENTS):
        row = sorted(
            (cell for cell in cells if cell.heads == heads and cell.context == context),
            key=lambda cell: cell.query,
        )
        middles = [
            math.isqrt(left.query * right.query)
            for left, right in itertools.pairwise(row)
            if (left.outcome(margin) > 0) != (right.outcome(margin) > 0)
            and right.query > left.query * REFINE_TO
            and right.query - left.query > 1
        ]
        if not middles:
            return True
        for query in middles[:2]:
            if not go_on():
                return False
            cells.append(measure(heads, query, context))
    return True


def _contradiction(cells: Sequence[Cell], margin: float) -> str | None:
    for context, group in itertools.groupby(cells, key=lambda cell: cell.context):
        clear = [cell for cell in group if cell.outcome(margin)]
        runs = [outcome for outcome, _ in itertools.groupby(cell.outcome(margin) for cell in clear)]
        if runs.count(1) > 1:
            told = ", ".join(f"{cell.query}: {cell.gain:.2f}x" for cell in clear)
            after = f" after {context} cached tokens" if context else ""
            return f"MHA wins, loses and wins again as queries grow{after} ({told})"
    return None


def _pure_ranges(cells: Sequence[Cell], margin: float) -> Ranges:
    """Without context a query is the whole sequence: one range from the first win to the last."""
    wins = [cell.query for cell in cells if cell.outcome(margin) > 0]
    if not wins:
        return ()
    return ((max(wins), 0 if min(wins) == cells[0].query else min(wins)),)


def _context_ranges(cells: Sequence[Cell], margin: float) -> Ranges:
    """With context: lengths in powers of two, and for each the shortest query that never loses."""
    found: list[tuple[int, int]] = []
    edges = sorted({1 << (cell.step.seq_len - 1).bit_length() for cell in cells})
    for edge in edges:
        inside = [cell for cell in cells if edge // 2 < cell.step.seq_len <= edge]
        losses = [cell.query for cell in inside if cell.outcome(margin) < 0]
        limit = max(losses, default=0)
        wins = [cell.query for cell in inside if cell.outcome(margin) > 0 and cell.query > limit]
        # No query is longer than its sequence: edge + 1 says never.
        found.append((edge, min(wins) if wins else edge + 1))
    while found and found[-1][1] > found[-1][0]:
        found.pop()
    return tuple(found)


def _cell(data: Mapping[str, Any]) -> Cell:
    timings = {tier: Timing(**timing) for tier, timing in data["timings"].items()}
    return Cell(int(data["heads"]), int(data["query"]), int(data["context"]), timings)


def _ranges(data: Iterable[Sequence[int]]) -> Ranges:
    return tuple((int(longest), int(shortest)) for longest, shortest in data)
