"""The chain: the stages of one training run in order, each taken from before where nothing changed.

What it starts it also ends, on every way out: done, failed, interrupted.
"""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specpanel.core.engine.interpreter import probe_interpreter, resolve_python
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.errors import ConfigurationError, ExitCode, RecordingError, SpecpanelError
from specpanel.core.monitor.recording import Recorder
from specpanel.core.session.events import Note
from specpanel.core.session.launch import InterruptedRunError
from specpanel.core.session.targets import with_model_paths
from specpanel.core.training.algorithms import KINDS
from specpanel.core.training.checks import check_recipe, trainer_takes
from specpanel.core.training.data_stage import DataStage
from specpanel.core.training.evaluate_stage import EvaluateStage
from specpanel.core.training.evaluation import best_served
from specpanel.core.training.events import (
    RecipeChosen,
    StageBegan,
    StageEnded,
    StageSkipped,
    TrainingEvent,
    TrainingListener,
    TrainingSummaryMade,
    plain,
    training_line,
)
from specpanel.core.training.extraction_stage import ExtractionStage
from specpanel.core.training.folder import RunFolder, runs_of, training_folder, write_json
from specpanel.core.training.promote_stage import PromoteStage
from specpanel.core.training.recipe import Recipe
from specpanel.core.training.records import (
    STAGE_ORDER,
    StageName,
    StageReport,
    TrainingSummary,
)
from specpanel.core.training.servers import stop_orphans
from specpanel.core.training.stage import Stage, Workplace, digest
from specpanel.core.training.train_stage import TrainStage
from specpanel.core.training.trainer_command import absolute

STAGES: dict[StageName, Callable[[], Stage]] = {
    "data": DataStage,
    "extraction": ExtractionStage,
    "train": TrainStage,
    "evaluate": EvaluateStage,
    "promote": PromoteStage,
}
_ASKED_FOR = frozenset({"promote"})  # done only where a recipe or a command names it


def usual_stages(recipe: Recipe) -> tuple[StageName, ...]:
    """The stages of a run that asks for none in particular."""
    return tuple(
        name for name in STAGES if name not in _ASKED_FOR or recipe.promotion.server is not None
    )


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """What a run is to do.

    ``folder`` None: a new one, or with ``resume`` this recipe's newest. ``stages`` empty: the usual ones.
    ``redo``: do the stages again though their results are there.
    """

    recipe: Recipe
    stages: tuple[StageName, ...] = ()
    folder: Path | None = None
    resume: bool = False
    redo: bool = False


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """How a run ended: what it came to, and the error that ended it early."""

    summary: TrainingSummary
    error: SpecpanelError | None

    @property
    def exit_code(self) -> ExitCode:
        if self.error is not None:
            return self.error.exit_code
        return ExitCode.INTERRUPTED if self.summary.interrupted else ExitCode.DONE


