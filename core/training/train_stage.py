"""The train stage: the trainer as a child, followed step by step, stopped so that nothing is lost."""

import asyncio
import dataclasses
import json
import shutil
import time
from pathlib import Path
from typing import Any, ClassVar, Literal

from specpanel.core.checkpoints.tokenizer import tokenizer_digest
from specpanel.core.engine.logfile import LogFollower
from specpanel.core.errors import SpecpanelError
from specpanel.core.session.events import FindingMade, Note
from specpanel.core.session.launch import InterruptedRunError
from specpanel.core.training.child import last_words
from specpanel.core.training.drafter_identity import (
    mapping_digest,
    mark_drafter,
    refuse_other_drafter,
)
from specpanel.core.training.events import (
    CheckpointKept,
    LoaderKnown,
    Saving,
    StepDone,
    TrainerEnded,
    TrainerStarted,
    ValidationDone,
)
from specpanel.core.training.extraction_server import ExtractionServer, refuse_full, target_layers
from specpanel.core.training.extraction_stage import HELD, close_server, open_server
from specpanel.core.training.progress import Saved, Watch, read_metrics
from specpanel.core.training.records import Checkpoint, StageName
from specpanel.core.training.saves import make_resumable, put_aside_after
from specpanel.core.training.servers import is_cpu
from specpanel.core.training.stage import Workplace
from specpanel.core.training.starting import prepare_start
from specpanel.core.training.trainer_command import trainer_command, trainer_flags
from specpanel.core.training.trainer_process import TrainerProcess

_POLL_S = 0.2
_SHM_CHECK_S = 2.0

Reason = Literal["done", "interrupted", "best", "nan", "full", "server", "failed"]


class TrainStage:
    """Trains, and goes on from what an earlier run saved."""

    name: ClassVar[StageName] = "train"

    def depends_on(self, place: Workplace) -> dict[str, Any]:
        data, layers = place.folder.report("data"), target_layers(place)[0]
        return {
            "algorithm": place.recipe.algorithm.model_dump(mode="json"),
            "trainer": place.recipe.trainer.model_dump(
                mode="json", exclude={"python", "threads", "prefetch", "save_timeout_s"}
            ),
            "layers": layers.written,
            "target": place.target,
            "data": data.settings_sha256 if data else None,
        }

    async def run(self, place: Workplace) -> dict[str, Any]:
        """Raises SpecpanelError where training cannot go on; what was saved stays."""
        refuse_full(
            place.folder.save,
            int(place.recipe.trainer.least_free_gib * (1 << 30)),
            0.0,
            "the checkpoints of the drafter",
        )
        refuse_other_drafter(place)
        run = _Run(place)
        starts = 0
        while True:
            starts += 1
            reason = await run.once()
            if reason != "server":
                break
            await close_server(place)
            if starts > place.recipe.extraction.restarts:
                raise SpecpanelError(
                    f"the extraction server died {starts} times; training stopped at step {run.step} "
                    "with everything saved",
                    "Look at the server's log, then go on with --resume.",
                )
            place.emit(Note("the extraction server is started once more, and training goes on"))
        await close_server(place)
        run.judge(reason)
        return run.facts(reason)


