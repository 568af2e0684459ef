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

from specpanel.kernels.cells import MARGIN, Cell, Ratio, Timing, settled
from specpanel.kernels.dispatch import HeadRows, choose
from specpanel.kernels.errors import MLAError
from specpanel.kernels.thresholds import context_ranges, contradiction, pure_ranges
from specpanel.kernels.vllm_rules import Ranges

SCHEMA_VERSION = 2
KIND = "mla_calibration"
REFINE_TO = 1.05
_MOST_REFINEMENTS = 6


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
        return cell.regret(choose(self.rows, cell.heads, cell.step, self.key.topk).tier)


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
        reason = contradiction(mine, margin)
        if reason is None:
            pure = [cell for cell in mine if not cell.context]
            cached = [cell for cell in mine if cell.context]
            rows[heads] = HeadRows(pure_ranges(pure, margin), context_ranges(cached, margin))
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
    """Halve the gap between a win and a neighbour that is none until they are 5 % apart. False: cut short.

    Beside a neighbour that is too noisy to tell there is no crossing to be found.
    """
    for _ in range(_MOST_REFINEMENTS):
        row = sorted(
            (cell for cell in cells if cell.heads == heads and cell.context == context),
            key=lambda cell: cell.query,
        )
        middles = [
            math.isqrt(left.query * right.query)
            for left, right in itertools.pairwise(row)
            if (left.outcome(margin) > 0) != (right.outcome(margin) > 0)
            and settled(left, margin)
            and settled(right, margin)
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


def _cell(data: Mapping[str, Any]) -> Cell:
    timings = {tier: Timing(**timing) for tier, timing in data["timings"].items()}
    ratios = {tier: Ratio(**ratio) for tier, ratio in data["ratios"].items()}
    return Cell(int(data["heads"]), int(data["query"]), int(data["context"]), timings, ratios)


def _ranges(data: Iterable[Sequence[int]]) -> Ranges:
    return tuple((int(longest), int(shortest)) for longest, shortest in data)
