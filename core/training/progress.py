"""From the trainer's metrics to events: losses, accuracies by position, and what serving will show. Pure.

How each algorithm logs its accuracies (Speculators 0.9.0, ``models/*/metrics.py``):

- eagle3: ``full_acc_i`` is the share of drafts that agree at position i and all before, ``cond_acc_i`` at i
  given the ones before. AL = 1 + Σ full_acc_i.
- peagle: ``position_i_acc`` stands for itself; that all before agree, too, is taken as their product.
- dflash, dflash2, dspark, xpress: the same, and ``eal``, the mean run of agreeing tokens of a block, the
  bonus token included. AL = eal.
- mtp logs no accuracy.

All of these count each token of an answer once. A server does not draft at every token: it passes an easy
stretch in a few drafts, and shows 5 to 12 % less. Where the trainer's own predictions were walked as a server
does (``core/inside/draft_walk.py``: eagle3, validation), that is the prediction.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from specpanel.core.training.events import LoaderKnown, StepDone, ValidationDone
from specpanel.core.training.records import PositionAccuracy, Prediction

_UNCONDITIONAL = re.compile(r"full_acc_(\d+)")
_ALONE = re.compile(r"position_(\d+)_acc")
_NOTHING = Prediction(None, (), "the algorithm logs no accuracy by position")


@dataclass(frozen=True, slots=True)
class Saved:
    """The trainer saved. ``kept`` is our copy; None where none is kept. ``step`` counts steps done."""

    step: int
    epoch: int
    interrupted: bool
    kept: str | None


# The formula of a prediction that counts drafts, as serving does, and not tokens.
WALKED = "validation answers, draft by draft"


def prediction(metrics: Mapping[str, Any]) -> Prediction:
    """What the accuracies of one step or validation predict; names without their ``_epoch``."""
    eagle = _by_position(metrics, _UNCONDITIONAL)
    if eagle:
        positions = tuple(
            PositionAccuracy(position, accuracy, _number(metrics.get(f"cond_acc_{position}")))
            for position, accuracy in eagle
        )
        length = 1.0 + sum(accuracy for _, accuracy in eagle)
        return Prediction(length, positions, "1 + Σ full_acc")
    alone = _by_position(metrics, _ALONE)
    if not alone:
        return _NOTHING
    positions = tuple(_chained(alone))
    expected = _number(metrics.get("eal"))
    if expected is not None:
        return Prediction(expected, positions, "the trainer's eal")
    length = 1.0 + sum(one.unconditional for one in positions)
    return Prediction(length, positions, "1 + Σ of products of position_acc")


def walked(walk: Any) -> Prediction | None:
    """What validation answers walked as a server does predict; None where they were not walked."""
    if not isinstance(walk, Mapping) or not (drafts := _count(walk.get("drafts"))):
        return None
    counts = [drafts, *map(_count, walk.get("accepted_by_position") or ())]
    positions = tuple(
        PositionAccuracy(position, now / drafts, now / before if before else None)
        for position, (before, now) in enumerate(pairwise(counts))
    )
    return Prediction(1.0 + sum(counts[1:]) / drafts, positions, WALKED)


def _chained(alone: list[tuple[int, float]]) -> list[PositionAccuracy]:
    """Accuracies that stand for themselves, as if positions were independent. 0 is the first drafted."""
    first = alone[0][0]
    chained, product = [], 1.0
    for position, accuracy in alone:
        product *= accuracy
        chained.append(PositionAccuracy(position - first, product, accuracy))
    return chained


def _by_position(metrics: Mapping[str, Any], name: re.Pattern[str]) -> list[tuple[int, float]]:
    found = []
    for key, value in metrics.items():
        match, number = name.fullmatch(key), _number(value)
        if match and number is not None:
            found.append((int(match[1]), number))
    return sorted(found)


def read_metrics(
    entry: Mapping[str, Any], began_unix: float
) -> LoaderKnown | StepDone | ValidationDone | Saved | None:
    """The event of one line of the metrics file; None for what is none."""
    elapsed = (_number(entry.get("unix")) or began_unix) - began_unix
    match entry.get("kind"):
        case "loader":
            return LoaderKnown(
                _count(entry.get("steps_per_epoch")),
                _count(entry.get("validation_packs")),
                _count(entry.get("last_step")),
            )
        case "step":
            return _step(entry, elapsed)
        case "validation":
            values = _numbers(entry.get("val"), "_epoch")
            return ValidationDone(
                step=_count(entry.get("at_step")),
                epoch=_count(entry.get("epoch")),
                elapsed_s=elapsed,
                loss=values.get("loss"),
                prediction=walked(entry.get("walk")) or prediction(values),
                metrics=values,
            )
        case "saved":
            kept = entry.get("kept")
            return Saved(
                _count(entry.get("global_step")),
                _count(entry.get("epoch")),
                bool(entry.get("interrupted")),
                kept if isinstance(kept, str) else None,
            )
        case _:
            return None


def _step(entry: Mapping[str, Any], elapsed: float) -> StepDone:
    values = _numbers(entry.get("train"))
    times = _numbers(entry.get("profile"))
    return StepDone(
        step=_count(entry.get("global_step")) + 1,
        epoch=_count(entry.get("epoch")),
        elapsed_s=elapsed,
        loss=values.get("loss"),
        prediction=prediction(values),
        learning_rate=_learning_rate(entry.get("lr")),
        tokens_per_s=times.get("tokens_per_s"),
        step_ms=times.get("step_ms"),
        fetch_ms=times.get("fetch_ms"),
        forward_ms=times.get("fwd_ms"),
        backward_ms=times.get("bwd_ms"),
        optimiser_ms=times.get("opt_ms"),
        waiting_share=times.get("fetch_frac"),
        dropped=values.get("error_records"),
        metrics=values,
    )


def _numbers(values: Any, ending: str = "") -> dict[str, float | None]:
    if not isinstance(values, Mapping):
        return {}
    return {str(key).removesuffix(ending): _number(value) for key, value in values.items()}


def _learning_rate(value: Any) -> float | None:
    """With Muon there are two; Muon's, for it moves the matrices."""
    if isinstance(value, Mapping):
        value = value.get("Muon", next(iter(value.values()), None))
    return _number(value)


