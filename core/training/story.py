"""What is known of a training run, from the lines of its events. Pure.

Lines come from a file that anybody may have written to: what is not as expected is left out, never an error.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from specpanel.core.training.alarms import RECENT, Trouble, alarms, trouble_of
from specpanel.core.training.curve import Curve
from specpanel.core.training.line_values import count, mean, number, table, text
from specpanel.core.training.records import STAGE_ORDER, PositionAccuracy
from specpanel.core.training.story_parts import (
    Ending,
    EndState,
    KeptCheckpoint,
    ServedCheckpoint,
    StageCourse,
    StageState,
    Step,
    prediction_of,
    served_of,
    step_of,
)

ALWAYS_SHOWN = STAGE_ORDER[:3]
_MOST_TROUBLES = 50


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
        self.validation_positions: tuple[PositionAccuracy, ...] = ()
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
        return text(self.recipe.get("name"))

    @property
    def algorithm(self) -> str:
        return text(self.section("algorithm").get("type"))

    @property
    def target(self) -> str:
        return text(self.section("target").get("model"))

    def section(self, name: str) -> Mapping[str, Any]:
        """A section of the recipe; empty where there is none."""
        return table(self.recipe.get(name))

    @property
    def recent(self) -> list[Step]:
        """The last steps."""
        return [step_of(step, line) for step, line in self._recent]

    @property
    def newest(self) -> Step | None:
        return step_of(*self._recent[-1]) if self._recent else None

    @property
    def wanted_steps(self) -> int | None:
        """The step that training ends at: what the trainer says, else the recipe."""
        return self.last_step or count(self.section("trainer").get("steps"))

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
        ending = self.ending
        return alarms(
            self.troubles,
            failure=None if ending is None else ending.failure,
            waiting_share=self.waiting_share() if len(self._recent) == RECENT else None,
            dropped=self.dropped,
            unreadable=self.unreadable,
        )

    # Taking

    def take(self, line: Mapping[str, Any] | None) -> None:
        """One line as an object; None for one that could not be read."""
        self.lines += 1
        if line is None:
            self.unreadable += 1
            return
        take = _TAKES.get(text(line.get("kind")))
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
        name = text(line.get("stage"))
        if name in STAGE_ORDER:
            self.stages[name] = StageCourse(name, "running")

    def _take_stage_skipped(self, line: Mapping[str, Any]) -> None:
        self._end_stage(line, "as before")

    def _take_stage_ended(self, line: Mapping[str, Any]) -> None:
        self._end_stage(line, "done")

    def _end_stage(self, line: Mapping[str, Any], state: StageState) -> None:
        name, facts = text(line.get("stage")), line.get("facts")
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
        done, total = count(line.get("done")), count(line.get("total"))
        of = "" if total is None else f" of {total}"
        self._say(f"{text(line.get('what'))} {0 if done is None else done}{of}")

    def _take_phase(self, line: Mapping[str, Any]) -> None:
        phase = text(line.get("phase"))
        self._say("the server is ready" if phase == "ready" else f"server: {phase}")

    def _take_launched(self, line: Mapping[str, Any]) -> None:
        self._take_log(line)
        self._say(f"starting {text(line.get('name'))}")

    def _take_trainer(self, line: Mapping[str, Any]) -> None:
        self._take_log(line)
        self.saving = False
        self.resumed_from = count(line.get("resumed_from_step"))
        self._recent.clear()
        self._say("the trainer is starting")

    def _take_log(self, line: Mapping[str, Any]) -> None:
        log = text(line.get("log"))
        self.log = Path(log) if log else self.log

    def _take_loader(self, line: Mapping[str, Any]) -> None:
        self.steps_per_epoch = count(line.get("steps_per_epoch"))
        self.last_step = count(line.get("last_step")) or None
        self._say("packing is done")

    def _take_step(self, line: Mapping[str, Any]) -> None:
        step = count(line.get("step"))
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
        step = count(line.get("step"))
        if step is None:
            return
        length, positions, formula = prediction_of(line.get("prediction"))
        self.validation_loss.add(step, number(line.get("loss")))
        self.validation_length.add(step, length)
        self.validation_positions, self.validated_at = positions, step
        self.formula = formula

    def _take_checkpoint(self, line: Mapping[str, Any]) -> None:
        step, path = count(line.get("step")), text(line.get("path"))
        if step is None or not path:
            return
        length, _, _ = prediction_of(line.get("prediction"))
        loss = number(line.get("validation_loss"))
        best = line.get("best") is True
        self.checkpoints[step] = KeptCheckpoint(step, Path(path), loss, length, best)

    def _take_evaluation(self, line: Mapping[str, Any]) -> None:
        step = count(line.get("step"))
        if step is not None:
            self.served[step] = served_of(step, line)

    def _take_finding(self, line: Mapping[str, Any]) -> None:
        found = trouble_of(line)
        if found not in self.troubles and len(self.troubles) < _MOST_TROUBLES:
            self.troubles.append(found)

    def _take_note(self, line: Mapping[str, Any]) -> None:
        self.note = text(line.get("text"))

    def _take_saving(self, line: Mapping[str, Any]) -> None:
        self.saving = True
        self._say("saving")

    def _take_trainer_ended(self, line: Mapping[str, Any]) -> None:
        self.saving = False
        reason = text(line.get("reason"))
        self._say(f"the trainer has ended ({reason})" if reason else "the trainer has ended")

    def _take_summary(self, line: Mapping[str, Any]) -> None:
        failure = text(line.get("failure")) or None
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
