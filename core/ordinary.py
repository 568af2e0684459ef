"""Reading what somebody names: files, and pipes with a writer; never a device, never without an end.

Opening a pipe that nobody writes to, or reading ``/dev/zero``, would take for ever or all memory. What is
not fit raises an ``OSError`` whose ``strerror`` says why, so that callers tell it like any other.
"""

import errno
import io
import os
import select
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

LONGEST_LINE_BYTES = 64 * 1024 * 1024
PIPE_PATIENCE_S = 30.0
_PIECE_BYTES = 1 << 24


def open_ordinary(path: Path, *, pipes: bool = True) -> BinaryIO:
    """Open a file to be read, or the end of a pipe, as ``<(zcat file)`` makes one.

    Raises:
        OSError: it cannot be opened, or is a folder, a device, a socket, or a pipe where none may be.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            return os.fdopen(descriptor, "rb")
        if stat.S_ISFIFO(mode) and pipes:
            return io.BufferedReader(_Pipe(descriptor))
        raise _unfit(mode, path)
    except BaseException:
        os.close(descriptor)
        raise


def read_ordinary(path: Path, limit_bytes: int, *, pipes: bool = True) -> bytes:
    """The whole of it.

    Raises:
        OSError: see ``open_ordinary``; or there is more than ``limit_bytes``.
    """
    with open_ordinary(path, pipes=pipes) as file:
        pieces: list[bytes] = []  # asked for all at once, the limit itself would be taken as memory
        left = limit_bytes + 1
        while left and (piece := file.read(min(left, _PIECE_BYTES))):
            pieces.append(piece)
            left -= len(piece)
    if not left:
        raise OSError(errno.EFBIG, f"has more than {limit_bytes / 1e6:.0f} MB", str(path))
    return b"".join(pieces)


def lines_of(path: Path, longest_bytes: int = LONGEST_LINE_BYTES) -> Iterator[bytes]:
    """Its lines with their ends, one at a time.

    Raises:
        OSError: see ``open_ordinary``; or a line is longer than ``longest_bytes``.
    """
    with open_ordinary(path) as file:
        number = 0
        while line := file.readline(longest_bytes + 1):
            number += 1
            if len(line) > longest_bytes:
                reason = f"line {number} has more than {longest_bytes / 1e6:.0f} MB"
                raise OSError(errno.EFBIG, reason, str(path))
            yield line


class _Pipe(io.RawIOBase):
    """Waits for what a pipe's writer sends, but not for ever. Without a writer it is at its end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]  # only ever called with one
        try:  # without a writer this is the end, of which select would not tell
            content = os.read(self._descriptor, len(buffer))
        except BlockingIOError:
            ready, _, _ = select.select([self._descriptor], [], [], PIPE_PATIENCE_S)
            if not ready:
                reason = f"nothing came out of the pipe for {PIPE_PATIENCE_S:g} s"
                raise OSError(errno.ETIMEDOUT, reason) from None
            content = os.read(self._descriptor, len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()


def _unfit(mode: int, path: Path) -> OSError:
    if stat.S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    kinds = ((stat.S_ISFIFO, "a pipe"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"))
    what = next((name for test, name in kinds if test(mode)), "something else")
    return OSError(errno.EINVAL, f"it is {what}, not a file", str(path))
