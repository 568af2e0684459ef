"""A program in a pseudo-terminal of 140x45, and what it writes with the time of each piece."""

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

COLUMNS, ROWS = 140, 45
_BURST_GAP_S = 0.1
_PATIENCE_S = 5.0


class Terminal:
    """Ends the program on leaving: SIGTERM, and SIGKILL after some seconds."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.raw = b""
        self.newest_s = 0.0
        self._pieces: list[tuple[float, int]] = []
        environment = {
            **os.environ,
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LANG": "C.UTF-8",
            "COLUMNS": str(COLUMNS),
            "LINES": str(ROWS),
        }
        # Python keeps what it compiled unless this is set, and a second start reads it.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self.began_s = time.monotonic()
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            try:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
                os.execvpe(argv[0], list(argv), environment)
            except OSError as error:
                os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
            finally:
                os._exit(127)
        self.alive = True

    def read(self, timeout_s: float) -> bool:
        """Takes what is there; ``False`` when the program has closed its terminal."""
        ready, _, _ = select.select([self._descriptor], [], [], timeout_s)
        if not ready:
            return True
        try:
            data = os.read(self._descriptor, 1 << 16)
        except OSError:
            data = b""
        if not data:
            self.alive = False
            return False
        self.newest_s = time.monotonic()
        self._pieces.append((self.newest_s, len(data)))
        self.raw = (self.raw + data)[-(1 << 18) :]
        return True

    def read_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and self.read(min(left, 0.1)):
            pass

    def until(self, text: bytes, deadline_s: float) -> None:
        """Reads until ``text`` was written.

        Raises:
            TimeoutError: it was not, in time.
        """
        end = time.monotonic() + deadline_s
        while text not in self.raw:
            if time.monotonic() > end or not self.read(0.1):
                raise TimeoutError(f"{text!r} was never written")

    def forget(self) -> None:
        """Bursts are counted from here on."""
        self._pieces.clear()

    def bursts(self) -> list[int]:
        """Bytes of each redraw: pieces with less than a tenth of a second between them are one."""
        sizes: list[int] = []
        before_s = 0.0
        for at_s, size in self._pieces:
            if sizes and at_s - before_s < _BURST_GAP_S:
                sizes[-1] += size
            else:
                sizes.append(size)
            before_s = at_s
        return sizes

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        end = time.monotonic() + _PATIENCE_S
        while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                break
            if self.alive:
                self.read(0.05)
            else:
                time.sleep(0.05)
        os.close(self._descriptor)
