"""Promotion in place: a checkpoint takes the served drafter's place only where that is shown to be better.

The old drafter is measured on prompts that training did not see, the candidate is swapped in and measured on
the same ones, and the old one comes back from the workers' memory unless the candidate is better by more than
the margin. Every attempt is written down, whatever came of it.
"""

import asyncio
import getpass
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from specpanel.core.errors import SpecpanelError
from specpanel.core.session.launch import InterruptedRunError
from specpanel.core.settings.profile import Traffic
from specpanel.core.traffic.prompts import builtin_prompts, read_prompts
from specpanel.core.traffic.records import Prompt, RequestRecord
from specpanel.core.training import audit
from specpanel.core.training.audit import Promotion, Result, Way
from specpanel.core.training.folder import CHECKPOINT_FILE, RunFolder
from specpanel.core.training.judging import MARGIN, Gain, gain, outcome
from specpanel.core.training.measuring import ask_each
from specpanel.core.training.records import Checkpoint
from specpanel.core.training.swap import CheckpointRefusedError, DrafterSwap

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
class Course:
    """What is known so far of one attempt, and how it is written down."""

    plan: PromotionPlan
    way: Way
    before: str | None = None  # folder of the drafter that was there
    fingerprint_before: str | None = None
    fingerprint_after: str | None = None
    gain: Gain | None = None
    paused_s: float | None = None
    url_after: str | None = None
    began_s: float = field(default_factory=time.monotonic)

    def written(self, result: Result, reason: str) -> Promotion:
        """The attempt as it stands in the audit log from now on.

        Raises:
            RecordingError: the log cannot be written.
        """
        plan = self.plan
        promotion = Promotion(
            unix=audit.now(),
            server=plan.server,
            url=plan.url,
            way=self.way,
            result=result,
            reason=reason,
            before=self.before,
            candidate=str(plan.candidate),
            fingerprint_before=self.fingerprint_before,
            fingerprint_after=self.fingerprint_after,
            gain=self.gain,
            predicted=predicted_length(plan.candidate),
            margin=plan.margin,
            paused_s=self.paused_s,
            took_s=time.monotonic() - self.began_s,
            user=getpass.getuser(),
            url_after=self.url_after,
        )
        audit.write(promotion)
        return promotion

    async def of(
        self, attempt: Awaitable[tuple[Result, str]], refusal: type[SpecpanelError], serves: str
    ) -> Promotion:
        """What came of the attempt, written down however it ends.

        Args:
            refusal: what it raises where the checkpoint cannot be taken.
            serves: what serves after an interruption.

        Raises:
            SpecpanelError: the checkpoint was refused, or something failed; that is in the log, too.
        """
        try:
            result, reason = await attempt
        except InterruptedRunError:
            return self.written("interrupted", f"it was stopped; {serves} serves")
        except refusal as error:
            self.written("refused", error.message)
            raise
        except SpecpanelError as error:
            self.written("failed", error.message)
            raise
        return self.written(result, reason)


class Promoting:
    """Tries one promotion in place. ``interrupt`` may be called at any time; the old drafter then comes back.

    Args:
        tell: told in sentences what is being done.
        interrupted: set where the attempt is to end; its own where left out.
    """

    def __init__(
        self,
        plan: PromotionPlan,
        tell: Callable[[str], None] = lambda _: None,
        interrupted: asyncio.Event | None = None,
    ) -> None:
        self.plan = plan
        self._tell = tell
        self._interrupted = interrupted or asyncio.Event()
        self._course = Course(plan, "in place")

    def interrupt(self) -> None:
        self._interrupted.set()

    async def run(self) -> Promotion:
        """What came of it, which stands in the audit log as well.

        Raises:
            SpecpanelError: the checkpoint was refused, or something failed; that is in the log, too.
        """
        self._course = Course(self.plan, "in place")
        return await self._course.of(self._exchange(), CheckpointRefusedError, "the old drafter")

    async def _exchange(self) -> tuple[Result, str]:
        async with DrafterSwap(self.plan.url) as drafter:
            return await self._try(drafter)

    async def _try(self, drafter: DrafterSwap) -> tuple[Result, str]:
        course, plan = self._course, self.plan
        now = await drafter.status()
        course.before = now.folder
        course.fingerprint_before = course.fingerprint_after = now.fingerprint
        self._tell(f"checking {plan.candidate}")
        await drafter.check(plan.candidate)
        self._tell(f"measuring the drafter that serves: {now.folder}")
        before = await self._measured()
        swapped = await drafter.swap(plan.candidate)
        course.paused_s = swapped.paused_s
        kept = False
        try:
            course.written("on trial", "the candidate is being measured")
            self._tell(f"swapped in {swapped.paused_s:.2f} s of pause; measuring the candidate")
            course.gain = gain(before, await self._measured())
            shown, reason = outcome(course.gain, plan.margin)
            kept = shown == "better" and not plan.only_measure
        finally:
            if kept:
                await drafter.forget()
                now = await drafter.status()
            else:
                self._tell("bringing the old drafter back")
                now = await drafter.undo()
            course.fingerprint_after = now.fingerprint
        if kept:
            return "promoted", reason
        if plan.only_measure:
            return "measured", reason
        return ("rolled back" if shown == "worse" else "kept the old one"), reason

    async def _measured(self) -> tuple[RequestRecord, ...]:
        plan = self.plan
        return await ask_each(plan.url, plan.model, plan.prompts, plan.traffic, self._interrupted)


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
