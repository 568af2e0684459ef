"""A command that a panel started is asked to end, asked again, and killed where it heeds neither."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from fakes.engine.workbench import lives, wait_for

from specpanel.core.engine import ended_command
from specpanel.core.engine.ended_command import end_command
from specpanel.core.engine.process import running_servers, stop_server
from specpanel.core.training.detached import Detached

SAVES = "import signal; signal.sigwait([signal.SIGINT]); raise SystemExit(130)"
BLOCKS = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"
FROZEN = "import os, signal; print('up', flush=True); os.kill(os.getpid(), signal.SIGSTOP)"
# Heeds nothing, and has started a server and another program, each in a session of its own.
DEAF = """
import os, signal, subprocess, sys, time
from pathlib import Path
from specpanel.core.engine.command import Command
from specpanel.core.engine.process import start_server
from specpanel.core.engine.registry import ServerRecord
signal.signal(signal.SIGINT, signal.SIG_IGN)
record = ServerRecord(
    id="f" * 32, name="measured", profile="measured", model="m", drafter="none", host="127.0.0.1",
    port=8123, log=Path(sys.argv[1]), argv=(), started_unix=time.time(), owner_pid=os.getpid())
start_server(record, Command(("sleep", "600"), {}, ()), os.environ)
subprocess.Popen(["sleep", "601"], stdout=subprocess.DEVNULL, start_new_session=True)
print("up", flush=True)
time.sleep(600)
"""


@contextmanager
def started(program: str, *words: object) -> Iterator["subprocess.Popen[bytes]"]:
    """A command in a session of its own that has said a line, or begun."""
    command = [sys.executable, "-c", program, *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"up\n"
            yield child
        finally:
            child.kill()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended_command, "HEEDED_S", 0.3)


def is_frozen(process: psutil.Process) -> None:
    """Wait until it is: it freezes itself a moment after its first line."""
    wait_for(lambda: process.status() == psutil.STATUS_STOPPED, "the child is frozen")


def at_once() -> threading.Event:
    hurry = threading.Event()
    hurry.set()
    return hurry


async def test_what_heeds_is_waited_for_and_never_killed() -> None:
    slow = f"{BLOCKS}print('up', flush=True); import time; time.sleep(0.8); {SAVES}"
    with started(slow) as child:
        assert await end_command(child, threading.Event()) == ()
        assert child.returncode == 130


async def test_what_is_frozen_is_killed_but_only_in_a_hurry() -> None:
    with started(FROZEN) as child:
        await asyncio.to_thread(is_frozen, psutil.Process(child.pid))
        hurry = threading.Event()
        ending = asyncio.create_task(end_command(child, hurry))
        await asyncio.sleep(0.8)
        assert child.poll() is None
        hurry.set()
        assert await ending == ()
        assert child.returncode == -signal.SIGKILL


async def test_what_a_killed_command_leaves_is_named(tmp_path: Path) -> None:
    with started(DEAF, tmp_path / "server.log") as child:
        try:
            server, other = await end_command(child, at_once())
            assert child.returncode == -signal.SIGKILL
            assert server == "measured at http://127.0.0.1:8123 (specpanel stop measured ends it)"
            found = re.fullmatch(r"sleep \(pid (\d+)\)", other)
            assert found is not None, other
            assert lives(int(found[1]))
            os.kill(int(found[1]), signal.SIGKILL)
        finally:
            for record in running_servers():
                stop_server(record, 1.0)


async def test_a_training_that_is_frozen_does_not_keep_the_panel_from_leaving() -> None:
    child = Detached("train-tiny", [sys.executable, "-c", FROZEN])
    try:
        await asyncio.to_thread(is_frozen, psutil.Process(child.owner.pid))
        assert await child.stop(at_once()) == ()
        assert child.exit_code == -signal.SIGKILL
    finally:
        with suppress(ProcessLookupError):
            os.kill(child.owner.pid, signal.SIGKILL)
