"""A server that a desk knows: what is known of it, and how that is kept up to date."""

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specpanel.core.engine import identity
from specpanel.core.engine.chosen import Chosen
from specpanel.core.engine.client import EngineClient
from specpanel.core.engine.logfile import tail
from specpanel.core.engine.metrics import ExpositionError, parse_exposition
from specpanel.core.monitor.monitor import ServerFacts
from specpanel.core.session.events import Event, Listener, Note
from specpanel.core.session.explaining import Explanation, explain_choices, read_choices
from specpanel.core.session.interruption import InterruptedRunError

if TYPE_CHECKING:  # what starts a server is loaded when one is started
    from specpanel.core.engine.registry import ServerRecord
    from specpanel.core.session.launch import Launch
    from specpanel.core.session.start_elsewhere import StartElsewhere
    from specpanel.core.settings.profile import Profile

LOOK_S = 0.25
_DRAIN_S = 20.0


@dataclass(slots=True)
class Served:
    """A server on the desk. ``record`` is None where someone else started it; ``launch`` unless we did.

    ``elsewhere`` follows a start that another process of specpanel's may still be in.
    """

    facts: ServerFacts
    profile: "Profile | None" = None
    record: "ServerRecord | None" = None
    launch: "Launch | None" = None
    elsewhere: "StartElsewhere | None" = None
    explanation: Explanation | None = None  # what it chose, once it is ready

    @property
    def name(self) -> str:
        return self.facts.name or self.facts.url

    @property
    def log(self) -> Path | None:
        return None if self.record is None else self.record.log

    @property
    def is_up(self) -> bool:
        """Whether it was neither stopped nor has ended by itself; it may be starting."""
        return self.facts.exit_code is None and not self.facts.stopped

    def look(self) -> None:
        """Bring what is known of the process up to date."""
        facts = self.facts
        if not self.is_up:
            return
        if self.launch is not None:
            self.launch.describe(facts)
        elif self.record is not None and not identity.leader_lives(
            self.record.pid, self.record.start_mark
        ):
            facts.detail = _end_of(self.record)
            facts.exit_code = -1
            facts.ended.set()
        elif self.elsewhere is not None:
            self.elsewhere.describe(facts)

    async def keep_looking(self) -> None:
        """Look four times a second, until cancelled; of someone else's server there is nothing to see."""
        while self.launch is not None or self.record is not None:
            self.look()
            await asyncio.sleep(LOOK_S)
        await asyncio.Event().wait()

    def pids(self) -> list[int]:
        record = self.record
        return [] if record is None else identity.session_members(record.pid, record.start_mark)


def served_record(record: "ServerRecord") -> Served:
    """A server that another process of specpanel's started, and may be starting still."""
    from specpanel.core.session.start_elsewhere import StartElsewhere

    facts = ServerFacts(
        url=record.url,
        name=record.name,
        model=record.model,
        drafter=record.drafter,
        draft_tokens=record.draft_tokens,
        pid=record.pid,
        started_unix=record.started_unix,
    )
    elsewhere = StartElsewhere(record)
    elsewhere.describe(facts)
    return Served(facts, record.settings, record, elsewhere=elsewhere)


async def start_served(
    profile: "Profile", tell: Listener, interrupted: asyncio.Event, *, force: bool = False
) -> Served:
    """Preflight and start ``profile``; returns as soon as the process exists.

    ``force`` starts in spite of preflight's errors, which are told.

    Raises:
        ConfigurationError, LaunchError: it cannot work; nothing was started.
        InterruptedRunError: ``interrupted`` was set meanwhile.
    """
    from specpanel.core.engine.command import build_command
    from specpanel.core.engine.interpreter import probe_interpreter, resolve_python
    from specpanel.core.session.checks import refuse_what_cannot_work
    from specpanel.core.session.launch import Launch
    from specpanel.core.session.targets import with_model_paths

    loop = asyncio.get_running_loop()

    def tell_from_thread(event: Event) -> None:
        loop.call_soon_threadsafe(tell, event)

    python = resolve_python(profile.engine.python)
    facts = await asyncio.to_thread(probe_interpreter, python)
    placed = await asyncio.to_thread(
        with_model_paths, profile, python, lambda text: tell_from_thread(Note(text))
    )
    forced = await asyncio.to_thread(
        refuse_what_cannot_work, placed, facts, tell_from_thread, force=force
    )
    if interrupted.is_set():
        raise InterruptedRunError
    command = build_command(placed, facts, os.environ)
    launch = Launch(placed, command, tell, settings=profile, forced=forced)
    launch.start()
    return Served(launch.first_facts(facts.vllm_version), profile, launch.record, launch)


def _end_of(record: "ServerRecord") -> str:
    """Why a server ended that another process of ours started: its exit code was never ours to see."""
    from specpanel.core.engine.failures import diagnose

    lines = (raw.decode("utf-8", "replace") for raw in tail(record.log))
    found = diagnose(lines, exit_code=None)
    return "its process has ended" if found is None else found.sentence


async def explain_when_ready(served: Served, tell: Listener) -> None:
    """Learn and tell what the server chose, as soon as it is ready; never where it ends before."""
    while served.is_up:
        if not served.facts.starting:
            served.explanation = await explain_choices(
                served.facts.url, served.profile, await _read(served)
            )
            tell(served.explanation.event())
            return
        await asyncio.sleep(LOOK_S)


async def _read(served: Served) -> Chosen | None:
    """What its log says; None where the log is not known."""
    if served.launch is not None:
        return served.launch.choices.chosen
    return None if served.log is None else await asyncio.to_thread(read_choices, served.log)


async def drained(url: str, interrupted: asyncio.Event) -> None:
    """Wait until the server has no request left, for 20 s at most, or until ``interrupted``."""
    deadline = time.monotonic() + _DRAIN_S
    async with EngineClient(url) as client:
        while time.monotonic() < deadline and not interrupted.is_set():
            body = await client.metrics()
            try:
                counters = parse_exposition(body.text or "").counters.total
            except ExpositionError:
                return
            if not counters.running and not counters.waiting:
                return
            await asyncio.sleep(LOOK_S)
