"""The trainer as a child: in a session of its own, its output in a file, stopped so that it can save."""

import asyncio
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from specpanel.core.engine.command import Command
from specpanel.core.errors import SpecpanelError

_POLL_S = 0.1


class TrainerProcess:
    """A trainer that runs. Its state in the kernel is the only one: it saves into its own folder.

    Killed together with us it would go on alone: our runner in it watches for that, and saves and ends.
    """

    def __init__(self, command: Command, log: Path) -> None:
        """Raises SpecpanelError where it cannot be started."""
        try:
            with log.open("ab", buffering=0) as output:
                self._child = subprocess.Popen(
                    command.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **command.environment},
                    start_new_session=True,
                )
        except OSError as error:
            raise SpecpanelError(
                f"the trainer could not be started: {error.strerror or error}",
                "Set trainer.python to the interpreter that holds Speculators.",
            ) from error
        self.began_s = time.monotonic()
        self.began_unix = time.time()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        return self._child.poll()

    def ask_to_stop(self) -> None:
        """SIGINT, once: it saves and ends. A second one would end it without."""
        with suppress(ProcessLookupError):
            os.kill(self._child.pid, signal.SIGINT)

    def kill(self) -> None:
        """End it and what it started, at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)

    async def wait(self, deadline_s: float, hurry: asyncio.Event | None = None) -> int | None:
        """The exit status; None where it still runs at the deadline, or ``hurry`` was set."""
        until = time.monotonic() + deadline_s
        while self.exit_code is None and time.monotonic() < until:
            if hurry is not None and hurry.is_set():
                break
            await asyncio.sleep(_POLL_S)
        return self.exit_code

    async def end(self) -> None:
        """Make sure that nothing of it is left."""
        if self.exit_code is None:
            self.kill()
            await self.wait(10.0)
        # Data loaders are in its session, too.
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
