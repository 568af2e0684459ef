"""One leg against a live server: send the load, read the counters at both ends, sum up."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from specpanel.core.engine.metrics import EngineCounters
from specpanel.core.errors import SpecpanelError
from specpanel.core.monitor.monitor import Monitor, ServerFacts
from specpanel.core.session.summary import CounterDelta, Leg, leg_summary
from specpanel.core.settings.profile import Profile
from specpanel.core.traffic.endpoint import Endpoint
from specpanel.core.traffic.load import Load
from specpanel.core.traffic.records import Prompt, RequestRecord


@dataclass(slots=True)
class Measurement:
    """A leg while it is measured. ``load`` can be asked for its progress; ``leg`` is there at the end."""

    name: str
    profile: Profile
    facts: ServerFacts
    monitor: Monitor
    prompts: Sequence[Prompt]
    on_record: Callable[[RequestRecord], None]
    stop: asyncio.Event
    ready_s: float | None = None
    load: Load | None = None
    records: list[RequestRecord] = field(default_factory=list)
    leg: Leg | None = None

    async def run(self) -> None:
        """Send the load to its end; ``leg`` holds what was measured, also when this raises.

        Raises:
            SpecpanelError: too many requests failed, or the server is not what it seemed.
            ServerEndedError: the server ended under the load.
        """
        before = await self.monitor.scrape_now()
        try:
            async with Endpoint(self.facts.url, self.profile.target.served_name) as endpoint:
                self.load = Load(
                    endpoint,
                    self.prompts,
                    self.profile.traffic,
                    on_record=self._take,
                    stop=self.stop,
                )
                await self._until_done(self.load)
        finally:
            after = None if self.facts.exit_code is not None else await self.monitor.scrape_now()
            self._sum_up(before, after)

    def _take(self, record: RequestRecord) -> None:
        self.records.append(record)
        self.on_record(record)

    async def _until_done(self, load: Load) -> None:
        loading = asyncio.create_task(load.run())
        ending = asyncio.create_task(self.facts.ended.wait())
        try:
            await asyncio.wait({loading, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not loading.done():
                raise ServerEndedError
            await loading
        finally:
            for task in (loading, ending):
                task.cancel()
            await asyncio.gather(loading, ending, return_exceptions=True)

    def _sum_up(self, before: EngineCounters | None, after: EngineCounters | None) -> None:
        if self.load is None:
            return
        result = self.load.result
        drafter = self.facts.drafter or ("unknown" if _speculates(after) else "none")
        self.leg = leg_summary(
            self.name,
            drafter,
            self.facts.draft_tokens,
            self.records,
            result.elapsed_s,
            counter_delta(before, after),
            self.ready_s,
            result.ended_by,
        )


class ServerEndedError(SpecpanelError):
    """The server ended while requests were on their way; its log says why."""

    def __init__(self) -> None:
        super().__init__("the server ended under the load")


def counter_delta(
    before: EngineCounters | None, after: EngineCounters | None
) -> CounterDelta | None:
    """What the counters gained; None without speculation, or where they started over in between."""
    if before is None or after is None or not _speculates(after):
        return None
    then, now = before.total, after.total
    positions = now.accepted_by_position or ()
    earlier = (then.accepted_by_position or ()) + (0,) * len(positions)
    gained = CounterDelta(
        drafts=(now.drafts or 0) - (then.drafts or 0),
        draft_tokens=(now.draft_tokens or 0) - (then.draft_tokens or 0),
        accepted_tokens=(now.accepted_tokens or 0) - (then.accepted_tokens or 0),
        accepted_by_position=tuple(
            late - early for late, early in zip(positions, earlier, strict=False)
        ),
        generation_tokens=(
            None
            if now.generation_tokens is None or then.generation_tokens is None
            else now.generation_tokens - then.generation_tokens
        ),
    )
    return gained if min(gained.drafts, gained.draft_tokens, gained.accepted_tokens) >= 0 else None


def _speculates(counters: EngineCounters | None) -> bool:
    return counters is not None and counters.speculates
