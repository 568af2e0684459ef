"""Promotion in place: a checkpoint takes the served drafter's place only where that is shown to be better.

The old drafter is measured on prompts that training did not see, the candidate is swapped in and measured on
the same ones, and the old one comes back from the workers' memory unless the candidate is better by more than
the margin. Every attempt is written down, whatever came of it.
"""

import asyncio
import getpass
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from specpanel.core.errors import SpecpanelError
from specpanel.core.session.launch import InterruptedRunError
from specpanel.core.settings.profile import Traffic
from specpanel.core.traffic.endpoint import Endpoint
from specpanel.core.traffic.load import Load
from specpanel.core.traffic.prompts import builtin_prompts, read_prompts
from specpanel.core.traffic.records import Prompt, RequestRecord
from specpanel.core.training import audit
from specpanel.core.training.audit import Promotion, Result
from specpanel.core.training.folder import CHECKPOINT_FILE, RunFolder
from specpanel.core.training.judging import MARGIN, Gain, gain, outcome
from specpanel.core.training.records import Checkpoint
from specpanel.core.training.swap import (
    CheckpointRefusedError,
    DrafterStatus,
    DrafterSwap,
    Swapped,
)

_checkpoints = TypeAdapter(Checkpoint)


@dataclass(frozen=True, slots=True)
class PromotionPlan:
    """``prompts`` must be ones that no candidate was trained on; each is asked once a side."""

    server: str  # its name, or its address
    url: str
    model: str | None  # name to ask for; None takes what the server lists
    candidate: Path
    prompts: tuple[Prompt, ...]
    traffic: Traffic
    margin: float = MARGIN
    only_measure: bool = False  # the old drafter comes back whatever is shown


@dataclass(slots=True)
class _Course:
    """What is known so far of an attempt."""

    before: DrafterStatus | None = None
    swapped: Swapped | None = None
    after: DrafterStatus | None = None
    gain: Gain | None = None


class Promoting:
    """Tries one promotion. ``interrupt`` may be called at any time; the old drafter then comes back.

    Args:
        tell: told in sentences what is being done.
    """

    def __init__(self, plan: PromotionPlan, tell: Callable[[str], None] = lambda _: None) -> None:
        self.plan = plan
        self._tell = tell
        self._interrupted = asyncio.Event()
        self._course = _Course()
        self._began_s = time.monotonic()

    def interrupt(self) -> None:
        self._interrupted.set()

    async def run(self) -> Promotion:
        """What came of it, which stands in the audit log as well.

        Raises:
            SpecpanelError: the checkpoint was refused, or something failed; that is in the log, too.
        """
        self._began_s = began_s = time.monotonic()
        try:
            async with DrafterSwap(self.plan.url) as drafter:
                result, reason = await self._try(drafter)
        except InterruptedRunError:
            return self._written("interrupted", "it was stopped; the old drafter serves", began_s)
        except CheckpointRefusedError as error:
            self._written("refused", error.message, began_s)
            raise
        except SpecpanelError as error:
            self._written("failed", error.message, began_s)
            raise
        return self._written(result, reason, began_s)

    async def _try(self, drafter: DrafterSwap) -> tuple[Result, str]:
        course, plan = self._course, self.plan
        course.before = course.after = await drafter.status()
        self._tell(f"checking {plan.candidate}")
        await drafter.check(plan.candidate)
        self._tell(f"measuring the drafter that serves: {course.before.folder}")
        before = await self._measured()
        course.swapped = await drafter.swap(plan.candidate)
        kept = False
        try:
            self._written("on trial", "the candidate is being measured", self._began_s)
            self._tell(
                f"swapped in {course.swapped.paused_s:.2f} s of pause; measuring the candidate"
            )
            course.gain = gain(before, await self._measured())
            shown, reason = outcome(course.gain, plan.margin)
            kept = shown == "better" and not plan.only_measure
        finally:
            if kept:
                await drafter.forget()
                course.after = await drafter.status()
            else:
                self._tell("bringing the old drafter back")
                course.after = await drafter.undo()
        if kept:
            return "promoted", reason
        if plan.only_measure:
            return "measured", reason
        return ("rolled back" if shown == "worse" else "kept the old one"), reason

    async def _measured(self) -> tuple[RequestRecord, ...]:
        """Every prompt once, greedy, as many at a time as the traffic says.

        Raises:
            InterruptedRunError: it was interrupted.
            SpecpanelError: too many failed, or the server does not report steps.
        """
        plan = self.plan
        once = plan.traffic.model_copy(
            update={
                "requests": len(plan.prompts),
                "duration_s": None,
                "rate_per_s": None,
                "warmup": 0,
                "temperature": 0.0,
            }
        )
        async with Endpoint(plan.url, plan.model) as endpoint:
            load = Load(
                endpoint, plan.prompts, once, on_record=lambda _: None, stop=self._interrupted
            )
            found = await load.run()
        if self._interrupted.is_set():
            raise InterruptedRunError
        if not any(record.accepted for record in found.records):
            raise SpecpanelError(
                f"{plan.url} does not report what it accepts with each answer",
                "Start it with --per-request-spec-decode-metrics detailed (engine.per_request_metrics).",
            )
        return found.records

    def _written(self, result: Result, reason: str, began_s: float) -> Promotion:
        course, plan = self._course, self.plan
        promotion = Promotion(
            unix=audit.now(),
            server=plan.server,
            url=plan.url,
            way="in place",
            result=result,
            reason=reason,
            before=course.before.folder if course.before else None,
            candidate=str(plan.candidate),
            fingerprint_before=course.before.fingerprint if course.before else None,
            fingerprint_after=course.after.fingerprint if course.after else None,
            gain=course.gain,
            predicted=predicted_length(plan.candidate),
            margin=plan.margin,
            paused_s=course.swapped.paused_s if course.swapped else None,
            took_s=time.monotonic() - began_s,
            user=getpass.getuser(),
        )
        audit.write(promotion)
        return promotion


def predicted_length(candidate: Path) -> float | None:
    """The acceptance length that training foretold of a checkpoint, from the record beside its weights."""
    try:
        found = _checkpoints.validate_json((candidate / CHECKPOINT_FILE).read_bytes())
    except (OSError, ValidationError):
        return None
    return None if found.prediction is None else found.prediction.acceptance_length


def heldout_prompts(candidate: Path) -> tuple[tuple[Prompt, ...], str]:
    """The prompts that the checkpoint's own run kept from training, else the built-in ones; and which.

    Raises:
        ConfigurationError: the run's file cannot be read.
    """
    kept = RunFolder(candidate.parent.parent).heldout
    if candidate.parent.name == "checkpoints" and kept.is_file():
        return read_prompts(kept), str(kept)
    return builtin_prompts(), "the built-in set (the checkpoint does not lie in a run's folder)"
