"""From measured times to thresholds: which prompts take an MHA form on this device, how surely. Pure.

What measures is handed in, so this works the same for portable torch on a CPU, for our Triton kernels and
for vLLM's own. A *win* is a step whose MHA form (dense within top-k, masked beyond) takes less time than
sparse MQA by more than the margin, a *loss* the opposite, and what lies between is neither.

A step that stays undecided is measured again until it is settled or was tried often enough; it is then told
as undecided. A table is refused where the measurements contradict what thresholds can say: in one row of
growing queries MHA may lose, then win, then lose, and no more.
"""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from specpanel.kernels.cells import MARGIN, Cell, Ratio, Timing, settled
from specpanel.kernels.crossings import Crossing, Place, crossings, in_doubt, to_halve
from specpanel.kernels.dispatch import HeadRows, choose
from specpanel.kernels.errors import MLAError
from specpanel.kernels.thresholds import context_ranges, contradiction, pure_ranges
from specpanel.kernels.vllm_rules import Ranges

SCHEMA_VERSION = 2
KIND = "mla_calibration"
_MOST_AGAIN = 8  # times that one step is measured again while it is in doubt


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


class Regret(NamedTuple):
    """The time that thresholds lose against the best path of each cell, as a share of it.

    ``mean`` and ``worst`` count what is beyond the noise of its cell. ``at_most`` is what the worst cell may
    lose within two standard errors: it is large where a cell stayed undecided.
    """

    mean: float
    worst: float
    at_most: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Everything that was measured and what follows from it.

    ``rows`` has the heads whose measurements make sense; ``refused`` says of the others why. ``complete``:
    there was time for all that was to be measured.
    """

    key: Key
    cells: tuple[Cell, ...]
    rows: Mapping[int, HeadRows]
    refused: Mapping[int, str] = field(default_factory=dict)
    complete: bool = True

    def regret(self) -> Regret | None:
        """None where no thresholds came of it."""
        chosen = [
            (cell, choose(self.rows, cell.heads, cell.step, self.key.topk).tier)
            for cell in self.cells
            if cell.heads in self.rows
        ]
        if not chosen:
            return None
        lost = [cell.lost(tier) for cell, tier in chosen]
        return Regret(
            sum(lost) / len(lost), max(lost), max(cell.lost_at_most(tier) for cell, tier in chosen)
        )

    def undecided(self, margin: float = MARGIN) -> list[Cell]:
        """Cells of which it is not known which path is faster, nor that they are equally fast."""
        return [cell for cell in self.cells if not settled(cell, margin)]

    def crossings(self, margin: float = MARGIN) -> list[Crossing]:
        """Where MHA begins or ceases to win, for the heads that have thresholds."""
        return crossings((cell for cell in self.cells if cell.heads in self.rows), margin)


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
"""Times one step: (heads, query, context). Asked again, it adds turns to those that the step has."""


def calibrate(
    key: Key,
    grid: Grid,
    measure: Measure,
    *,
    margin: float = MARGIN,
    go_on: Callable[[], bool] = lambda: True,
) -> Calibration:
    """Measure ``grid``, again where it is in doubt, refine every crossing to 5 %, and fit thresholds.

    After the grid it goes in rounds, each over the middles of all brackets and over all steps in doubt, so
    that a busy minute does not fall on one step alone.

    Args:
        go_on: asked before each measurement; once it says no, what is there is fitted and marked incomplete.
    """
    cells: dict[Place, Cell] = {}
    asked: Counter[Place] = Counter()
    places = grid.cells()
    while places:
        for place in places:
            if not go_on():
                return fitted(key, cells.values(), margin=margin, complete=False)
            cells[place] = measure(*place)
            asked[place] += 1
        places = to_halve(cells.values(), margin)
        again = in_doubt(cells.values(), margin)
        places += [place for place in again if asked[place] <= _MOST_AGAIN]
    return fitted(key, cells.values(), margin=margin)


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
        "regret": None if regret is None else regret._asdict(),
        "crossings": [asdict(crossing) for crossing in calibration.crossings()],
        "undecided": [[cell.heads, cell.query, cell.context] for cell in calibration.undecided()],
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


def _cell(data: Mapping[str, Any]) -> Cell:
    timings = {tier: Timing(**timing) for tier, timing in data["timings"].items()}
    ratios = {tier: Ratio(**ratio) for tier, ratio in data["ratios"].items()}
    return Cell(int(data["heads"]), int(data["query"]), int(data["context"]), timings, ratios)


def _ranges(data: Iterable[Sequence[int]]) -> Ranges:
    return tuple((int(longest), int(shortest)) for longest, shortest in data)
