"""The evaluate stage: each kept checkpoint is served by vLLM and measured on prompts that training never saw.

One server is started; the other checkpoints are swapped into it, where their shapes agree.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Any, ClassVar, Literal

from specpanel.core.engine.command import is_swappable
from specpanel.core.errors import ServerUnreachableError, SpecpanelError
from specpanel.core.session.events import FindingMade, Note
from specpanel.core.session.launch import Launch
from specpanel.core.traffic.records import Prompt, RequestRecord
from specpanel.core.training.algorithms import KINDS
from specpanel.core.training.circumstances import circumstances, validation_prompts
from specpanel.core.training.data_stage import file_digest
from specpanel.core.training.drafting_server import drafting
from specpanel.core.training.evaluation import (
    acceptance_of,
    best_served,
    by_tokens,
    gap,
    length_of,
)
from specpanel.core.training.events import CheckpointMeasured, Progressed
from specpanel.core.training.gap_causes import causes, is_large
from specpanel.core.training.measuring import ask_each, single_questions
from specpanel.core.training.records import (
    Acceptance,
    CauseCheck,
    Checkpoint,
    Evaluation,
    StageName,
)
from specpanel.core.training.servers import is_cpu
from specpanel.core.training.stage import Workplace
from specpanel.core.training.swap import CheckpointRefusedError, DrafterSwap
from specpanel.core.training.worker_calls import SwapError

Way = Literal["started", "swapped"]


class EvaluateStage:
    """Measures what was kept; what cannot be served here is told, and is no failure of the run."""

    name: ClassVar[StageName] = "evaluate"

    def depends_on(self, place: Workplace) -> dict[str, Any]:
        return {
            "checkpoints": [str(one.path) for one in place.folder.kept()],
            "evaluation": place.recipe.evaluation.model_dump(mode="json", exclude={"concurrency"}),
            "heldout": file_digest(place.folder.heldout),
            "max_tokens": place.recipe.data.max_tokens,
            "target": place.target,
            "vllm": place.vllm.vllm_version,
        }

    async def run(self, place: Workplace) -> dict[str, Any]:
        """Raises SpecpanelError where nothing could be measured that should have been."""
        reason = _not_measured(place)
        if reason is not None:
            place.emit(FindingMade("not-evaluated", "warning", reason, "", "algorithm.type"))
            return {"evaluated": 0, "reason": reason}
        evaluating = _Evaluating(place)
        try:
            for checkpoint in chosen(place.folder.kept(), place.recipe.evaluation.checkpoints):
                place.raise_if_interrupted()
                await evaluating.take(checkpoint)
        finally:
            await evaluating.close()
        return _facts(evaluating.found)


def chosen(kept: Sequence[Checkpoint], most: int | None) -> tuple[Checkpoint, ...]:
    """The checkpoints to measure: the best by validation first, then those with a lower loss, then newer."""
    worst = float("inf")
    ordered = sorted(
        kept,
        key=lambda one: (
            not one.best,
            worst if one.validation_loss is None else one.validation_loss,
            -one.step,
        ),
    )
    return tuple(ordered[:most])


def _not_measured(place: Workplace) -> str | None:
    kind = KINDS[place.recipe.algorithm.type]
    if kind.profile_method is None:
        return f"{kind.title}: {kind.not_served}"
    if is_cpu(place) and not kind.serves_on_cpu and place.recipe.algorithm.type != "mtp":
        return f"{kind.title} is served on a GPU only, so its checkpoints were not measured here"
    if not place.folder.kept():
        return "no checkpoint was kept, so none was measured"
    if len(single_questions(place.folder.heldout)) < 2:
        return "no prompts were kept from training (data.heldout), so nothing was measured"
    return None


class _Evaluating:
    """One server at a time, and what was found."""

    def __init__(self, place: Workplace) -> None:
        self.place = place
        self.found: list[Evaluation] = []
        self._heldout = single_questions(place.folder.heldout)
        self._server: Launch | None = None
        self._held = AsyncExitStack()

    async def take(self, checkpoint: Checkpoint) -> None:
        """Measure one checkpoint; a failure of it alone is told and kept."""
        began_s = time.monotonic()
        try:
            evaluation = await self._measured(checkpoint, began_s)
        except SpecpanelError as error:
            await self.close()
            evaluation = _failed(checkpoint, error, time.monotonic() - began_s)
        self.found.append(evaluation)
        self.place.folder.keep_evaluations(self.found)
        self.place.emit(CheckpointMeasured(evaluation))

    async def close(self) -> None:
        """End the server, if any runs."""
        self._server = None
        await self._held.aclose()

    async def _measured(self, checkpoint: Checkpoint, began_s: float) -> Evaluation:
        prediction = checkpoint.prediction
        server, way = await self._put_in(checkpoint)
        records = await self._ask(server, self._heldout, f"{checkpoint.path.name}, held-out")
        heldout = acceptance_of(records, prediction)
        served: tuple[RequestRecord, ...] = ()
        prompts = await self._validation(checkpoint)
        if prompts:
            served = await self._ask(server, prompts, f"{checkpoint.path.name}, validation")
        validation = acceptance_of(served, prediction) if served else None
        predicted = prediction.acceptance_length if prediction else None
        same = gap(validation.acceptance_length if validation else None, predicted)
        other = gap(heldout.acceptance_length, predicted)
        return Evaluation(
            checkpoint=checkpoint.path,
            step=checkpoint.step,
            way=way,
            heldout=heldout,
            validation=validation,
            predicted=predicted,
            gap=same,
            heldout_gap=other,
            checks=await self._checks(
                checkpoint, same if validation else other, validation or heldout, served
            ),
            took_s=time.monotonic() - began_s,
            gap_by_tokens=gap(
                validation.token_weighted if validation and by_tokens(prediction) else None,
                predicted,
            ),
        )

    async def _validation(self, checkpoint: Checkpoint) -> tuple[Prompt, ...]:
        """The prompts that its trainer validated with, for the best checkpoint alone."""
        wanted = self.place.recipe.evaluation.validation and not self.found
        if not wanted or checkpoint.prediction is None:
            return ()
        found = await asyncio.to_thread(validation_prompts, self.place)
        return found if len(found) > 1 else ()

    async def _checks(
        self,
        checkpoint: Checkpoint,
        apart: float | None,
        acceptance: Acceptance,
        served: Sequence[RequestRecord],
    ) -> tuple[CauseCheck, ...]:
        if not is_large(apart):
            return ()
        return causes(
            await asyncio.to_thread(circumstances, self.place, checkpoint, acceptance, served)
        )

    async def _ask(
        self, server: Launch, prompts: Sequence[Prompt], what: str
    ) -> tuple[RequestRecord, ...]:
        done = 0

        def one_more(_: RequestRecord) -> None:
            nonlocal done
            done += 1
            self.place.emit(Progressed("evaluate", what, done, len(prompts)))

        url, traffic = server.record.url, server.profile.traffic
        return await ask_each(url, None, prompts, traffic, self.place.interrupted, one_more)

    async def _put_in(self, checkpoint: Checkpoint) -> tuple[Launch, Way]:
        """Have the checkpoint draft: swapped into the running server, or served by one of its own."""
        if self._server is not None and await self._swapped(self._server, checkpoint):
            return self._server, "swapped"
        await self.close()
        self._server = await self._held.enter_async_context(drafting(self.place, checkpoint))
        return self._server, "started"

    async def _swapped(self, server: Launch, checkpoint: Checkpoint) -> bool:
        """Whether the running server drafts with the checkpoint now."""
        if not is_swappable(server.profile):
            return False
        try:
            async with DrafterSwap(server.record.url) as drafter:
                swapped = await drafter.swap(checkpoint.path)
                await drafter.forget()
        except (CheckpointRefusedError, SwapError, ServerUnreachableError) as error:
            self.place.emit(Note(f"{error.message}; it gets a server of its own"))
            return False
        name = checkpoint.path.name
        self.place.emit(Note(f"{name} swapped in, {swapped.paused_s:.2f} s of pause"))
        return True


def _failed(checkpoint: Checkpoint, error: SpecpanelError, took_s: float) -> Evaluation:
    """E.g. a head that vLLM cannot take: the others are measured all the same."""
    predicted = checkpoint.prediction.acceptance_length if checkpoint.prediction else None
    return Evaluation(
        checkpoint=checkpoint.path,
        step=checkpoint.step,
        way=None,
        heldout=None,
        validation=None,
        predicted=predicted,
        gap=None,
        heldout_gap=None,
        checks=(),
        took_s=took_s,
        failure=str(error),
    )


def _facts(found: Sequence[Evaluation]) -> dict[str, Any]:
    """The report of the stage.

    Raises:
        SpecpanelError: no checkpoint could be measured.
    """
    best = best_served(found)
    if best is None or best.heldout is None:
        raise SpecpanelError(
            f"no checkpoint could be measured: {found[0].failure}",
            "Its log says more. Go on with --resume --stage evaluate.",
        )
    return {
        "evaluated": sum(one.heldout is not None for one in found),
        "failed": sum(one.failure is not None for one in found),
        "best": str(best.checkpoint),
        "heldout_acceptance_length": length_of(best),
        "heldout_interval": asdict(best.heldout.interval) if best.heldout.interval else None,
        "predicted_acceptance_length": best.predicted,
        "gap": next((one.gap for one in found if one.gap is not None), None),
        "gap_by_tokens": next(
            (one.gap_by_tokens for one in found if one.gap_by_tokens is not None), None
        ),
        "heldout_gap": best.heldout_gap,
    }
