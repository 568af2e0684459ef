"""Start vLLM in a session of its own, and end it so that nothing stays behind.

The child writes to its log file directly: a busy, dead or killed panel never blocks it.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from specpanel.core.engine import identity, registry
from specpanel.core.engine.command import Command
from specpanel.core.engine.metrics_folder import shared_metrics
from specpanel.core.engine.registry import ServerRecord
from specpanel.core.errors import LaunchError
from specpanel.core.private import private_opener
from specpanel.core.web import is_loopback, server_root

_POLL_S = 0.05
_KILL_WAIT_S = 10.0
_NEVER = threading.Event()


@dataclass(frozen=True, slots=True)
class StopReport:
    """How a stop went. ``survivors`` is empty unless the kernel could not end a process."""

    was_running: bool
    killed: bool
    took_s: float
    survivors: tuple[int, ...] = ()


class ServerProcess:
    """A server that this process started. ``record`` is what its state file says."""

    def __init__(self, record: ServerRecord, child: subprocess.Popen[bytes]) -> None:
        self.record = record
        self._child = child
        self.stop_requested = False

    @property
    def exit_code(self) -> int | None:
        """The leader's exit status (negative: ended by that signal), None while it runs. Reaps it."""
        return self._child.poll()

    def stop(self, timeout_s: float, hurry: threading.Event = _NEVER) -> StopReport:
        """End the server and all its processes, then forget its state file."""
        self.stop_requested = True
        report = stop_server(self.record, timeout_s, hurry=hurry, reap=self._child.poll)
        if not report.survivors:
            # A process of several threads looks dead a moment before its exit status can be had.
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(_KILL_WAIT_S)
        return report


def start_server(
    record: ServerRecord, command: Command, environment: Mapping[str, str]
) -> ServerProcess:
    """Start ``command`` for ``record``, whose pid and start mark are filled in.

    Args:
        environment: what the child inherits; the command's own variables are laid over it.

    Raises:
        LaunchError: the program cannot be run, or the log cannot be written.
    """
    try:
        registry.save(record)
        shared = shared_metrics(command.argv, {**environment, **command.environment}, record.id)
        record.log.parent.mkdir(parents=True, exist_ok=True)
        with open(record.log, "ab", buffering=0, opener=private_opener) as log:
            child = subprocess.Popen(
                command.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={
                    **environment,
                    **shared,
                    **command.environment,
                    identity.ID_VARIABLE: record.id,
                },
                start_new_session=True,
            )
    except OSError as error:
        registry.forget(record)
        raise LaunchError(
            f"vLLM could not be started: {error.strerror or error} ({error.filename or command.argv[0]})",
            "Look at engine.python in the profile and at the folder for logs.",
        ) from error
    started = record.model_copy(
        update={"pid": child.pid, "start_mark": identity.start_mark(child.pid)}
    )
    registry.save(started)
    return ServerProcess(started, child)


def complete(record: ServerRecord) -> ServerRecord:
    """``record`` with the pid it never learnt, where its starter was killed in between."""
    if record.pid is not None:
        return record
    pid = identity.find_by_id(record.id)
    if pid is None:
        return record
    return record.model_copy(update={"pid": pid, "start_mark": identity.start_mark(pid)})


def is_running(record: ServerRecord) -> bool:
    """Whether any process of the server lives."""
    if identity.leader_lives(record.pid, record.start_mark):
        return True
    return bool(identity.members(record.id, record.pid, record.start_mark))


def running_servers() -> list[ServerRecord]:
    """Servers that specpanel started and that still live; state files of dead ones are removed."""
    alive: list[ServerRecord] = []
    for stored in registry.records():
        record = complete(stored)
        if is_running(record):
            alive.append(record)
        elif record.pid is not None or not identity.leader_lives(
            stored.owner_pid, identity.start_mark(stored.owner_pid)
        ):
            registry.forget(stored)
    return alive


def running_at(url: str) -> ServerRecord | None:
    """The server of ours at an address, however this machine is called in it."""
    wanted = _place(url)
    return next((one for one in running_servers() if _place(one.url) == wanted), None)


def _place(url: str) -> tuple[str, int | None]:
    parts = urlsplit(server_root(url))
    host = parts.hostname or ""
    return ("" if is_loopback(host) else host), parts.port


def stop_server(
    record: ServerRecord,
    timeout_s: float,
    *,
    hurry: threading.Event = _NEVER,
    reap: Callable[[], object] = lambda: None,
) -> StopReport:
    """SIGTERM to the leader, wait, SIGKILL to every process of the server, then wait until none is left.

    Only processes that belong to ``record`` by session, start mark or id are touched.

    Args:
        timeout_s: time between SIGTERM and SIGKILL, in seconds; ``hurry`` cuts it short.
        reap: called while waiting, so that a dead child of ours does not linger as a zombie.
    """
    began = time.monotonic()
    record = complete(record)

    def living() -> list[int]:
        reap()
        quick = identity.session_members(record.pid, record.start_mark)
        return quick or identity.members(record.id, record.pid, record.start_mark)

    targets = identity.members(record.id, record.pid, record.start_mark)
    if not targets:
        registry.forget(record)
        return StopReport(was_running=False, killed=False, took_s=0.0)
    leader_alive = identity.leader_lives(record.pid, record.start_mark)
    _signal(targets[:1] if leader_alive else targets, signal.SIGTERM)
    left = _wait_until_empty(living, timeout_s, hurry)
    killed = bool(left)
    if left:
        _signal(left, signal.SIGKILL)
        left = _wait_until_empty(living, _KILL_WAIT_S, _NEVER, on_each=_kill_all)
    if not left:
        registry.forget(record)
    return StopReport(True, killed, time.monotonic() - began, tuple(left))


def _wait_until_empty(
    living: Callable[[], list[int]],
    timeout_s: float,
    hurry: threading.Event,
    on_each: Callable[[list[int]], None] = lambda _: None,
) -> list[int]:
    deadline = time.monotonic() + timeout_s
    left = living()
    while left and time.monotonic() < deadline and not hurry.is_set():
        hurry.wait(_POLL_S)
        left = living()
        on_each(left)
    return left


def _kill_all(pids: list[int]) -> None:
    _signal(pids, signal.SIGKILL)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
