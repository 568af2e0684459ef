"""How the panel ends: asked, by a signal, or because its terminal has gone. A server is left running."""

import asyncio
import contextlib
import os
import select
import sys
import termios
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from textual.worker import Worker, WorkerState

from specpanel.app.tui.desk_app import DeskApp
from specpanel.app.tui.owner_words import owner_sentence
from specpanel.app.tui.screens.dialogs import ErrorScreen, QuitChoice, QuitScreen, StoppingScreen
from specpanel.core.errors import ExitCode, SpecpanelError

if TYPE_CHECKING:
    from specpanel.app.tui.lab_jobs import LabJobs
    from specpanel.core.training.detached import Detached


class LeavingApp(DeskApp):
    """Ends once the desk has closed, or the driver of a recording was cancelled."""

    failure: BaseException | None = None
    """What failed last; printed once the screen is back."""
    left_behind: list[str]
    """What still runs although the panel was told to stop it; printed once the screen is back."""
    exit_code = ExitCode.DONE
    _stopping = False
    _filler: Worker[None] | None = None
    _closer: Worker[None] | None = None
    detached: "list[Detached]"
    """Trainings and promotions that this panel began and whose end was not told yet."""
    lab: "LabJobs"
    """Experiments that this panel began."""
    _in_a_hurry: threading.Event

    @property
    def training_words(self) -> str:
        """What of ours runs beside a server; empty where nothing does."""
        names = [child.name for child in self.detached if child.exit_code is None]
        return ", ".join(names)

    @property
    def _runs_beside(self) -> bool:
        """Whether a training or an experiment of ours is on its way."""
        return bool(self.training_words) or self.lab.running > 0

    def mind_detached(self) -> None:
        """Tells what came of those that have ended."""
        for child in [one for one in self.detached if one.exit_code is not None]:
            from specpanel.app.tui.screens.train_actions import outcome_words

            self.detached.remove(child)
            text, well = outcome_words(child)
            self.say(text, severity="information" if well else "error")
            child.forget_files()

    @property
    def server_is_up(self) -> bool:
        """Whether leaving has to ask what becomes of a server."""
        return self.desk is not None and self.desk.owns_server

    @property
    def _driver_is_running(self) -> bool:
        return self._filler is not None and not self._filler.is_finished

    async def action_quit(self) -> None:
        """Leaves, asks first when a server of ours is up, and hurries when it is leaving already."""
        if self._stopping:
            self._hurry()
        elif isinstance(self.screen, QuitScreen):
            self.screen.dismiss("cancel")
        elif self.server_is_up or self._runs_beside:
            server = self._server_words() if self.server_is_up else ""
            question = QuitScreen(
                server,
                self.training_words,
                experiment=self.lab.running > 0,
                needed=self._needed_words(),
            )
            self.push_screen(question, self._quit_chosen)
        else:
            self._leave()

    def _server_words(self) -> str:
        served = None if self.desk is None else self.desk.starting or self.desk.current
        if served is None:
            return "It is being started."
        state = "starting" if served.facts.starting else "running"
        return f"{served.name} at {served.facts.url}, {state}"

    def _needed_words(self) -> str:
        """Who else needs the server that a stop would end; empty where nobody does."""
        served = None if self.desk is None else self.desk.current
        return "" if served is None or not served.is_up else owner_sentence(served.record)

    def _quit_chosen(self, choice: QuitChoice | None) -> None:
        if choice == "leave" or choice == "stop":
            self._leave(leave=choice == "leave")

    def _leave_unasked(self, reason: str = "a signal ended the panel") -> None:
        """A signal, or the terminal has gone: end the panel and keep the server."""
        if self._stopping:
            return
        self.exit_code = ExitCode.INTERRUPTED
        self._leave(reason=reason)

    def _leave_unseen(self) -> None:
        """The terminal has gone: draw no more, because what nobody reads blocks the writer for good.

        Where it is there after all (somebody sent the signal), it gets its modes back.
        """
        if self._terminal_is_there():
            _give_terminal_back()
        if self._driver is not None:
            self._driver.write = _write_nothing  # type: ignore[method-assign]
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for descriptor in (1, 2):
            os.dup2(nowhere, descriptor)
        os.close(nowhere)
        self._leave_unasked("the terminal of the panel went away")

    def _leave(self, *, leave: bool = True, reason: str = "the panel was left") -> None:
        self._stopping = True
        if self.desk is not None or (not leave and self._runs_beside):
            self._keep_failure(None if self.desk is None else self.desk.failure)
            self.push_screen(StoppingScreen())
            self._cancel_driver()
            self._closer = self.run_worker(
                partial(self._close, leave=leave, reason=reason),
                group="closing",
                exit_on_error=False,
            )
        elif self._driver_is_running:
            self.push_screen(StoppingScreen())
            self._cancel_driver()
        else:
            self.exit()

    async def _close(self, *, leave: bool, reason: str) -> None:
        """End the desk; with it, unless they are left, what runs in processes of its own."""
        stops = [] if leave else [*(child.stop for child in self.detached), self.lab.stop]
        left = asyncio.gather(*(stop(self._in_a_hurry) for stop in stops))
        if self.desk is None:
            await left
        else:
            await asyncio.gather(left, self.desk.close(leave=leave, reason=reason))
        self.left_behind += [one for of_each in left.result() for one in of_each]

    def _hurry(self) -> None:
        self._in_a_hurry.set()
        if self.desk is not None:
            self.desk.hurry()
        self._cancel_driver()

    def _keep_failure(self, error: BaseException | None) -> None:
        """What failed last is printed once the screen is back, and decides the exit status."""
        if error is None or self.exit_code is not ExitCode.DONE:
            return
        self.failure = error
        self.exit_code = error.exit_code if isinstance(error, SpecpanelError) else ExitCode.FAILED

    def _cancel_driver(self) -> None:
        if self._filler is not None:
            self._filler.cancel()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        if event.worker not in (self._filler, self._closer) or not event.worker.is_finished:
            return
        error = event.worker.error
        if event.state is WorkerState.ERROR and error is not None:
            self._keep_failure(error)
            if not self._stopping:
                self.push_screen(ErrorScreen(error))
        if self._stopping:
            self.exit()

    def _terminal_is_there(self) -> bool:
        """Whether somebody still sees us: an SSH connection can go without any signal."""
        if self.is_headless or sys.__stdin__ is None:
            return True
        try:
            termios.tcgetattr(sys.__stdin__.fileno())
        except (termios.error, OSError, ValueError):
            return False
        return True