class _Run:
    """The trainer over all of its starts in this run."""

    def __init__(self, place: Workplace) -> None:
        self.place = place
        self.step: int | None = None
        self._watch = Watch()
        self._worse = 0
        self._kept: dict[int, Checkpoint] = {one.step: one for one in place.folder.kept()}
        self._best = next((one.validation_loss for one in self._kept.values() if one.best), None)
        self._losses: list[tuple[int, float]] = []
        self._waiting: list[float] = []
        self._per_s: list[float] = []
        self._last: StepDone | None = None
        self._validation: ValidationDone | None = None
        self._loader: LoaderKnown | None = None
        self._began_s = time.monotonic()
        self._stop: Reason | None = None
        self._spoilt: int | None = None  # the step whose loss was no number
        self._trainer: TrainerProcess | None = None

    async def once(self) -> Reason:
        """One start of the trainer, to its end; why it ended."""
        place, folder = self.place, self.place.folder
        resumable = await asyncio.to_thread(make_resumable, folder.save)
        for moved in resumable.moved:
            place.emit(Note(f"a save is not whole and was put aside: {moved}"))
        self.step = resumable.step
        start = await prepare_start(place)
        server = await self._server()
        layers, _ = target_layers(place)
        endpoint = server.endpoint if server else "http://127.0.0.1:9/v1"
        cpu = is_cpu(place)
        flags = trainer_flags(
            *(place.recipe, place.target, layers, folder, endpoint),
            cpu=cpu,
            start=start.flags() if start else None,
        )
        command = trainer_command(place.recipe, place.trainer.python, flags, folder, cpu=cpu)
        place.raise_if_interrupted()
        follower = LogFollower(folder.metrics, from_end=True)
        trainer = self._trainer = TrainerProcess(command, folder.log)
        place.emit(TrainerStarted(trainer.pid, str(folder.log), command.argv, resumable.step))
        self._stop = None
        try:
            await self._follow(trainer, follower, server)
        finally:
            await trainer.end()
        self._take(follower.rest(), trainer)
        if self._spoilt is not None:
            put_aside_after(folder.save, self._spoilt - 1)
        reason = self._reason(trainer)
        place.emit(
            TrainerEnded(trainer.exit_code, reason, self.step, time.monotonic() - trainer.began_s)
        )
        if self._stop is None and trainer.exit_code != 0:
            raise _failure(trainer.exit_code, folder.log)
        return reason

    def judge(self, reason: Reason) -> None:
        """Raise what the end of the trainer means for the run."""
        if reason == "interrupted":
            raise InterruptedRunError
        if reason == "nan":
            raise SpecpanelError(
                f"the loss became NaN at step {self.step}: training was ended at once",
                "Lower trainer.lr, or use fewer layers; the last checkpoint before it was kept.",
            )
        if reason == "full":
            raise SpecpanelError(
                f"the folder of hidden states was about to be full; training was saved at step {self.step}",
                "Free some space or set extraction.folder, then go on with --resume.",
            )

    def facts(self, reason: Reason) -> dict[str, Any]:
        waiting, per_s = self._waiting, self._per_s
        kept = sorted(self._kept.values(), key=lambda one: one.step)
        best = next((one for one in kept if one.best), None)
        return {
            "ended_by": reason,
            "steps": self.step,
            "steps_per_epoch": self._loader.steps_per_epoch if self._loader else None,
            "loss": self._last.loss if self._last else None,
            "validation_loss": self._validation.loss if self._validation else None,
            "predicted_acceptance_length": (
                best.prediction.acceptance_length if best and best.prediction else None
            ),
            "waiting_share": sum(waiting) / len(waiting) if waiting else None,
            "tokens_per_s": sum(per_s) / len(per_s) if per_s else None,
            "checkpoints": len(kept),
            "best": str(best.path) if best else None,
            "training_s": time.monotonic() - self._began_s,
        }

    # -- the server ---------------------------------------------------------------------------

    async def _server(self) -> ExtractionServer | None:
        if self.place.recipe.extraction.mode == "offline":
            return None
        held = self.place.shared.get(HELD)
        if isinstance(held, ExtractionServer) and not held.died:
            return held
        await close_server(self.place)
        return (await open_server(self.place))[0]

    # -- following ----------------------------------------------------------------------------

    async def _follow(
        self, trainer: TrainerProcess, follower: LogFollower, server: ExtractionServer | None
    ) -> None:
        looked_s = 0.0
        while trainer.exit_code is None:
            self._take(follower.new_lines(), trainer)
            if self._stop is None:
                looked_s = self._look_around(server, looked_s)
            if self._stop is not None:
                await self._end(trainer)
                return
            await asyncio.sleep(_POLL_S)

    def _look_around(self, server: ExtractionServer | None, looked_s: float) -> float:
        """See whether to stop for a reason beyond the metrics; when that was last looked at."""
        if self.place.interrupted.is_set():
            self._stop = "interrupted"
        elif server is not None and server.died:
            self.place.emit(Note(f"{server.failure().message}"))
            self._stop = "server"
        elif server is not None and time.monotonic() - looked_s > _SHM_CHECK_S:
            if server.free_share() < self.place.recipe.extraction.free_share:
                self._stop = "full"
            return time.monotonic()
        return looked_s

    async def _end(self, trainer: TrainerProcess) -> None:
        """Have the trainer save and end; at once where its weights are spoilt or the user hurries."""
        if self._stop == "nan":
            await trainer.end()
            return
        deadline_s = self.place.recipe.trainer.save_timeout_s
        self.place.emit(Saving(deadline_s))
        trainer.ask_to_stop()
        until = time.monotonic() + deadline_s
        while trainer.exit_code is None and time.monotonic() < until:
            if self.place.hurry.is_set():
                break
            await asyncio.sleep(_POLL_S)

    def _take(self, lines: list[bytes], trainer: TrainerProcess) -> None:
        for raw in lines:
            try:
                entry = json.loads(raw)
            except ValueError:
                continue
            if isinstance(entry, dict):
                self._take_event(read_metrics(entry, trainer.began_unix))

    def _take_event(self, event: LoaderKnown | StepDone | ValidationDone | Saved | None) -> None:
        if self._spoilt is not None:
            # The trainer may have gone on for a moment: nothing of that is good.
            if isinstance(event, Saved) and event.kept is not None:
                shutil.rmtree(event.kept, ignore_errors=True)
            return
        match event:
            case LoaderKnown():
                self._loader = event
                mark_drafter(self.place)  # the draft vocabulary is there from now on
                self.place.emit(event)
            case StepDone():
                self._take_step(event)
            case ValidationDone():
                self._take_validation(event)
            case Saved():
                self._take_save(event)

    def _take_step(self, step: StepDone) -> None:
        self.step, self._last = step.step, step
        if step.waiting_share is not None:
            self._waiting.append(step.waiting_share)
        if step.tokens_per_s is not None:
            self._per_s.append(step.tokens_per_s)
        self.place.emit(step)
        trouble = self._watch.look(step)
        if trouble is not None:
            self.place.emit(_finding(*trouble))
            if trouble[0] == "nan":
                self._stop, self._spoilt = "nan", step.step

    def _take_validation(self, done: ValidationDone) -> None:
        self._validation = done
        self.place.emit(done)
        better = done.loss is not None and (self._best is None or done.loss < self._best)
        kept = self._kept.get(done.step)
        if kept is not None:
            self._keep(
                dataclasses.replace(
                    kept, prediction=done.prediction, validation_loss=done.loss, best=better
                )
            )
        if done.loss is None:
            return
        if better:
            self._best, self._worse = done.loss, 0
            self._only_best(done.step)
            return
        self._worse += 1
        patience = self.place.recipe.trainer.patience
        if patience is not None and self._worse >= patience and self._stop is None:
            self.place.emit(
                Note(f"no better validation loss for {patience} epochs: training ends early")
            )
            self._stop = "best"

    def _take_save(self, saved: Saved) -> None:
        if saved.kept is None:
            return
        recipe = self.place.recipe
        self._keep(
            Checkpoint(
                path=Path(saved.kept),
                step=saved.step,
                epoch=saved.epoch,
                algorithm=recipe.algorithm.type,
                draft_tokens=recipe.algorithm.draft_tokens,
                target=self.place.target,
                prediction=None,
                validation_loss=None,
                tokenizer_sha256=tokenizer_digest(Path(self.place.target)),
                mapping_sha256=mapping_digest(self.place),
            )
        )

    def _keep(self, checkpoint: Checkpoint) -> None:
        self._kept[checkpoint.step] = checkpoint
        self.place.folder.keep(checkpoint)
        self.place.emit(CheckpointKept(checkpoint))

    def _only_best(self, step: int) -> None:
        for one in list(self._kept.values()):
            if one.best and one.step != step:
                self._keep(dataclasses.replace(one, best=False))

    def _reason(self, trainer: TrainerProcess) -> Reason:
        if self._stop is not None:
            return self._stop
        return "done" if trainer.exit_code == 0 else "failed"


def _finding(code: str, text: str) -> FindingMade:
    fixes = {
        "nan": ("error", "Lower trainer.lr."),
        "starved": (
            "warning",
            "Raise extraction.concurrency or trainer.prefetch, or use extraction.mode offline.",
        ),
        "dropped": ("warning", "Look at the extraction server's log and its folder."),
        "plateau": (
            "warning",
            "Look at the mask share of the data, and whether it was tokenised by this target.",
        ),
    }
    severity, fix = fixes[code]
    return FindingMade(f"training-{code}", severity, text, fix)


def _failure(exit_code: int | None, log: Path) -> SpecpanelError:
    words = last_words(log)
    fix = f"Log: {log}. What was saved is there: go on with --resume."
    if "OutOfMemory" in words or "out of memory" in words.lower():
        fix = (
            "Lower trainer.total_seq_len first, then algorithm.max_anchors or block_size; "
            f"algorithm.gradient_checkpointing saves memory where there is such a setting. {fix}"
        )
    return SpecpanelError(f"the trainer ended with exit code {exit_code}: {words}", fix)
