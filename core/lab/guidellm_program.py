"""guidellm as a program: where it is, and one run of it, ended on every way out."""

import asyncio
import os
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path

from specpanel.core.errors import ConfigurationError, SpecpanelError
from specpanel.core.lab.servers import Stop
from specpanel.core.printable import one_line
from specpanel.core.session.launch import InterruptedRunError

NAME = "guidellm"
_POLITE_S = 5.0
INSTALL = (
    "pip install 'specpanel[bench]', or pip install 'guidellm>=0.8,<0.9' in an environment of its own, "
    "where its pins and vLLM's do not agree, and --guidellm FOLDER."
)


def guidellm_program(named: str | None = None) -> str:
    """Where guidellm is: as named, else beside this interpreter, else on the path.

    Args:
        named: the program, the folder of its environment, or that environment's Python.

    Raises:
        ConfigurationError: it is not there.
    """
    if named is not None:
        path = Path(os.path.expanduser(named)).absolute()
        beside = (path, path / "bin" / NAME, path / NAME, path.parent / NAME)
        found = next((one for one in beside if one.name.startswith(NAME) and _runs(one)), None)
        if found is None:
            raise ConfigurationError(f"there is no guidellm at {one_line(named, 200)}", INSTALL)
        return str(found)
    own = Path(sys.executable).with_name(NAME)
    somewhere = str(own) if _runs(own) else shutil.which(NAME)
    if somewhere is None:
        raise ConfigurationError(
            "guidellm is neither beside this Python nor on the path", f"Get it with {INSTALL}"
        )
    return somewhere


def _runs(path: Path) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


async def run_guidellm(program: str, plan: Path, stop: Stop) -> None:
    """Run the scenario in ``plan`` to its end, in a session of its own, with its caches beside it.

    Raises:
        SpecpanelError: it cannot be started, or failed; with what it said last.
        InterruptedRunError: ``stop`` was asked for meanwhile.
    """
    words = (program, "run", "--config", str(plan), "--disable-console-interactive")
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=plan.parent,
            env=_environment(plan.parent),
            start_new_session=True,
        )
    except OSError as error:
        raise SpecpanelError(f"{program} cannot be started: {error.strerror or error}") from None
    talking = asyncio.create_task(process.communicate())
    stopping = asyncio.create_task(stop.interrupted.wait())
    try:
        await asyncio.wait({talking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not talking.done():
            raise InterruptedRunError
    finally:
        stopping.cancel()
        if not talking.done():
            await asyncio.shield(_end(process, talking, stop))
    said, _ = await talking
    if process.returncode != 0:
        raise SpecpanelError(
            f"guidellm ended with status {process.returncode}: {_last_words(said)}",
            "Its versions 0.8 are known to work here.",
        )


def _environment(folder: Path) -> dict[str, str]:
    """Plain output, nothing fetched, and no data set left in the user's cache."""
    mine = {"NO_COLOR": "1", "COLUMNS": "200", "HF_HUB_OFFLINE": "1"}
    return {**os.environ, **mine, "HF_DATASETS_CACHE": str(folder / "datasets")}


def _last_words(said: bytes) -> str:
    lines = [line for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    return one_line(lines[-1], 300) if lines else "it said nothing"


async def _end(
    process: asyncio.subprocess.Process,
    talking: "asyncio.Task[tuple[bytes, bytes]]",
    stop: Stop,
) -> None:
    """Ctrl-C for it and its workers; after a while, or a second Ctrl-C of the user, an end."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _POLITE_S
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    while not talking.done() and loop.time() < deadline and not stop.hurry.is_set():
        await asyncio.wait({talking}, timeout=0.1)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await talking
