"""Start one vLLM, follow it until it answers, and end it."""

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from specpanel.core.engine import identity, registry
from specpanel.core.engine.chosen import ChosenReader
from specpanel.core.engine.client import EngineClient
from specpanel.core.engine.command import Command, redacted_argv
from specpanel.core.engine.failures import Failure, diagnose, without_room
from specpanel.core.engine.logfile import LogFollower, is_full, tail
from specpanel.core.engine.logline import parse_line
from specpanel.core.engine.phases import Phase, PhaseTracker
from specpanel.core.engine.process import (
    ServerProcess,
    StopReport,
    running_servers,
    start_server,
)
from specpanel.core.engine.registry import ServerRecord
from specpanel.core.errors import LaunchError, SpecpanelError
from specpanel.core.monitor.monitor import ServerFacts
from specpanel.core.printable import without_secrets
from specpanel.core.session.events import Launched, Listener, Note, PhaseEntered, Ready, Stopped
from specpanel.core.session.interruption import InterruptedRunError as InterruptedRunError
from specpanel.core.settings.paths import logs_folder
from specpanel.core.settings.profile import Profile

_ENGINE_DEATH_S = 10.0  # vLLM's watchdog ends the server about 5 s after its engine
_POLL_S = 0.25
_HEALTH_EVERY_S = 1.0
_ENGINE_READY = (Phase.HTTP, Phase.READY)
# A log without news for so long may be one that cannot grow, or that is kept quiet on purpose.
_QUIET_S = 5.0


class VllmEndedError(LaunchError):
    """vLLM ended before it was asked to; ``failure`` says why, where a cause was found."""

    def __init__(self, failure: Failure, log: Path) -> None:
        parts = [failure.fix, *(f"In its log: {evidence}." for evidence in failure.evidence)]
        if failure.setting is not None:
            parts.append(f"Setting: {failure.setting}.")
        super().__init__(failure.sentence, " ".join(filter(None, [*parts, f"Log: {log}"])))
        self.failure = failure
        self.log = log