def _number(value: Any) -> float | None:
    """A finite number, else None: NaN and infinity are no values."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _count(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else 0


class Watch:
    """Looks at steps for what should not go on. Each trouble is told once.

    ``nan``: the loss is no number. ``starved``: most of the time goes into waiting for hidden states.
    ``dropped``: samples could not be had.
    """

    WINDOW = 20
    WAITING = 0.5
    PLATEAU = 200

    def __init__(self) -> None:
        self._waiting: list[float] = []
        self._losses: list[float] = []
        self._told: set[str] = set()
        self._dropped = 0.0

    def look(self, step: StepDone) -> tuple[str, str] | None:
        """The trouble that this step shows, and a sentence about it; None where there is none."""
        if step.loss is None:
            return self._once("nan", f"the loss of step {step.step} is not a number")
        self._losses = [*self._losses[-self.PLATEAU :], step.loss]
        self._dropped += step.dropped or 0.0
        if self._dropped and (found := self._once("dropped", "samples of a step could not be had")):
            return found
        if step.waiting_share is not None:
            self._waiting = [*self._waiting[1 - self.WINDOW :], step.waiting_share]
            share = sum(self._waiting) / len(self._waiting)
            if len(self._waiting) >= self.WINDOW and share > self.WAITING:
                return self._once(
                    "starved", f"{share:.0%} of the last {self.WINDOW} steps was waiting for states"
                )
        return self._flat()

    def _flat(self) -> tuple[str, str] | None:
        """A loss that has stayed high and where it was: often a mask that does not fit the tokenizer."""
        if len(self._losses) <= self.PLATEAU:
            return None
        half = self.PLATEAU // 2
        earlier = sum(self._losses[-self.PLATEAU : -half]) / half
        later = sum(self._losses[-half:]) / half
        if later > 1.0 and later > 0.995 * earlier:
            return self._once(
                "plateau", f"the loss has stayed at {later:.2f} for {self.PLATEAU} steps"
            )
        return None

    def _once(self, code: str, text: str) -> tuple[str, str] | None:
        if code in self._told:
            return None
        self._told.add(code)
        return code, text
