"""A regular expression in a process of its own, so that a pattern that backtracks for ever costs a deadline.

Python's ``re`` cannot be stopped once it searches, and holds the interpreter's lock meanwhile: in a thread
it would block the panel. Here it blocks a child that is killed.
"""

import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Sequence

from specpanel.core.errors import ConfigurationError

DEADLINE_S = 2.0  # for 64 KiB of lines, in which an honest pattern does some MB
_LENGTH = struct.Struct("!I")
_STRIDE = 1 << 16

# One request: its length, a letter (m: which lines match, s: where in each), lines joined by line feeds.
# One answer: its length, and a 0 or 1 a line, or numbers "start-end" of each line's matches.
_PROGRAM = r"""
import re, struct, sys
length = struct.Struct("!I")
source, sink = sys.stdin.buffer, sys.stdout.buffer
def take():
    head = source.read(4)
    return source.read(length.unpack(head)[0]).decode("utf-8", "surrogatepass") if head else None
regex = re.compile(take())
while (request := take()) is not None:
    lines = request[1:].split("\n")
    if request[0] == "m":
        answer = "".join("1" if regex.search(line) else "0" for line in lines)
    else:
        answer = "\n".join(
            " ".join(f"{m.start()}-{m.end()}" for m in regex.finditer(line) if m.end() > m.start())
            for line in lines
        )
    data = answer.encode()
    sink.write(length.pack(len(data)) + data)
    sink.flush()
"""


class SlowPatternError(ConfigurationError):
    """A regular expression that takes too long on a line of this log."""


class RegexChild:
    """Searches lines for one pattern. For one thread at a time; lines hold no line feed.

    Args:
        pattern: a regular expression that compiles.
        deadline_s: how long one request may take.
    """

    def __init__(self, pattern: str, deadline_s: float = DEADLINE_S) -> None:
        self._pattern = pattern
        self._deadline_s = deadline_s
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def matches(self, lines: Sequence[str]) -> list[bool]:
        """For each line whether the pattern is in it.

        Raises:
            SlowPatternError: it could not be told in time; the child is gone.
        """
        return [answer == "1" for answer in self._ask("m", lines)] if lines else []

    def spans(self, lines: Sequence[str]) -> list[list[tuple[int, int]]]:
        """For each line where the pattern is in it.

        Raises:
            SlowPatternError: as above.
        """
        if not lines:
            return []
        return [_numbers(part) for part in self._ask("s", lines).split("\n")]

    def close(self) -> None:
        """End the child for good, from any thread; a request on its way is refused."""
        self._closed = True
        self._kill()

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _ask(self, kind: str, lines: Sequence[str]) -> str:
        until_s = time.monotonic() + self._deadline_s
        try:
            process = self._process or self._start()
            self._send(process, kind + "\n".join(lines))
            (size,) = _LENGTH.unpack(self._receive(process, _LENGTH.size, until_s))
            return self._receive(process, size, until_s).decode("ascii")
        except (TimeoutError, OSError, EOFError) as error:
            self._kill()
            raise SlowPatternError(
                f"/{self._pattern}/ takes too long on a line of this log",
                "Leave out a repetition inside a repetition, or look for a plain text.",
            ) from error

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal is the panel's
        )
        if self._closed:
            raise EOFError
        self._send(process, self._pattern)
        return process

    @staticmethod
    def _send(process: subprocess.Popen[bytes], text: str) -> None:
        data = text.encode("utf-8", "surrogatepass")
        assert process.stdin is not None
        process.stdin.write(_LENGTH.pack(len(data)) + data)
        process.stdin.flush()

    @staticmethod
    def _receive(process: subprocess.Popen[bytes], size: int, until_s: float) -> bytes:
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        data = b""
        while len(data) < size:
            if not select.select([descriptor], [], [], max(0.0, until_s - time.monotonic()))[0]:
                raise TimeoutError
            part = os.read(descriptor, min(_STRIDE, size - len(data)))
            if not part:
                raise EOFError
            data += part
        return data


def _numbers(text: str) -> list[tuple[int, int]]:
    found = [part.partition("-") for part in text.split(" ") if part]
    return [(int(start), int(end)) for start, _, end in found]
