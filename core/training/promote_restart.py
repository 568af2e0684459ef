"""Promotion by restart: a server with the candidate beside the old one, and the better of the two stays.

For what cannot be exchanged in place: another method, shape, K or draft vocabulary. The old server goes on
serving until the new one is ready and shown to be better; then it is drained and ended. Where memory for both
is not certain, the old one stops first, and is started again unless the candidate is better.
"""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from specpanel.core.checkpoints.config import read_config
from specpanel.core.engine.process import complete, stop_server
from specpanel.core.engine.registry import ServerRecord
from specpanel.core.errors import ConfigurationError, SpecpanelError
from specpanel.core.session.checks import as_error
from specpanel.core.session.events import Event, FindingMade, Note
from specpanel.core.session.launch import InterruptedRunError
from specpanel.core.session.served import Served, drained, start_served
from specpanel.core.session.switching import plan_switch, port_beside
from specpanel.core.settings.drafters import DRAFTERS
from specpanel.core.settings.profile import Profile
from specpanel.core.traffic.records import RequestRecord
from specpanel.core.training.algorithms import KINDS
from specpanel.core.training.audit import Promotion, Result
from specpanel.core.training.judging import gain, outcome
from specpanel.core.training.measuring import ask_each
from specpanel.core.training.promote import Course, PromotionPlan


class RestartPromoting:
    """Tries one promotion by restart. Interrupted, the old server serves and the new one is gone.

    Args:
        record: the server that runs; started by specpanel from a profile.
        tell: told in sentences what is being done.
    """

    def __init__(
        self,
        plan: PromotionPlan,
        record: ServerRecord,
        tell: Callable[[str], None] = lambda _: None,
        interrupted: asyncio.Event | None = None,
    ) -> None:
        self.plan = plan
        self._old = complete(record)
        self._tell = tell
        self._interrupted = interrupted or asyncio.Event()
        self._hurry = threading.Event()
        self._course = Course(plan, "restart")

    async def run(self) -> Promotion:
        """What came of it, which stands in the audit log as well.

        Raises:
            SpecpanelError: it could not be tried, or something failed; that is in the log, too.
        """
        self._course = Course(self.plan, "restart")
        return await self._course.of(self._try(), ConfigurationError, "the old server")

    async def _try(self) -> tuple[Result, str]:
        before = self._old.settings
        if before is None:
            raise ConfigurationError(
                f"{self._old.name} was not started from a profile, so no other can be started like it",
                "Start one with specpanel run --keep-running, or promote in place.",
            )
        self._course.before = getattr(before.drafter, "model", None)
        after = with_drafter(before, self.plan.candidate)
        change = await asyncio.to_thread(plan_switch, before, after)
        if change.errors:
            raise as_error(change.errors[0])
        self._tell(f"measuring the drafter that serves: {self._course.before or 'none'}")
        measured = await self._measured(self.plan.url)
        if change.side_by_side:
            return await self._beside(port_beside(after, self.plan.url), measured)
        return await self._in_its_place(before, after, measured)

    async def _beside(
        self, after: Profile, before: tuple[RequestRecord, ...]
    ) -> tuple[Result, str]:
        """The new server starts while the old one serves; one of them ends."""
        self._tell(f"starting the candidate beside it, on port {after.engine.port}")
        new = await self._started(after)
        kept = False
        try:
            shown, reason = await self._judged(new, before)
            kept = shown == "better" and not self.plan.only_measure
        finally:
            if not kept:
                self._tell("ending the new server")
                await self._end(new)
        if not kept:
            return self._not_kept(shown), reason
        self._course.url_after = new.facts.url
        self._tell(f"{new.facts.url} serves from now on; the old server finishes what it has")
        await drained(self.plan.url, self._interrupted)
        await self._end_old()
        return "promoted", f"{reason}; it serves at {new.facts.url}"

    async def _in_its_place(
        self, before: Profile, after: Profile, measured: tuple[RequestRecord, ...]
    ) -> tuple[Result, str]:
        """The old server ends first, for want of memory; it is started again where it was better."""
        self._tell("memory for both is not certain: the old server stops first")
        await drained(self.plan.url, self._interrupted)
        await self._end_old()
        kept = False
        try:
            new = await self._started(after)
            try:
                shown, reason = await self._judged(new, measured)
                kept = shown == "better" and not self.plan.only_measure
            finally:
                if not kept:
                    await self._end(new)
        finally:
            if not kept:
                self._tell("starting the old server again")
                await self._back(before)
        if not kept:
            return self._not_kept(shown), reason
        self._course.url_after = new.facts.url
        return "promoted", f"{reason}; it serves at {new.facts.url}"

    async def _back(self, before: Profile) -> None:
        """The old configuration again, whatever was interrupted meanwhile."""
        self._interrupted = asyncio.Event()
        old = await self._started(before)
        self._course.url_after = old.facts.url

    async def _judged(self, new: Served, before: tuple[RequestRecord, ...]) -> tuple[str, str]:
        self._course.written("on trial", "the candidate is being measured")
        self._tell(f"measuring the candidate at {new.facts.url}")
        self._course.gain = gain(before, await self._measured(new.facts.url))
        return outcome(self._course.gain, self.plan.margin)

    async def _measured(self, url: str) -> tuple[RequestRecord, ...]:
        plan = self.plan
        return await ask_each(url, None, plan.prompts, plan.traffic, self._interrupted)

    async def _started(self, profile: Profile) -> Served:
        """A server that answers.

        Raises:
            LaunchError: it did not start; nothing of it is left.
        """
        served = await start_served(profile, self._event, self._interrupted)
        assert served.launch is not None
        try:
            await served.launch.until_ready(self._interrupted)
        except (SpecpanelError, InterruptedRunError):
            await self._end(served)
            raise
        return served

    async def _end(self, served: Served) -> None:
        assert served.launch is not None
        await served.launch.stop(self._hurry)

    async def _end_old(self) -> None:
        await asyncio.to_thread(stop_server, self._old, 20.0, hurry=self._hurry)

    def _not_kept(self, shown: str) -> Result:
        if self.plan.only_measure:
            return "measured"
        return "rolled back" if shown == "worse" else "kept the old one"

    def _event(self, event: Event) -> None:
        if isinstance(event, Note):
            self._tell(event.text)
        elif isinstance(event, FindingMade) and event.severity == "error":
            self._tell(f"{event.text} {event.fix}".rstrip())