_SLOW_READER_S = 0.5
# Mouse, focus and paste reports off, the keyboard as it was, cursor, wrapping, and the screen before ours.
_MODES_OFF = (
    *("\x1b[?1000l", "\x1b[?1002l", "\x1b[?1003l", "\x1b[?1006l", "\x1b[?1015l", "\x1b[?1016l"),
    *(
        "\x1b[?1004l",
        "\x1b[?2004l",
        "\x1b[?2048l",
        "\x1b[<u",
        "\x1b[?25h",
        "\x1b[?7h",
        "\x1b[?1049l",
    ),
)


def _give_terminal_back() -> None:
    """Turn off what we turned on; a reader who is slow is waited for, one who never reads is not."""
    rest = "".join(_MODES_OFF).encode()
    deadline_s = time.monotonic() + _SLOW_READER_S
    with contextlib.suppress(OSError):
        was_blocking = os.get_blocking(2)
        os.set_blocking(2, False)
        try:
            while rest and time.monotonic() < deadline_s:
                if select.select((), (2,), (), 0.05)[1]:
                    with contextlib.suppress(BlockingIOError):
                        rest = rest[os.write(2, rest) :]
        finally:
            os.set_blocking(2, was_blocking)


def _write_nothing(data: str) -> None:
    """Takes the place of writing to a terminal that has gone."""