class Launch:
    """One start of vLLM, from the command to the end of its last process.

    ``settings`` is the profile as the user wrote it, for the state file; ``profile`` has its models in place.
    ``forced`` are the codes of preflight's errors that were overridden.
    """

    def __init__(
        self,
        profile: Profile,
        command: Command,
        listener: Listener,
        *,
        settings: Profile | None = None,
        forced: tuple[str, ...] = (),
    ) -> None:
        self.profile = profile
        self._forced = forced
        self._settings = settings or profile
        self.command = command
        self.started_s = time.monotonic()
        self.tracker = PhaseTracker(self.started_s)
        self.choices = ChosenReader()
        self.ready = False
        self.last_line = ""
        self._listener = listener
        self._recent: deque[bytes] = deque(maxlen=50)
        self._process: ServerProcess | None = None
        self._follower: LogFollower | None = None
        self._progress_s = self.started_s
        self._warned = False
        self._told_full = False

    @property
    def record(self) -> ServerRecord:
        return self.process.record

    @property
    def process(self) -> ServerProcess:
        if self._process is None:
            raise LaunchError("vLLM was not started yet")
        return self._process

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.exit_code

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        """Start the process; returns at once.

        Raises:
            LaunchError: the program cannot be run.
        """
        name = registry.free_name(self.profile.name, {record.name for record in running_servers()})
        record = ServerRecord(
            id=registry.new_id(),
            name=name,
            profile=self.profile.name,
            model=self.profile.target.served_name or self.profile.target.model,
            drafter=self.profile.drafter.method,
            draft_tokens=self.profile.drafter.draft_tokens,
            host=self.profile.engine.host,
            port=self.profile.engine.port,
            log=registry.log_path(logs_folder(), name),
            argv=redacted_argv(self.command.argv),
            started_unix=time.time(),
            owner_pid=os.getpid(),
            settings_table=registry.table_without_secrets(self._settings),
            forced=self._forced,
        )
        self._process = start_server(
            record, self.command, os.environ if environment is None else environment
        )
        record = self._process.record
        self._follower = LogFollower(record.log)
        self._listener(Launched(name, record.pid or 0, record.url, str(record.log), record.argv))

    async def until_ready(self, interrupted: asyncio.Event) -> float:
        """Wait until the server answers; seconds that it took.

        Raises:
            LaunchError: vLLM ended, or wrote nothing for ``engine.start_silence_s``.
            InterruptedRunError: ``interrupted`` was set.
        """
        asked_s = 0.0
        async with EngineClient(self.record.url) as client:
            while True:
                self.read_log()
                if self.exit_code is not None:
                    raise self.failure()
                if interrupted.is_set():
                    raise InterruptedRunError
                now = time.monotonic()
                if now - asked_s >= _HEALTH_EVERY_S and self._may_serve(now):
                    asked_s = now
                    if (await client.health()).well:
                        break
                self._check_silence(now)
                await _pause(interrupted, _POLL_S)
        self.read_log()  # "startup complete" may have come since the last look
        self.ready = True
        took_s = time.monotonic() - self.started_s
        self._listener(Ready(self.record.url, took_s))
        return took_s

    def _may_serve(self, now: float) -> bool:
        """Whether asking makes sense: by its log, or, where that is silent, because it listens itself.

        Without either, what answers at the port may be another server.
        """
        if self.tracker.current in _ENGINE_READY:
            return True
        if now - self._progress_s < _QUIET_S:
            return False
        record = self.record
        members = identity.session_members(record.pid, record.start_mark)
        return any(identity.listens(pid, record.port) for pid in members)

    def read_log(self) -> None:
        """Take what the log gained since the last call."""
        if self._follower is None:
            return
        now = time.monotonic()
        for raw in self._follower.new_lines():
            self._take(raw, now)

    def _take(self, raw: bytes, now: float) -> None:
        self._progress_s = now
        self._warned = False
        entry = parse_line(raw)
        if entry.message.strip():
            self.last_line = without_secrets(entry.message.strip())
        self._recent.append(raw)
        self.choices.feed(entry)
        change = self.tracker.feed(entry, now)
        if change is not None:
            self._listener(
                PhaseEntered(
                    str(change.phase),
                    change.detail,
                    change.time_s - self.started_s,
                    str(change.previous),
                    change.previous_s,
                )
            )

    def _check_silence(self, now: float) -> None:
        limit = self.profile.engine.start_silence_s
        silent = now - self._progress_s
        if silent >= _QUIET_S and not self._told_full and is_full(self.record.log):
            self._told_full = True
            self._listener(
                Note(
                    f"the disk of {self.record.log} is full: what vLLM writes from here on is lost; "
                    "the start goes on"
                )
            )
        if silent >= limit:
            raise LaunchError(
                f"the start wrote nothing for {silent:.0f} s in the phase {self.tracker.current}; "
                f"its last line: {self.last_line or '(none)'}",
                f"See {self.record.log}; a longer engine.start_silence_s waits longer.",
            )
        if silent >= limit / 2 and not self._warned:
            self._warned = True
            self._listener(
                Note(
                    f"no log line for {silent:.0f} s (phase {self.tracker.current}; last: "
                    f"{self.last_line or 'none'}); it counts as failed after {limit:.0f} s"
                )
            )

    def first_facts(self, vllm_version: str | None) -> ServerFacts:
        """What is known of the server as soon as its process exists."""
        record, profile = self.record, self.profile
        return ServerFacts(
            url=record.url,
            name=record.name,
            model=profile.target.served_name or Path(profile.target.model).name,
            drafter=profile.drafter.method,
            draft_tokens=profile.drafter.draft_tokens,
            version=vllm_version,
            pid=record.pid,
            started_unix=record.started_unix,
            starting=True,
        )

    def describe(self, facts: ServerFacts) -> None:
        """Bring ``facts`` up to date with the log and the process, its end and the reason included."""
        self.read_log()
        facts.phase = str(self.tracker.current)
        facts.phase_s = self.tracker.elapsed_in_phase(time.monotonic())
        facts.detail = self.last_line
        if self.exit_code is not None:
            found = self.diagnosis()
            facts.detail = found.sentence if found else None
            facts.exit_code = self.exit_code
            facts.ended.set()

    def diagnosis(self) -> Failure | None:
        """Why vLLM ended, from its whole log; None where it ended because we asked."""
        self.read_log()
        code = self.exit_code
        if code is None:
            return None
        log = self.record.log
        found = diagnose(
            (raw.decode("utf-8", "replace") for raw in tail(log, 4 << 20)),
            code,
            self.process.stop_requested,
        )
        if found is not None and found.code == "ended" and is_full(log):
            return without_room(log, code)
        return found

    async def why_requests_failed(self, error: SpecpanelError) -> SpecpanelError:
        """vLLM's end where it ends, which can be seconds after its engine; else ``error`` itself."""
        async with EngineClient(self.record.url) as client:
            if (await client.health()).well:
                return error  # its engine lives
        deadline = time.monotonic() + _ENGINE_DEATH_S
        while time.monotonic() < deadline:
            if self.exit_code is not None:
                return self.failure()
            await asyncio.sleep(0.2)
        return error

    def failure(self) -> LaunchError:
        """The diagnosis as an error that names the log."""
        found = self.diagnosis()
        log = self.record.log
        if found is None:
            return LaunchError(f"vLLM ended with exit code {self.exit_code}", f"See {log}.")
        return VllmEndedError(found, log)

    async def stop(self, hurry: threading.Event) -> StopReport:
        """End the server and everything it started."""
        report = await asyncio.to_thread(
            self.process.stop, self.profile.engine.stop_timeout_s, hurry
        )
        self._listener(Stopped(self.record.name, report.killed, report.took_s, report.survivors))
        return report

    @property
    def log(self) -> Path:
        return self.record.log


async def _pause(interrupted: asyncio.Event, seconds: float) -> None:
    """Sleep, or less where an interrupt comes."""
    try:
        async with asyncio.timeout(seconds):
            await interrupted.wait()
    except TimeoutError:
        return
