"""The reader process as the panel holds it: started by exec, asked by pipe, watched through its black box."""

import asyncio
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from specpanel.core.devices.blackbox import BlackBox, LastCall, open_page
from specpanel.core.devices.wire import Answer, Inventory, decoded, question

_PROGRAM = Path(__file__).with_name("reader.py")
_LOOK_EVERY_S = 0.5
_END_S = 1.0
_KILLED_S = 5.0
_LONGEST_LINE_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long to wait for what, in seconds.

    A loaded or sick driver answers after many seconds, so a reading that is late is shown as stale long
    before the reader is given up. ``call_s`` is for one call of a vendor's library, not for an answer.
    """

    silent_s: float = 3.0
    call_s: float = 60.0
    amdsmi_start_s: float = 20.0
    own_s: float = 60.0  # for the reader's own code: a busy machine starts Python slowly
    again_s: float = 1.0  # before the first new start; doubled each time
    again_most_s: float = 60.0
    healthy_s: float = 60.0  # after which the count of failures begins anew
    empty_again_s: float = 300.0  # between looks at a machine without a device


class ReaderGone(Exception):  # noqa: N818 - it is news, not a fault of the caller
    """The reader died or hung. ``words`` say why; ``last`` is the call that it was in."""

    def __init__(self, words: str, last: LastCall, *, hung: bool) -> None:
        super().__init__(words)
        self.words = words
        self.last = last
        self.hung = hung


class ReaderProcess:
    """One life of the reader. Use `start`, then `line` and `ask`, and always `end`."""

    def __init__(self, process: asyncio.subprocess.Process, page: int) -> None:
        self._process = process
        self._page = page
        self._box = BlackBox(page)
        self.pid = process.pid

    @classmethod
    async def start(
        cls, python: str, *, period_s: float = 1.0, without_amdsmi: str | None = None
    ) -> "ReaderProcess":
        """Start it with ``python``.

        Raises:
            OSError: there is no such program.
        """
        page = open_page()
        arguments = [str(_PROGRAM), "--page", str(page), "--parent", str(os.getpid())]
        arguments += ["--period", str(period_s)]
        if without_amdsmi is not None:
            arguments += ["--without-amdsmi", without_amdsmi]
        try:
            process = await asyncio.create_subprocess_exec(
                python,
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=(page,),
                cwd="/",
                start_new_session=True,
                limit=_LONGEST_LINE_BYTES,
            )
        except OSError:
            os.close(page)
            raise
        return cls(process, page)

    async def line(self, deadlines: Deadlines) -> Inventory | Answer:
        """The next line of the reader.

        Raises:
            ReaderGone: it ended, or one call takes longer than its deadline.
        """
        while True:
            text = await self._next(deadlines)
            if not text:
                raise await self._ended()
            message = decoded(text)
            if message is not None:
                return message

    async def ask(self, deadlines: Deadlines, *, processes: bool) -> Answer:
        """Ask once and wait for the answer; raises as `line` does."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(question(processes=processes))
            await self._process.stdin.drain()
        except ConnectionError:
            raise await self._ended() from None
        while True:
            message = await self.line(deadlines)
            if isinstance(message, Answer):
                return message

    async def _next(self, deadlines: Deadlines) -> bytes:
        """One line, or nothing at the end of the pipe."""
        assert self._process.stdout is not None
        loop = asyncio.get_running_loop()
        reading = asyncio.ensure_future(self._process.stdout.readline())
        last, since_s = self._box.look(), loop.time()
        look_every_s = min(_LOOK_EVERY_S, deadlines.call_s / 4, deadlines.amdsmi_start_s / 4)
        try:
            while True:
                done, _ = await asyncio.wait({reading}, timeout=look_every_s)
                if done:
                    return _line(reading, self._box)
                now = self._box.look()
                if now.number != last.number:
                    last, since_s = now, loop.time()
                allowed_s = _allowed_s(now, deadlines)
                if loop.time() - since_s >= allowed_s:
                    words = f"{now.words} has not come back for {allowed_s:g} s"
                    raise ReaderGone(words, now, hung=True)
        finally:
            reading.cancel()

    async def _ended(self) -> ReaderGone:
        last = self._box.look()
        code = await self._process.wait()
        if code < 0:
            name = signal.Signals(-code).name
            return ReaderGone(f"it was killed by {name} in {last.words}", last, hung=False)
        assert self._process.stderr is not None
        told = (await self._process.stderr.read()).decode("utf-8", "replace").strip()
        why = told.splitlines()[-1] if told else f"exit code {code}"
        return ReaderGone(f"it ended: {why[:200]}", last, hung=False)

    async def end(self) -> bool:
        """End it: by the end of its input, then by SIGKILL. Whether it is gone.

        A process in an uninterruptible call outlives SIGKILL until the driver lets it go.
        """
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        if process.returncode is None and not self._box.look().name:
            await self._wait(_END_S)
        if process.returncode is None:
            process.kill()
            await self._wait(_KILLED_S)
        return process.returncode is not None

    async def wait(self) -> None:
        await self._process.wait()

    def release(self) -> None:
        """Close the page; after the end only."""
        self._box.close()
        os.close(self._page)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._process.wait()
        except TimeoutError:
            pass


def _line(reading: "asyncio.Future[bytes]", box: BlackBox) -> bytes:
    try:
        return reading.result()
    except ValueError as error:  # a line without an end: something else writes into the pipe
        raise ReaderGone(f"it sent no line: {error}", box.look(), hung=True) from error


def _allowed_s(call: LastCall, deadlines: Deadlines) -> float:
    if not call.name:
        return deadlines.own_s
    starting = call.library == "amdsmi" and "init" in call.name
    return deadlines.amdsmi_start_s if starting else deadlines.call_s
