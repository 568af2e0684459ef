"""Servers of an experiment: prepared, started, asked, and ended on every way out."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import psutil

from specpanel.core.engine.api_key import api_key
from specpanel.core.engine.command import build_command, platform_of
from specpanel.core.engine.interpreter import probe_interpreter, resolve_python
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.errors import TrafficError
from specpanel.core.lab.arms import Arm
from specpanel.core.preflight.gather import gather, port_state
from specpanel.core.preflight.memory_estimate import estimate
from specpanel.core.session.checks import refuse_what_cannot_work
from specpanel.core.session.events import Event, Listener, Note
from specpanel.core.session.launch import InterruptedRunError, Launch
from specpanel.core.session.targets import with_model_paths
from specpanel.core.settings.profile import Profile, Traffic
from specpanel.core.traffic.endpoint import Endpoint
from specpanel.core.traffic.load import Load
from specpanel.core.traffic.records import Prompt, RequestRecord

_MEMORY_SHARE = 0.8  # of what is available; the rest is for the estimate's errors


@dataclass(slots=True)
class Stop:
    """How an experiment is asked to end: soon, or at once."""

    interrupted: asyncio.Event
    hurry: threading.Event

    @classmethod
    def new(cls) -> "Stop":
        return cls(asyncio.Event(), threading.Event())

    def ask(self) -> None:
        """End soon; the second time: at once."""
        if self.interrupted.is_set():
            self.hurry.set()
        self.interrupted.set()

    def check(self) -> None:
        """Raise where it was asked for."""
        if self.interrupted.is_set():
            raise InterruptedRunError


@dataclass(frozen=True, slots=True)
class Ready:
    """A launch that preflight has nothing against: its models are folders, its port is free."""

    arm: Arm
    placed: Profile
    facts: InterpreterFacts
    need_bytes: int | None  # on a CPU, where it can be told


@dataclass(frozen=True, slots=True)
class Block:
    """What one server did with one block of prompts."""

    records: tuple[RequestRecord, ...]
    elapsed_s: float


class Serving:
    """A server of an arm that answers."""

    def __init__(self, ready: Ready, launch: Launch, endpoint: Endpoint, ready_s: float) -> None:
        self.arm = ready.arm
        self.url = launch.record.url
        self.ready_s = ready_s
        self.endpoint = endpoint
        self.launch = launch

    async def send(self, prompts: Sequence[Prompt], traffic: Traffic, stop: Stop) -> Block:
        """Each prompt once, ``traffic.concurrency`` at a time, without warm-up.

        Raises:
            SpecpanelError: too many failed, or the server ended.
            InterruptedRunError: ``stop`` was asked for meanwhile.
        """
        once = traffic.model_copy(
            update={
                "requests": len(prompts),
                "duration_s": None,
                "rate_per_s": None,
                "warmup": 0,
            }
        )
        load = Load(self.endpoint, prompts, once, on_record=lambda _: None, stop=stop.interrupted)
        try:
            result = await load.run()
        except TrafficError as error:
            raise await self.launch.why_requests_failed(error) from None
        stop.check()
        return Block(result.records, result.elapsed_s)


async def prepare(arms: Sequence[Arm], tell: Listener, stop: Stop) -> tuple[Ready, ...]:
    """Look whether every arm can be launched, before any is.

    Raises:
        SpecpanelError: one of them cannot.
    """
    loop = asyncio.get_running_loop()

    def tell_from_thread(event: Event) -> None:
        loop.call_soon_threadsafe(tell, event)

    found: list[Ready] = []
    taken: set[int] = set()
    for arm in arms:
        stop.check()
        ready = await asyncio.to_thread(_prepared, arm, frozenset(taken), tell_from_thread)
        taken.add(ready.placed.engine.port)
        found.append(ready)
    return tuple(found)


def _prepared(arm: Arm, taken: frozenset[int], tell: Listener) -> Ready:
    python = resolve_python(arm.profile.engine.python)
    facts = probe_interpreter(python)
    placed = with_model_paths(arm.profile, python, lambda text: tell(Note(text)))
    port = _free_port(placed.engine.host, placed.engine.port, taken)
    placed = placed.model_copy(update={"engine": placed.engine.model_copy(update={"port": port})})
    refuse_what_cannot_work(placed, facts, tell)
    return Ready(arm, placed, facts, _need_bytes(placed, facts))


def _free_port(host: str, port: int, taken: frozenset[int]) -> int:
    """The first port from ``port`` on that is neither taken nor promised to another arm."""
    while port < 65535:
        state = port_state(host, port)
        if state.free and port not in taken:
            return port
        port = port + 1 if state.next_free is None else max(port + 1, state.next_free)
    return port


def _need_bytes(placed: Profile, facts: InterpreterFacts) -> int | None:
    if platform_of(placed, facts) != "cpu":
        return None
    found = estimate(placed, gather(placed, facts))
    sizes = [line.size_bytes for line in found.lines]
    if any(size is None for size in sizes):
        return None
    return sum(size for size in sizes if size is not None)


def side_by_side(every: Sequence[Ready]) -> bool:
    """Whether all servers can stand at the same time: on a CPU, where memory is certain to do.

    On a GPU each takes the share of memory that it is told, so they have to follow each other.
    """
    needs = [ready.need_bytes for ready in every]
    if None in needs:
        return False
    available = psutil.virtual_memory().available
    return sum(need for need in needs if need is not None) <= _MEMORY_SHARE * available


@asynccontextmanager
async def serving(ready: Ready, tell: Listener, stop: Stop) -> AsyncIterator[Serving]:
    """A server of the arm, from its start to its end.

    Raises:
        LaunchError: it does not start.
        InterruptedRunError: ``stop`` was asked for meanwhile.
    """
    stop.check()
    command = build_command(ready.placed, ready.facts, os.environ)
    launch = Launch(ready.placed, command, tell, settings=ready.arm.profile)
    launch.start()
    try:
        ready_s = await launch.until_ready(stop.interrupted)
        name = ready.placed.target.served_name
        key = api_key(ready.placed, os.environ)
        async with Endpoint(launch.record.url, name, api_key=key) as endpoint:
            yield Serving(ready, launch, endpoint, ready_s)
    finally:
        await asyncio.shield(launch.stop(stop.hurry))
