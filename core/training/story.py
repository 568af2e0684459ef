"""What is known of a training run, from the lines of its events. Pure.

Lines come from a file that anybody may have written to: what is not as expected is left out, never an error.
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from specpanel.core.training.curve import Curve
from specpanel.core.training.records import STAGE_ORDER

StageState = Literal["waiting", "running", "done", "as before", "stopped", "failed"]
Severity = Literal["error", "warning", "note"]
EndState = Literal["done", "stopped", "failed"]

ALWAYS_SHOWN = STAGE_ORDER[:3]
RECENT = 20
STARVED = 0.5
_MOST_TROUBLES = 50


@dataclass(frozen=True, slots=True)
class StageCourse:
    """A stage: ``took_s`` where it has ended, ``doing`` what it says of itself meanwhile."""

    name: str
    state: StageState = "waiting"
    took_s: float | None = None
    doing: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Position:
    """How often the draft agreed here and before (``unconditional``), and here given that."""

    position: int  # 0 is the first drafted token
    unconditional: float
    conditional: float | None


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
    positions: tuple[Position, ...]


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
class Trouble:
    """Something to be said about the run, and what to do about it."""

    code: str
    severity: Severity
    text: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """How the run ended; ``failure`` is its sentence and fix. ``took_s`` is of all stages that have a
    result, where that is told, else of this run alone."""

    state: EndState
    failure: str | None
    took_s: float | None
    resumable: bool


class Story:
    """Takes the lines of a run's events in order. A run that was gone on with keeps its curves."""

    def __init__(self) -> None:
        self.recipe: Mapping[str, Any] = {}
        self.stages: dict[str, StageCourse] = {}
        self.loss = Curve()
        self.validation_loss = Curve()
        self.length = Curve()
        self.validation_length = Curve()
        self.learning_rate = Curve()
        self.tokens_per_s = Curve()
        self._recent: deque[tuple[int, Mapping[str, Any]]] = deque(maxlen=RECENT)
        self.validation_positions: tuple[Position, ...] = ()
        self.validated_at: int | None = None
        self.last_step: int | None = None
        self.steps_per_epoch: int | None = None
        self.formula = ""
        self.checkpoints: dict[int, KeptCheckpoint] = {}
        self.served: dict[int, ServedCheckpoint] = {}
        self.troubles: list[Trouble] = []
        self.dropped = 0.0
        self.saving = False
        self.resumed_from: int | None = None
        self.log: Path | None = None
        self.note = ""
        self.ending: Ending | None = None
        self.lines = 0
        self.unreadable = 0

    # What it is about

    @property
    def name(self) -> str:
        return _text(self.recipe.get("name"))

    @property
    def algorithm(self) -> str:
        return _text(self.section("algorithm").get("type"))

    @property
    def target(self) -> str:
        return _text(self.section("target").get("model"))

    def section(self, name: str) -> Mapping[str, Any]:
        """A section of the recipe; empty where there is none."""
        return _table(self.recipe.get(name))

    @property
    def recent(self) -> list[Step]:
        """The last steps."""
        return [_step(step, line) for step, line in self._recent]

    @property
    def newest(self) -> Step | None:
        return _step(*self._recent[-1]) if self._recent else None

    @property
    def wanted_steps(self) -> int | None:
        """The step that training ends at: what the trainer says, else the recipe."""
        return self.last_step or _count(self.section("trainer").get("steps"))

    @property
    def running(self) -> StageCourse | None:
        """The stage that is being done."""
        return next((one for one in self.stages.values() if one.state == "running"), None)

    def shown_stages(self) -> Iterator[StageCourse]:
        """The stages in order; the last two only where the run has them."""
        for name in STAGE_ORDER:
            if name in self.stages or name in ALWAYS_SHOWN:
                yield self.stages.get(name, StageCourse(name))

    def waiting_share(self) -> float | None:
        """Mean share of the last steps that went into waiting for hidden states."""
        return mean([one.waiting_share for one in self.recent])

    def alarms(self) -> list[Trouble]:
        """What should not go on, the worst first, without what is over."""
        found = list(self.troubles)
        ending = self.ending
        if ending is not None and ending.failure:
            found.insert(0, Trouble("failed", "error", ending.failure))
        share = self.waiting_share()
        told = {one.code for one in found}
        enough = len(self._recent) == RECENT
        if share is not None and enough and share > STARVED and "training-starved" not in told:
            text = f"{share:.0%} of the last {RECENT} steps was waiting for hidden states"
            found.append(Trouble("training-starved", "warning", text))
        if self.dropped:
            found = [one for one in found if one.code != "training-dropped"]
            text = f"{self.dropped:.0f} samples could not be had"
            found.append(Trouble("training-dropped", "warning", text))
        if self.unreadable:
            many = "line" if self.unreadable == 1 else "lines"
            text = f"{self.unreadable} {many} of the events could not be read"
            found.append(Trouble("events-unreadable", "note", text))
        order = ("error", "warning", "note")
        return sorted(found, key=lambda one: order.index(one.severity))

    # Taking

    def take(self, line: Mapping[str, Any] | None) -> None:
        """One line as an object; None for one that could not be read."""
        self.lines += 1
        if line is None:
            self.unreadable += 1
            return
        take = _TAKES.get(_text(line.get("kind")))
        if take is not None:
            take(self, line)

    def _take_recipe(self, line: Mapping[str, Any]) -> None:
        recipe = line.get("recipe")
        self.recipe = recipe if isinstance(recipe, Mapping) else {}
        ended = [one for one in self.stages.values() if one.state in ("done", "as before")]
        self.stages = {one.name: replace(one, state="as before") for one in ended}
        self.troubles = []
        self.saving, self.ending, self.resumed_from = False, None, None
        self.note, self.dropped = "", 0.0

    def _take_stage(self, line: Mapping[str, Any]) -> None:
        name = _text(line.get("stage"))
        if name in STAGE_ORDER:
            self.stages[name] = StageCourse(name, "running")

    def _take_stage_skipped(self, line: Mapping[str, Any]) -> None:
        self._end_stage(line, "as before")

    def _take_stage_ended(self, line: Mapping[str, Any]) -> None:
        self._end_stage(line, "done")

    def _end_stage(self, line: Mapping[str, Any], state: StageState) -> None:
        name, facts = _text(line.get("stage")), line.get("facts")
        if name in STAGE_ORDER:
            known: Mapping[str, Any] = facts if isinstance(facts, Mapping) else {}
            took_s = number(line.get("took_s"))
            self.stages[name] = StageCourse(name, state, took_s, facts=known)

    def _say(self, text: str) -> None:
        """What the running stage does."""
        running = self.running
        if running is not None and running.doing != text:
            self.stages[running.name] = replace(running, doing=text)

    def _take_progress(self, line: Mapping[str, Any]) -> None:
        done, total = _count(line.get("done")), _count(line.get("total"))
        of = "" if total is None else f" of {total}"
        self._say(f"{_text(line.get('what'))} {0 if done is None else done}{of}")

    def _take_phase(self, line: Mapping[str, Any]) -> None:
        phase = _text(line.get("phase"))
        self._say("the server is ready" if phase == "ready" else f"server: {phase}")

    def _take_launched(self, line: Mapping[str, Any]) -> None:
        self._take_log(line)
        self._say(f"starting {_text(line.get('name'))}")

    def _take_trainer(self, line: Mapping[str, Any]) -> None:
        self._take_log(line)
        self.saving = False
        self.resumed_from = _count(line.get("resumed_from_step"))
        self._recent.clear()
        self._say("the trainer is starting")

    def _take_log(self, line: Mapping[str, Any]) -> None:
        log = _text(line.get("log"))
        self.log = Path(log) if log else self.log

    def _take_loader(self, line: Mapping[str, Any]) -> None:
        self.steps_per_epoch = _count(line.get("steps_per_epoch"))
        self.last_step = _count(line.get("last_step")) or None
        self._say("packing is done")

    def _take_step(self, line: Mapping[str, Any]) -> None:
        step = _count(line.get("step"))
        if step is None:
            return
        if self._recent and step <= self._recent[-1][0]:
            self._recent.clear()
        self._recent.append((step, line))
        prediction = line.get("prediction")
        length = prediction.get("acceptance_length") if isinstance(prediction, Mapping) else None
        self.loss.add(step, number(line.get("loss")))
        self.length.add(step, number(length))
        self.learning_rate.add(step, number(line.get("learning_rate")))
        self.tokens_per_s.add(step, number(line.get("tokens_per_s")))
        self.dropped += number(line.get("dropped")) or 0.0
        self._say("")

    def _take_validation(self, line: Mapping[str, Any]) -> None:
        step = _count(line.get("step"))
        if step is None:
            return
        length, positions, formula = _prediction(line.get("prediction"))
        self.validation_loss.add(step, number(line.get("loss")))
        self.validation_length.add(step, length)
        self.validation_positions, self.validated_at = positions, step
        self.formula = formula

    def _take_checkpoint(self, line: Mapping[str, Any]) -> None:
        step, path = _count(line.get("step")), _text(line.get("path"))
        if step is None or not path:
            return
        length, _, _ = _prediction(line.get("prediction"))
        loss = number(line.get("validation_loss"))
        best = line.get("best") is True
        self.checkpoints[step] = KeptCheckpoint(step, Path(path), loss, length, best)

    def _take_evaluation(self, line: Mapping[str, Any]) -> None:
        step = _count(line.get("step"))
        if step is not None:
            self.served[step] = _served(step, line)

    def _take_finding(self, line: Mapping[str, Any]) -> None:
        said = _text(line.get("severity"))
        severity: Severity = said if said in ("error", "warning") else "note"  # type: ignore[assignment]
        found = Trouble(
            _text(line.get("code")), severity, _text(line.get("text")), _text(line.get("fix"))
        )
        if found not in self.troubles and len(self.troubles) < _MOST_TROUBLES:
            self.troubles.append(found)

    def _take_note(self, line: Mapping[str, Any]) -> None:
        self.note = _text(line.get("text"))

    def _take_saving(self, line: Mapping[str, Any]) -> None:
        self.saving = True
        self._say("saving")

    def _take_trainer_ended(self, line: Mapping[str, Any]) -> None:
        self.saving = False
        reason = _text(line.get("reason"))
        self._say(f"the trainer has ended ({reason})" if reason else "the trainer has ended")

    def _take_summary(self, line: Mapping[str, Any]) -> None:
        failure = _text(line.get("failure")) or None
        stopped = line.get("interrupted") is True
        state: EndState = "failed" if failure else "stopped" if stopped else "done"
        minutes = number(line.get("minutes"))
        took_s = number(line.get("took_s")) if minutes is None else 60 * minutes
        self.ending = Ending(state, failure, took_s, line.get("resumable") is True)
        self.saving = False
        running = self.running
        if running is not None:
            last: StageState = "failed" if failure else "stopped"
            self.stages[running.name] = replace(running, state=last, doing="")


