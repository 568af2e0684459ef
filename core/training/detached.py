"""A training, or a promotion, in a process of its own: it goes on when whoever started it ends."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from specpanel.core.engine import identity
from specpanel.core.engine.ended_command import end_command
from specpanel.core.engine.logfile import tail
from specpanel.core.errors import NotRunningError, SpecpanelError
from specpanel.core.settings.paths import state_folder
from specpanel.core.training.folder import training_folder
from specpanel.core.training.runs import Owner

_ENVIRONMENT = {
    "NO_COLOR": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONSAFEPATH": "1",  # no modules from the folder that the user stands in
}
_FEW_BYTES = 1 << 14


class Detached:
    """One such process: in a session of its own, nothing on its input, its output in two files.

    Args:
        name: what it is about, for a person.
        words: the command.
    """

    def __init__(self, name: str, words: Sequence[str], *, root: Path | None = None) -> None:
        """Raises SpecpanelError where it cannot be started."""
        self.name = name
        self.root = root  # the folder of the training, where it is one
        place = state_folder() / "training"
        stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{time.monotonic_ns() % 10**6}"
        self.out, self.log = place / f"{stamp}.out", place / f"{stamp}.log"
        try:
            place.mkdir(parents=True, exist_ok=True)
            with self.out.open("wb") as out, self.log.open("wb") as log:
                self._child = subprocess.Popen(
                    list(words),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=log,
                    start_new_session=True,
                    env={**os.environ, **_ENVIRONMENT},
                )
        except OSError as error:
            raise SpecpanelError(
                f"{words[0]} cannot be started: {error.strerror or error}"
            ) from error
        self.owner = Owner(self._child.pid, identity.start_mark(self._child.pid) or "")

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._child.poll()

    def said(self) -> str:
        """What it said on standard error, the last of it."""
        return b"\n".join(tail(self.log, _FEW_BYTES)).decode("utf-8", "replace").strip()

    def interrupt(self) -> None:
        """SIGINT: it saves and ends. The second ends it without saving."""
        if self.exit_code is None:
            with suppress(ProcessLookupError):
                os.kill(self._child.pid, signal.SIGINT)

    async def stop(self, hurry: threading.Event) -> tuple[str, ...]:
        """Interrupt it and wait for its end; once more when ``hurry`` is set, and 3 s later it is killed.

        Returns what it then left behind, each for a person; nothing where it ended by itself.
        """
        return await end_command(self._child, hurry)

    def forget_files(self) -> None:
        """Remove what it wrote: for one that ended and whose words were told."""
        for path in (self.out, self.log):
            path.unlink(missing_ok=True)


def new_root(recipe: str) -> Path:
    """A folder for a new run of this recipe that is not there yet."""
    place = training_folder() / recipe
    stamp = time.strftime("%Y%m%d-%H%M%S")
    found, number = place / stamp, 2
    while found.exists():
        found, number = place / f"{stamp}-{number}", number + 1
    return found


def interrupt_owner(owner: Owner) -> None:
    """Ask the process of a run to save and end, as Ctrl-C does.

    Raises:
        NotRunningError: it is gone, or another process has its pid.
    """
    if not owner.lives:
        raise NotRunningError("this training does not run any more")
    try:
        os.kill(owner.pid, signal.SIGINT)
    except ProcessLookupError:
        raise NotRunningError("this training does not run any more") from None
    except PermissionError:
        raise NotRunningError("this training belongs to another user") from None
