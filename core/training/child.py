"""Run a program of the trainer's interpreter to its end, its output in a file, stopped when the run is."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from specpanel.core.engine.logfile import tail
from specpanel.core.errors import SpecpanelError
from specpanel.core.printable import one_line
from specpanel.core.session.launch import InterruptedRunError

_POLL_S = 0.1

# Quiet, offline, and wide enough that no line of a log is broken.
QUIET: dict[str, str] = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "COLUMNS": "4000",
    "NO_COLOR": "1",
    "PYTHONSAFEPATH": "1",  # no modules from the folder that we were started in
    "TERM": "dumb",
    "PYTHONUNBUFFERED": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
}


async def run_child(
    argv: Sequence[str | os.PathLike[str]],
    log: Path,
    interrupted: asyncio.Event,
    environment: Mapping[str, str] | None = None,
) -> int:
    """The exit status of ``argv``.

    Raises:
        SpecpanelError: it cannot be started.
        InterruptedRunError: ``interrupted`` was set; the child and what it started are gone.
    """
    try:
        with log.open("ab", buffering=0) as output:
            child = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, **QUIET, **(environment or {})},
                start_new_session=True,
            )
    except OSError as error:
        raise SpecpanelError(f"{argv[0]} cannot be run: {error.strerror or error}") from error
    try:
        while child.returncode is None and not interrupted.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(child.wait()), _POLL_S)
    finally:
        if child.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            await child.wait()
    if interrupted.is_set():
        raise InterruptedRunError
    return await child.wait()


def last_words(log: Path) -> str:
    """What a failed program said last: the exception of a traceback, or the last line."""
    lines = [
        text for line in tail(log, 1 << 16) if (text := line.decode("utf-8", "replace").strip())
    ]
    telling = [line for line in lines if _tells(line)]
    chosen = telling[-1] if telling else (lines[-1] if lines else "it said nothing")
    return one_line(chosen, 300)


def _tells(line: str) -> bool:
    head = line.split(":")[0]
    name = head.rpartition(".")[2]
    return " " not in head and name.endswith(("Error", "Exception", "error")) and ":" in line
