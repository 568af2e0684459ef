"""What a training's story tells of: stages, steps, checkpoints, and what each line says of them. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from specpanel.core.training.line_values import count, number, table, text
from specpanel.core.training.records import PositionAccuracy

StageState = Literal["waiting", "running", "done", "as before", "stopped", "failed"]
EndState = Literal["done", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class StageCourse:
    """A stage: ``took_s`` where it has ended, ``doing`` what it says of itself meanwhile."""

    name: str
    state: StageState = "waiting"
    took_s: float | None = None
    doing: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """The newest step; times in milliseconds, ``waiting_share`` of the step for hidden states."""

    step: int
    epoch: int
    elapsed_s: float | None
    loss: float | None
    length: float | None
    learning_rate: float | None
    tokens_per_s: float | None
    step_ms: float | None
    fetch_ms: float | None
    forward_ms: float | None
    backward_ms: float | None
    optimiser_ms: float | None
    waiting_share: float | None
    positions: tuple[PositionAccuracy, ...]


@dataclass(frozen=True, slots=True)
class KeptCheckpoint:
    """A checkpoint of the run; ``predicted`` is the acceptance length that its trainer foretold."""

    step: int
    path: Path
    validation_loss: float | None
    predicted: float | None
    best: bool


@dataclass(frozen=True, slots=True)
class ServedCheckpoint:
    """What serving a checkpoint showed, beside what its trainer foretold.

    ``heldout`` and ``validation`` are acceptance lengths, ``low`` and ``high`` the 95 % interval of the
    first. ``gap`` is served / predicted - 1 on the validation prompts. ``causes`` are sentences about what
    differs where the gap is large.
    """

    step: int
    heldout: float | None
    low: float | None
    high: float | None
    validation: float | None
    predicted: float | None
    gap: float | None
    causes: tuple[str, ...]
    failure: str


@dataclass(frozen=True, slots=True)
class Ending:
    """How the run ended; ``failure`` is its sentence and fix. ``took_s`` is of all stages that have a
    result, where that is told, else of this run alone."""

    state: EndState
    failure: str | None
    took_s: float | None
    resumable: bool


def step_of(step: int, line: Mapping[str, Any]) -> Step:
    length, positions, _ = prediction_of(line.get("prediction"))
    return Step(
        step=step,
        epoch=count(line.get("epoch")) or 0,
        length=length,
        positions=positions,
        **{name: number(line.get(name)) for name in _STEP_NUMBERS},
    )


_STEP_NUMBERS = (
    "elapsed_s",
    "loss",
    "learning_rate",
    "tokens_per_s",
    "step_ms",
    "fetch_ms",
    "forward_ms",
    "backward_ms",
    "optimiser_ms",
    "waiting_share",
)


def prediction_of(found: Any) -> tuple[float | None, tuple[PositionAccuracy, ...], str]:
    """Acceptance length, accuracies by position, and the formula behind the length."""
    if not isinstance(found, Mapping):
        return None, (), ""
    listed = found.get("positions")
    positions = tuple(_positions(listed if isinstance(listed, Sequence) else ()))
    return number(found.get("acceptance_length")), positions, text(found.get("formula"))


def served_of(step: int, line: Mapping[str, Any]) -> ServedCheckpoint:
    heldout, validation = table(line.get("heldout")), table(line.get("validation"))
    interval = table(heldout.get("interval"))
    checks = line.get("checks")
    found = [table(one) for one in checks] if isinstance(checks, list) else []
    causes = [text(one.get("text")) for one in found if one.get("state") == "differs"]
    return ServedCheckpoint(
        step=step,
        heldout=number(heldout.get("acceptance_length")),
        low=number(interval.get("low")),
        high=number(interval.get("high")),
        validation=number(validation.get("acceptance_length")),
        predicted=number(line.get("predicted")),
        gap=number(line.get("gap")),
        causes=tuple(one for one in causes if one),
        failure=text(line.get("failure")),
    )


def _positions(listed: Sequence[Any]) -> Iterator[PositionAccuracy]:
    for one in listed:
        if not isinstance(one, Mapping):
            continue
        place, rate = count(one.get("position")), number(one.get("unconditional"))
        if place is not None and rate is not None:
            yield PositionAccuracy(place, rate, number(one.get("conditional")))
