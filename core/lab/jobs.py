"""Experiments that a panel starts: the headless command in a session of its own, and how one is ended."""

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specpanel.core.engine import identity
from specpanel.core.errors import NotRunningError, SpecpanelError
from specpanel.core.lab.store import Experiment
from specpanel.core.printable import one_line
from specpanel.core.private import private_opener
from specpanel.core.settings.files import profile_text
from specpanel.core.settings.paths import state_folder
from specpanel.core.settings.profile import Profile

_TAIL_BYTES = 8192


def jobs_folder() -> Path:
    """What commands that a panel started were given and said."""
    return state_folder() / "lab"


@dataclass(frozen=True, slots=True)
class Job:
    """A command on its way. It goes on when the panel is left; the store tells how it stands."""

    process: "subprocess.Popen[bytes]"
    said: Path

    @property
    def exit_code(self) -> int | None:
        return self.process.poll()

    def last_words(self) -> str:
        """The last line that it said to a person; why it ended, where it ended badly."""
        try:
            with self.said.open("rb") as file:
                file.seek(max(0, self.said.stat().st_size - _TAIL_BYTES))
                lines = file.read().decode("utf-8", "replace").splitlines()
        except OSError as error:
            return f"{self.said} cannot be read: {error.strerror or error}"
        return one_line(next((line for line in reversed(lines) if line.strip()), ""), 300)


# The last: no modules from the folder that the user stands in, as python -m would take them.
QUIET_AND_SAFE = {"NO_COLOR": "1", "PYTHONSAFEPATH": "1"}


def start_job(command: Sequence[str]) -> Job:
    """Start ``command`` in a session of its own, with its output in files.

    Raises:
        SpecpanelError: it cannot be started.
    """
    folder = jobs_folder()
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
    said = folder / f"{stem}.log"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (
            open(folder / f"{stem}.ndjson", "wb", opener=private_opener) as out,
            open(said, "wb", opener=private_opener) as err,
        ):
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **QUIET_AND_SAFE},
                start_new_session=True,
            )
    except OSError as error:
        raise SpecpanelError(f"the experiment cannot be started: {error}") from None
    return Job(process, said)


def profile_file(profile: Profile) -> Path:
    """``profile`` as a file of its own for a command, its name kept.

    Raises:
        SpecpanelError: it cannot be written.
    """
    folder = jobs_folder() / "profiles" / uuid.uuid4().hex[:8]
    path = folder / f"{profile.name}.toml"
    try:
        folder.mkdir(parents=True)
        with open(path, "w", encoding="utf-8", opener=private_opener) as file:
            file.write(profile_text(profile))
    except (OSError, UnicodeEncodeError) as error:
        raise SpecpanelError(f"{path} cannot be written: {error}") from None
    return path


def stop_experiment(found: Experiment) -> None:
    """Ask the process that measures to end and keep what it has, as Ctrl-C does.

    Raises:
        NotRunningError: it has ended.
    """
    pid, mark = found.writer
    if pid is None or not identity.leader_lives(pid, mark):
        raise NotRunningError(f"{found.id} is not running any more")
    try:
        os.kill(pid, signal.SIGINT)
    except OSError as error:
        raise NotRunningError(f"{found.id} cannot be stopped: {error.strerror}") from None