class Training:
    """Runs a plan once. ``interrupt`` may be called at any time; a second call hurries."""

    def __init__(self, plan: TrainingPlan, listener: TrainingListener) -> None:
        self.plan = plan
        self.folder = RunFolder(_folder(plan))
        self._listener = listener
        self._interrupted = asyncio.Event()
        self._hurry = threading.Event()
        self._recorder: Recorder | None = None
        self._began_s = time.monotonic()
        self._reports: list[StageReport] = []
        self._target = plan.recipe.target.model

    def interrupt(self) -> None:
        """End soon, everything saved. The second time: at once."""
        if self._interrupted.is_set():
            self._hurry.set()
        self._interrupted.set()

    async def run(self) -> TrainingOutcome:
        """Do the stages; tell what came of them, also after an interrupt or a failure.

        Raises:
            RecordingError: the run's folder cannot be written.
        """
        error: SpecpanelError | None = None
        self._begin()
        try:
            self._emit(RecipeChosen(self.plan.recipe.table(), str(self.folder.root)))
            try:
                await self._stages()
            except InterruptedRunError:
                pass
            except SpecpanelError as failure:
                error = failure
            summary = self._summary(error)
            with contextlib.suppress(RecordingError):  # a full disk: the stream still tells it
                write_json(self.folder.summary, plain(_as_dict(summary)))
            self._emit(TrainingSummaryMade(summary))
            return TrainingOutcome(summary, error)
        finally:
            if self._recorder is not None:
                self._recorder.close()

    # -- the stages -----------------------------------------------------------------------------

    async def _stages(self) -> None:
        place = await self._workplace()
        wanted = self.plan.stages or usual_stages(self.plan.recipe)
        stages = [STAGES[name]() for name in STAGE_ORDER if name in wanted]
        async with place.held:
            for index, stage in enumerate(stages, 1):
                place.raise_if_interrupted()
                if self._stands(stage, place):
                    continue
                await self._do(stage, index, len(stages), place)

    async def _do(self, stage: Stage, index: int, of: int, place: Workplace) -> None:
        self._emit(StageBegan(stage.name, index, of))
        began_s = time.monotonic()
        place.folder.forget_report(stage.name)
        needed = digest(stage.depends_on(place))
        facts = await stage.run(place)
        report = StageReport(stage.name, time.monotonic() - began_s, needed, facts)
        place.folder.keep_report(report)
        self._reports.append(report)
        self._emit(StageEnded(report))

    def _stands(self, stage: Stage, place: Workplace) -> bool:
        """Whether the stage's earlier result is used; that is told."""
        report = place.folder.report(stage.name)
        if report is None or self.plan.redo or _is_changed(stage, report, place):
            return False
        self._reports.append(report)
        self._emit(StageSkipped(stage.name, report))
        return True

    async def _workplace(self) -> Workplace:
        recipe = self.plan.recipe
        vllm = await asyncio.to_thread(_probe, recipe.engine.python)
        trainer = await asyncio.to_thread(_trainer_facts, recipe, vllm)
        self._raise_if_interrupted()
        profile = recipe.profile(recipe.target.model, recipe.engine.port, recipe.name)
        profile = await asyncio.to_thread(with_model_paths, profile, vllm.python, self._note)
        self._target = absolute(profile.target.model)
        self._raise_if_interrupted()
        place = Workplace(
            recipe=recipe,
            folder=self.folder,
            target=self._target,
            vllm=vllm,
            trainer=trainer,
            emit=self._emit,
            interrupted=self._interrupted,
            hurry=self._hurry,
            resume=self.plan.resume,
        )
        for record in await asyncio.to_thread(
            stop_orphans, recipe.name, recipe.engine.stop_timeout_s
        ):
            self._note(f"{record.name}, left behind by a run that was killed, was stopped")
        for finding in check_recipe(place):
            self._emit(finding)
            if finding.severity == "error":
                raise ConfigurationError(finding.text, finding.fix)
        await trainer_takes(place)
        return place

    # -- small things -----------------------------------------------------------------------------

    def _begin(self) -> None:
        try:
            self.folder.make()
        except OSError as error:
            raise RecordingError(
                f"the folder {self.folder.root} cannot be made: {error.strerror or error}",
                "Name another with --folder.",
            ) from None
        write_json(self.folder.recipe, self.plan.recipe.table())
        self._recorder = Recorder(self.folder.events())

    def _raise_if_interrupted(self) -> None:
        if self._interrupted.is_set():
            raise InterruptedRunError

    def _note(self, text: str) -> None:
        self._emit(Note(text))

    def _emit(self, event: TrainingEvent) -> None:
        if self._recorder is not None:
            try:
                self._recorder.write(training_line(event))
            except RecordingError as error:
                self._recorder = None
                self._listener(Note(f"{error.message}; the run goes on without a recording"))
        self._listener(event)

    def _summary(self, error: SpecpanelError | None) -> TrainingSummary:
        kept = self.folder.kept()
        best = next((one for one in kept if one.best), None)
        train = next((one for one in self._reports if one.stage == "train"), None)
        steps = train.facts.get("steps") if train else (kept[-1].step if kept else None)
        evaluations = self.folder.evaluations()
        unfinished = error is not None or self._interrupted.is_set()
        return TrainingSummary(
            recipe=self.plan.recipe.name,
            algorithm=self.plan.recipe.algorithm.type,
            target=self._target,
            folder=self.folder.root,
            steps=steps,
            took_s=time.monotonic() - self._began_s,
            stages=tuple(self._reports),
            checkpoints=kept,
            best=best or (kept[-1] if kept else None),
            interrupted=self._interrupted.is_set(),
            failure=None if error is None else str(error),
            resumable=unfinished and self.folder.rows.exists(),
            evaluations=evaluations,
            served_best=best_served(evaluations),
            minutes=sum(one.took_s for one in self._reports) / 60 if self._reports else None,
        )


def _as_dict(summary: TrainingSummary) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(summary)


def _is_changed(stage: Stage, report: StageReport, place: Workplace) -> bool:
    return report.settings_sha256 != digest(stage.depends_on(place))


def _folder(plan: TrainingPlan) -> Path:
    if plan.folder is not None:
        return Path(os.path.abspath(plan.folder.expanduser()))
    if plan.resume:
        runs = runs_of(plan.recipe.name)
        if not runs:
            raise ConfigurationError(
                f"there is no run of {plan.recipe.name} to go on with",
                "Leave --resume out to begin one.",
            )
        return runs[-1]
    stamp = time.strftime("%Y%m%d-%H%M%S")
    place = training_folder() / plan.recipe.name
    return place / (stamp if not (place / stamp).exists() else f"{stamp}-{os.getpid()}")


def _probe(configured: str | None) -> InterpreterFacts:
    return probe_interpreter(resolve_python(configured))


def _trainer_facts(recipe: Recipe, vllm: InterpreterFacts) -> InterpreterFacts:
    """The interpreter that holds Speculators.

    Raises:
        ConfigurationError: none does.
    """
    if recipe.trainer.python is not None:
        facts = _probe(recipe.trainer.python)
        if "speculators" in facts.packages:
            return facts
        raise ConfigurationError(
            f"there is no Speculators in {facts.python}",
            f"Install it: {facts.python} -m pip install 'speculators>=0.9', or set trainer.python.",
        )
    for facts in (vllm, _probe(None)):
        if "speculators" in facts.packages:
            return facts
    raise ConfigurationError(
        f"Speculators, which {KINDS[recipe.algorithm.type].title} is trained with, is not installed",
        "make train-demo installs it here; elsewhere: pip install 'specpanel[train]', or set "
        "trainer.python.",
    )
