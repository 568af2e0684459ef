"""A start is followed by its log until the server answers, ends, or falls silent."""

import asyncio
import os
import re
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fakes.engine.workbench import DEADLINE_S, Workbench, command_for, wait_for
from ports import free_port

from specpanel.core.engine import identity
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.errors import ConfigurationError, LaunchError
from specpanel.core.session.checks import refuse_what_cannot_work
from specpanel.core.session.events import Event, Launched, Note, PhaseEntered, Ready, Stopped
from specpanel.core.session.launch import InterruptedRunError, Launch
from specpanel.core.settings.paths import logs_folder, servers_folder

ORDER = ["config", "engine", "weights", "drafter", "KV cache", "http", "ready"]


class Started:
    """A launch under way and what it told."""

    def __init__(self, launch: Launch, events: list[Event]) -> None:
        self.launch = launch
        self.events = events
        self.interrupted = asyncio.Event()
        self.waiting = asyncio.create_task(launch.until_ready(self.interrupted))

    @property
    def log(self) -> str:
        return self.launch.log.read_text()

    @property
    def phases(self) -> list[PhaseEntered]:
        return [event for event in self.events if isinstance(event, PhaseEntered)]

    @property
    def notes(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Note)]

    async def until(self, condition: Callable[[], object], what: str) -> None:
        await asyncio.to_thread(wait_for, condition, what)

    async def ready(self) -> float:
        async with asyncio.timeout(DEADLINE_S):
            return await self.waiting


@asynccontextmanager
async def starting(
    bench: Workbench,
    facts: InterpreterFacts,
    *,
    start_silence_s: float = 60.0,
    **script: object,
) -> AsyncIterator[Started]:
    profile = bench.profile(start_silence_s=start_silence_s)
    events: list[Event] = []
    launch = Launch(profile, command_for(profile, facts), events.append)
    launch.start(bench.environment(script))
    started = Started(launch, events)
    try:
        yield started
    finally:
        started.waiting.cancel()
        await asyncio.gather(started.waiting, return_exceptions=True)
        await launch.stop(threading.Event())
    assert not identity.members(launch.record.id, launch.record.pid, launch.record.start_mark)


async def test_phases_come_in_order_with_their_seconds(
    bench: Workbench, fake_facts: InterpreterFacts
) -> None:
    async with starting(bench, fake_facts, start_s=1.6) as start:
        took_s = await start.ready()
        assert [event.phase for event in start.phases] == ORDER
        assert [event.previous for event in start.phases] == ["imports", *ORDER[:-1]]
        elapsed = [event.elapsed_s for event in start.phases]
        assert elapsed == sorted(elapsed)
        assert elapsed[-1] == pytest.approx(sum(event.previous_s for event in start.phases))
        assert 1.6 <= elapsed[-1] <= took_s
        assert len(set(elapsed)) > 3, "the log is read while it grows, not once at the end"
        assert start.phases[2].detail == str(bench.model)


async def test_first_and_last_events_tell_who_was_started_where(
    bench: Workbench, fake_facts: InterpreterFacts
) -> None:
    async with starting(bench, fake_facts) as start:
        took_s = await start.ready()
        first, last = start.events[0], start.events[-1]
        assert isinstance(first, Launched)
        assert first.pid == start.launch.record.pid
        assert Path(first.log) == start.launch.log
        assert last == Ready(first.url, took_s)
    assert isinstance(start.events[-1], Stopped)
    assert not start.events[-1].killed


async def test_server_is_ready_only_when_health_says_so(
    bench: Workbench, fake_facts: InterpreterFacts
) -> None:
    gate = bench.folder / "well"
    async with starting(bench, fake_facts, health_gate=str(gate)) as start:
        refused = '"GET /health HTTP/1.1" 503'
        await start.until(lambda: start.log.count(refused) >= 2, "two refusals")
        assert start.phases[-1].phase == "ready"
        assert not start.waiting.done()
        gate.touch()
        await start.ready()
        assert isinstance(start.events[-1], Ready)


# Phase, what the script does there, and what the one sentence must name.
CRASHES: list[tuple[str, dict[str, object], str]] = [
    ("imports", {"crash_text": "ModuleNotFoundError: No module named 'xgrammar'"}, "xgrammar"),
    (
        "config",
        {
            "crash_text": "pydantic_core._pydantic_core.ValidationError: 1 validation error for "
            "ModelConfig\n  Value error, User-specified max_model_len (100000) is greater than the "
            "derived max_model_len (max_position_embeddings=8192.0 or model_max_length=None in "
            "model's config.json)."
        },
        "100000",
    ),
    (
        "engine",
        {
            "crash_text": "ValueError: World size (4) is larger than the number of available GPUs (1)"
        },
        "tensor_parallel_size asks for 4",
    ),
    (
        "weights",
        {
            "crash_text": "ValueError: There is no module or parameter named 'nonsense' in LlamaModel."
        },
        "nonsense",
    ),
    ("drafter", {"crash_text": "torch.OutOfMemoryError: CUDA out of memory."}, "memory"),
    (
        "KV cache",
        {"crash_text": "ValueError: No available memory for the cache blocks."},
        "no memory for the KV cache",
    ),
    ("http", {"crash_text": "OSError: [Errno 98] Address already in use"}, "port"),
    ("ready", {"crash_text": "ValueError: the moon is full"}, "the moon is full"),
    *(
        (phase, {"crash_text": None, "exit_code": 0}, "exit code 0, though nobody asked")
        for phase in ("config", "weights", "ready")
    ),
    ("config", {"crash_signal": int(signal.SIGKILL)}, "SIGKILL"),
    ("weights", {"crash_signal": int(signal.SIGKILL)}, "EngineCore"),
]


