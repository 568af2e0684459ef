"""Experiments that this panel has started: watched to their end, which is a notice."""

import asyncio
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from specpanel.core.lab.jobs import Job

Say = Callable[..., None]
Severity = Literal["information", "warning", "error"]

_LOOK_S = 0.5
_INTERRUPTED = 130


def specpanel_command(*arguments: str) -> list[str]:
    """The headless twin, in this panel's interpreter."""
    return [sys.executable, "-m", "specpanel.app", *arguments]


class LabJobs:
    """``changes`` grows whenever there may be new results, so that who read some reads again."""

    def __init__(self) -> None:
        self.changes = 0
        self._running: list[Job] = []

    @property
    def running(self) -> int:
        """How many are on their way."""
        return len(self._running)

    def start(self, command: Sequence[str]) -> "Job":
        """Start a command.

        Raises:
            SpecpanelError: it cannot be started.
        """
        from specpanel.core.lab.jobs import start_job

        job = start_job(command)
        self._running.append(job)
        return job

    async def stop(self, hurry: threading.Event) -> tuple[str, ...]:
        """Ask each to keep what it has and end its servers, as Ctrl-C does.

        In a hurry it is asked once more, and 3 s later killed. Returns what that left behind, each for a
        person; nothing where all ended by themselves.
        """
        from specpanel.core.engine.ended_command import end_command

        jobs = [job for job in self._running if job.exit_code is None]
        left = await asyncio.gather(*(end_command(job.process, hurry) for job in jobs))
        return tuple(one for of_job in left for one in of_job)

    async def until_ended(self, job: "Job", say: Say) -> None:
        """Wait for its end, and say how it ended."""
        code = job.exit_code
        while code is None:
            await asyncio.sleep(_LOOK_S)
            code = job.exit_code
        self._running.remove(job)
        self.changes += 1
        words = job.last_words()
        if code == 0:
            say("the experiment is done: the Lab shows what it found")
        elif code == _INTERRUPTED:
            say("the experiment was stopped; what it measured is kept")
        else:
            say(f"the experiment failed: {words or f'exit status {code}'}", severity="error")