def with_drafter(profile: Profile, candidate: Path) -> Profile:
    """``profile`` with the checkpoint as its drafter; other settings of the same method stay.

    Raises:
        ConfigurationError: the folder is no drafter that vLLM serves.
    """
    said = read_config(candidate).speculators
    kind = KINDS.get(said.algorithm or "") if said else None
    method = kind.profile_method if kind else None
    if kind is not None and kind.profile_method == "mtp":
        raise ConfigurationError(
            f"{candidate} is no drafter by itself: {kind.title}: {kind.not_served}",
            "Start a server with the stitched copy as its target.",
        )
    if said is None or method is None:
        method = profile.drafter.method  # not of Speculators: taken for another of the same kind
    if method not in DRAFTERS or method == "none":
        raise ConfigurationError(
            f"{candidate} does not say what kind of drafter it is, and the server has none to go by",
            "Give a checkpoint in the Speculators format; speculators convert makes one.",
        )
    same = method == profile.drafter.method
    settings = profile.drafter.model_dump(exclude_unset=True) if same else {}
    k = said.draft_tokens if said and said.draft_tokens else profile.drafter.draft_tokens
    settings |= {"method": method, "model": str(candidate), "k": k}
    try:
        return Profile.model_validate(
            {**profile.model_dump(exclude_unset=True), "drafter": settings}
        )
    except ValidationError as error:
        raise ConfigurationError(
            f"{candidate} cannot be served like {profile.name}: {error.errors()[0]['msg']}"
        ) from None
