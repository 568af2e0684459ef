"""One leg against a live server: send the load, read the counters at both ends, sum up."""

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from specpanel.core.engine.api_key import key_to_tell
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

    def _key(self) -> str | None:
        ours = self.facts.pid is not None
        return key_to_tell(self.profile, os.environ, self.facts.url, ours=ours)

    async def run(self) -> None:
        """Send the load to its end; ``leg`` holds what was measured, also when this raises.

        Raises:
            SpecpanelError: too many requests failed, or the server is not what it seemed.
            ServerEndedError: the server ended under the load.
        """
        before: EngineCounters | None = None

        async def look() -> None:
            nonlocal before
            before = await self.monitor.scrape_now()

        try:
            async with Endpoint(
                self.facts.url, self.profile.target.served_name, api_key=self._key()
            ) as endpoint:
                self.load = Load(
                    endpoint,
                    self.prompts,
                    self.profile.traffic,
                    on_record=self._take,
                    stop=self.stop,
                    before_measuring=look,
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
        plain = after is not None and not after.speculates
        drafter = self.facts.drafter or ("none" if plain else "unknown")
        self.leg = leg_summary(
            self.name,
            drafter,
            self.facts.draft_tokens or _positions_of(after),
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


def _positions_of(counters: EngineCounters | None) -> int | None:
    """K of a server whose profile is not known: vLLM counts each draft position by itself."""
    found = None if counters is None else counters.total.accepted_by_position
    return len(found) if found else None


def counter_delta(
    before: EngineCounters | None, after: EngineCounters | None
) -> CounterDelta | None:
    """What the counters gained; None without speculation, or where that cannot be told.

    It cannot where they started over in between, or where one of them could not be read at an end.
    """
    if before is None or after is None or not after.speculates or _restarted(before, after):
        return None
    then, now = before.total, after.total
    drafts = _gain(then.drafts, now.drafts, before.speculates)
    draft_tokens = _gain(then.draft_tokens, now.draft_tokens, before.speculates)
    accepted = _gain(then.accepted_tokens, now.accepted_tokens, before.speculates)
    if drafts is None or draft_tokens is None or accepted is None:
        return None
    positions = now.accepted_by_position or ()
    earlier = (then.accepted_by_position or ()) + (0,) * len(positions)
    return CounterDelta(
        drafts=drafts,
        draft_tokens=draft_tokens,
        accepted_tokens=accepted,
        accepted_by_position=tuple(
            late - early for late, early in zip(positions, earlier, strict=False)
        ),
        generation_tokens=_gain(then.generation_tokens, now.generation_tokens, known=True),
    )


def _restarted(before: EngineCounters, after: EngineCounters) -> bool:
    """Whether a counter of an engine began anew, which shows even where it is larger by now."""
    began = {(one.engine, name): at for one in before.engines for name, at in one.created.items()}
    return any(
        began.get((one.engine, name), at) != at
        for one in after.engines
        for name, at in one.created.items()
    )


def _gain(then: int | None, now: int | None, known: bool) -> int | None:
    """What a counter gained; one whose family was not there yet (not ``known``) began at 0."""
    if then is None and not known:
        then = 0
    if then is None or now is None or now < then:
        return None
    return now - then