async def test_end_in_any_phase_is_a_failure_with_its_root_cause_and_the_log(
    bench: Workbench, fake_facts: InterpreterFacts
) -> None:
    """All of them side by side: no two share a port, a log or a state file."""

    async def crash(phase: str, script: dict[str, object], named: str) -> str:
        async with starting(bench, fake_facts, crash_at=phase, **script) as start:
            with pytest.raises(LaunchError) as failed:
                await start.ready()
            log = str(start.launch.log)
            code = start.launch.exit_code
        said = failed.value.message
        if named not in said or "initialization failed" in said:
            return f"{phase}: {said!r} does not name {named!r}"
        if log not in failed.value.fix:
            return f"{phase}: {failed.value.fix!r} does not name the log"
        return "" if code == script.get("exit_code", code) else f"{phase}: exit code {code}"

    complaints = await asyncio.gather(*(crash(*each) for each in CRASHES))
    assert [complaint for complaint in complaints if complaint] == []
    bench.assert_nothing_left()


async def test_silent_start_is_reported_at_half_the_limit_and_fails_at_the_limit(
    bench: Workbench, fake_facts: InterpreterFacts
) -> None:
    """A busy machine may be silent earlier, too, for as long as the limit allows."""
    last = "Loading weights took 0.04 seconds"
    limit_s = 6.0
    async with starting(
        bench, fake_facts, silent_after="weights", start_silence_s=limit_s, start_s=0
    ) as start:

        def told() -> list[str]:
            return [note for note in start.notes if "phase weights" in note]

        await start.until(lambda: last in start.log, "the last line before the silence")
        silent_s = time.monotonic()
        await start.until(told, "a note on the silence")
        assert last in told()[0]
        assert not start.waiting.done()
        with pytest.raises(LaunchError) as failed:
            await start.ready()
        assert time.monotonic() - silent_s >= 0.9 * limit_s
        assert last in failed.value.message
        assert "weights" in failed.value.message
        assert str(start.launch.log) in failed.value.fix
        assert len(told()) == 1, "one silence is told once"


async def test_start_that_goes_on_printing_is_not_killed(
    bench: Workbench, fake_facts: InterpreterFacts
) -> None:
    script = {"chatter_after": "config", "chatter_s": 10.0}
    async with starting(bench, fake_facts, start_silence_s=8.0, **script) as start:
        assert await start.ready() >= 7.0
        assert "still at it" in start.log


async def test_interrupt_ends_the_wait_for_a_start(
    bench: Workbench, fake_facts: InterpreterFacts
) -> None:
    async with starting(bench, fake_facts, silent_after="weights") as start:
        await start.until(lambda: len(start.phases) == 3, "the weights")
        start.interrupted.set()
        with pytest.raises(InterruptedRunError):
            await start.ready()


def test_taken_port_is_refused_with_its_owner_and_the_next_free_one(
    bench: Workbench, fake_facts: InterpreterFacts
) -> None:
    profile = bench.profile()
    port = profile.engine.port
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        panel = bench.start(
            *("run", "--model", bench.model, "--drafter", "ngram", "--python"),
            *(profile.engine.python or "", "--port", str(port)),
        )
        assert panel.end() == 1
        assert f"port {port} is taken by" in panel.err
        assert f"pid {os.getpid()}" in panel.err
        assert re.search(r"Use port \d+, which is free", panel.err)
    bench.assert_nothing_left()
    assert not list(servers_folder().glob("*"))
    assert not logs_folder().exists()


def test_port_that_is_taken_in_the_last_moment_is_told_as_such(
    bench: Workbench, fake_facts: InterpreterFacts
) -> None:
    """Between preflight and the start another server may come: then vLLM's own words count."""

    async def race() -> None:
        port = free_port()
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", port))
            taken.listen()
            profile = bench.profile(port=port)
            launch = Launch(profile, command_for(profile, fake_facts), lambda _: None)
            launch.start(bench.environment())
            with pytest.raises(LaunchError, match="port that vLLM wants to listen on is taken"):
                await launch.until_ready(asyncio.Event())
            await launch.stop(threading.Event())

    asyncio.run(race())
    bench.assert_nothing_left()


def test_model_that_is_no_checkpoint_is_refused_before_anything_starts(
    bench: Workbench, fake_facts: InterpreterFacts
) -> None:
    (bench.model / "config.json").unlink()
    with pytest.raises(ConfigurationError, match=r"config\.json"):
        refuse_what_cannot_work(bench.profile(), fake_facts, lambda _: None)


async def test_interpreter_that_does_not_exist_starts_nothing(
    bench: Workbench, fake_facts: InterpreterFacts
) -> None:
    profile = bench.profile()
    command = command_for(profile, fake_facts)
    missing = type(command)((str(bench.folder / "gone"), *command.argv[1:]), {})
    launch = Launch(profile, missing, lambda _: None)
    with pytest.raises(LaunchError, match="could not be started"):
        launch.start(bench.environment())
    assert launch.exit_code is None
    bench.assert_nothing_left()
