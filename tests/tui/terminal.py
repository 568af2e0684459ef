"""A program on a real pseudo-terminal, seen through a terminal emulator."""

import os
import re
import signal
import sys
import time
from collections.abc import Callable

import pexpect
import pyte
import pytest

DEADLINE_S = 60.0


def put_down(child: pexpect.spawn) -> None:
    """Ends a program on a pseudo-terminal for good, however long that takes on a busy machine."""
    if child.isalive():
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    child.close()


class Terminal:
    """A program on a pseudo-terminal and the screen it has drawn."""

    def __init__(
        self, *command: str, columns: int = 120, rows: int = 40, **environment: str
    ) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        env = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
        self.raw = b""
        self.child = pexpect.spawn(
            sys.executable,
            list(command),
            dimensions=(rows, columns),
            env={**env, **environment},
            timeout=DEADLINE_S,
        )

    def text(self) -> str:
        return "\n".join(self.screen.display)

    def read(self) -> bool:
        """Takes what has been written; ``False`` at the end."""
        try:
            data = self.child.read_nonblocking(65536, timeout=0.1)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.raw += data
        # The emulator prints the parameters of private sequences that it does not know.
        self._stream.feed(re.sub(rb"\x1b\[[<>=][0-9;]*[a-zA-Z]", b"", data))
        return True

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            alive = self.read()
            if not condition() and (not alive or time.monotonic() > deadline):
                pytest.fail(f"never came true; the screen:\n{self.text()}")

    def sees(self, text: str) -> None:
        self.until(lambda: text in self.text())

    def ends(self) -> int:
        deadline = time.monotonic() + DEADLINE_S
        while self.read():
            assert time.monotonic() < deadline, self.text()
        self.child.close()
        return int(
            self.child.exitstatus if self.child.exitstatus is not None else -self.child.signalstatus
        )
