"""The asking side of a measurement: a child that measures, what it tells as it goes, and its end.

Blocking, so a panel runs it in a thread and cancels it from another. The child ends with whoever asked: its
standard input stays open, and when that closes, it stops.
"""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from specpanel.kernels.errors import MLAError
from specpanel.kernels.request import Report, Request, dump, report_of

_LAST_WORDS = 200
_END_S = 5.0


def gpu_is_loaded() -> bool:
    """Whether some GPU's driver is loaded here; the measuring process knows better and may still say no."""
    return Path("/proc/driver/nvidia/version").exists() or Path("/dev/kfd").exists()


class Measurement:
    """One run of ``python -m specpanel.kernels``.

    Args:
        python: an interpreter in which specpanel and torch are installed.
        quiet: keep the child's standard error off the terminal; its last line is told where it fails.
    """

    def __init__(self, python: str, *, quiet: bool = False) -> None:
        self.python = python
        self.cancelled = False
        self._quiet = quiet
        self._child: subprocess.Popen[str] | None = None

    def run(self, request: Request, heard: Callable[[Report], None]) -> list[Report]:
        """Measure; ``heard`` gets every report as it comes. The last one is the calibration.

        Raises:
            MLAError: it cannot be started, failed or was cancelled; the message says which.
            OSError: the interpreter cannot be started.
        """
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as words:
            child = subprocess.Popen(
                [self.python, "-m", "specpanel.kernels"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words if self._quiet else None,
                text=True,
                # Else python -m takes modules from the folder that the user stands in.
                env={**os.environ, "PYTHONSAFEPATH": "1"},
                start_new_session=self._quiet,
            )
            self._child = child
            if self.cancelled:
                child.terminate()
            try:
                found = _talk(child, request, heard)
            finally:
                status = _ended(child)
            if self.cancelled:
                raise MLAError("the measurement was cancelled")
            if found and found[-1].kind == "error":
                raise MLAError(found[-1].content["message"], found[-1].content["fix"])
            if status or not found or found[-1].kind != "calibration":
                said = _last_words(words) if self._quiet else ""
                raise MLAError(
                    f"the measuring process ended with status {status}{said}",
                    f"Is specpanel installed for {self.python}?"
                    + ("" if self._quiet else " What it said stands above."),
                )
            return found

    def cancel(self) -> None:
        """End the child; ``run`` then says that it was cancelled. May be called from any thread."""
        self.cancelled = True
        child = self._child
        if child is not None and child.poll() is None:
            child.terminate()


def _talk(
    child: "subprocess.Popen[str]", request: Request, heard: Callable[[Report], None]
) -> list[Report]:
    assert child.stdin is not None
    assert child.stdout is not None
    found: list[Report] = []
    try:
        child.stdin.write(dump(request) + "\n")
        child.stdin.flush()
        for line in child.stdout:
            report = report_of(line)
            heard(report)
            found.append(report)
    except BrokenPipeError:
        pass  # it ended before it read the request: its exit status and its own words follow
    return found


def _ended(child: "subprocess.Popen[str]") -> int:
    """Its status. A child that has told all ends by itself; one that was left in the middle is ended."""
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):  # closing flushes what it never read
                pipe.close()
    try:
        return child.wait(_END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def _last_words(words: IO[str]) -> str:
    words.seek(0)
    lines = [line.strip() for line in words.read()[-4000:].splitlines() if line.strip()]
    return f": {lines[-1][:_LAST_WORDS]}" if lines else ""