_TAKES = {
    name.removeprefix("_take_"): method
    for name, method in vars(Story).items()
    if name.startswith("_take_") and name != "_take_log"
}


def _step(step: int, line: Mapping[str, Any]) -> Step:
    length, positions, _ = _prediction(line.get("prediction"))
    return Step(
        step=step,
        epoch=_count(line.get("epoch")) or 0,
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


def _prediction(found: Any) -> tuple[float | None, tuple[Position, ...], str]:
    """Acceptance length, accuracies by position, and the formula behind the length."""
    if not isinstance(found, Mapping):
        return None, (), ""
    listed = found.get("positions")
    positions = tuple(_positions(listed if isinstance(listed, Sequence) else ()))
    return number(found.get("acceptance_length")), positions, _text(found.get("formula"))


def _served(step: int, line: Mapping[str, Any]) -> ServedCheckpoint:
    heldout, validation = _table(line.get("heldout")), _table(line.get("validation"))
    interval = _table(heldout.get("interval"))
    checks = line.get("checks")
    found = [_table(one) for one in checks] if isinstance(checks, list) else []
    causes = [_text(one.get("text")) for one in found if one.get("state") == "differs"]
    return ServedCheckpoint(
        step=step,
        heldout=number(heldout.get("acceptance_length")),
        low=number(interval.get("low")),
        high=number(interval.get("high")),
        validation=number(validation.get("acceptance_length")),
        predicted=number(line.get("predicted")),
        gap=number(line.get("gap")),
        causes=tuple(one for one in causes if one),
        failure=_text(line.get("failure")),
    )


def _table(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}


def _positions(listed: Sequence[Any]) -> Iterator[Position]:
    for one in listed:
        if not isinstance(one, Mapping):
            continue
        place, rate = _count(one.get("position")), number(one.get("unconditional"))
        if place is not None and rate is not None:
            yield Position(place, rate, number(one.get("conditional")))


def mean(values: Sequence[float | None]) -> float | None:
    """Of those that are there; None where none is."""
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None


def number(value: Any) -> float | None:
    """A finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _count(value: Any) -> int | None:
    found = number(value)
    return None if found is None or found < 0 else int(found)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
