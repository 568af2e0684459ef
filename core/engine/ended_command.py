"""The end of a command of specpanel's in a session of its own: asked for, asked for again, then made.

What such a command starts, vLLM above all, has sessions of its own in turn. Where the command is killed, that
stays behind, and is named for a person.
"""

import asyncio
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterable
from contextlib import suppress

import psutil

from specpanel.core.engine.process import running_servers

HEEDED_S = 3.0  # from the second SIGINT to SIGKILL
_POLL_S = 0.1
_KILL_WAIT_S = 10.0
_LINGER_S = 1.0  # for what ends by itself once the command is gone
_CLOCK_S = 2.0  # start times of processes are that much apart from the clock at most


async def end_command(child: "subprocess.Popen[bytes]", hurry: threading.Event) -> tuple[str, ...]:
    """Send SIGINT, as Ctrl-C does, and wait for the end; ``hurry`` sends another and kills 3 s later.

    ``child`` must lead a session, whose process group is what is killed.

    Returns:
        What a killed command has left behind, each for a person; nothing where it ended by itself.
    """
    child.send_signal(signal.SIGINT)
    asked_again_s: float | None = None
    while child.poll() is None:
        if hurry.is_set() and asked_again_s is None:
            asked_again_s = time.monotonic()
            child.send_signal(signal.SIGINT)
        if asked_again_s is not None and time.monotonic() - asked_again_s >= HEEDED_S:
            return await asyncio.to_thread(_kill, child)
        await asyncio.sleep(_POLL_S)
    return ()


def _kill(child: "subprocess.Popen[bytes]") -> tuple[str, ...]:
    try:
        leader = psutil.Process(child.pid)
        began_unix, below = leader.create_time(), leader.children(recursive=True)
    except psutil.Error:
        began_unix, below = 0.0, []
    names = {process: _name(process) for process in below}
    if child.poll() is None:  # not reaped, so the number is still its own
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            child.wait(_KILL_WAIT_S)
    servers = [
        record
        for record in running_servers()
        if record.owner_pid == child.pid and record.started_unix > began_unix - _CLOCK_S
    ]
    told = {record.pid for record in servers}
    rest = [process for process in _lingering(below) if _session(process.pid) not in told]
    return (
        *([] if child.poll() is not None else [f"the command itself (pid {child.pid})"]),
        *(f"{one.name} at {one.url} (specpanel stop {one.name} ends it)" for one in servers),
        *(f"{names[process]} (pid {process.pid})" for process in rest),
    )


def _lingering(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that live on; most have ended with what started them, or do so in a moment."""
    until_s = time.monotonic() + _LINGER_S
    left = [process for process in processes if _lives(process)]
    while left and time.monotonic() < until_s:
        time.sleep(_POLL_S)
        left = [process for process in left if _lives(process)]
    return left


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return "a process"


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None
