"""Follow a growing log file by polling: whole lines as bytes, whatever they hold."""

import os
from collections.abc import Iterator
from pathlib import Path

_MOST_BYTES = 1 << 20  # read at once, so that a flood cannot hold the loop
_LONGEST_LINE = 1 << 16


class LogFollower:
    """Reads what was appended since the last call. A file that does not exist yet has no lines."""

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        self.path = path
        self._offset = 0
        self._partial = b""
        self._inode: int | None = None
        if from_end:
            self._begin_at_end()

    def new_lines(self) -> list[bytes]:
        """Whole lines appended since the last call, without their line ends.

        At most 1 MiB a call. A line longer than 64 KiB is handed out in pieces. A file that was cut
        short, or replaced by another, is read from its start.
        """
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_size < self._offset or self._inode not in (None, status.st_ino):
                    self._offset, self._partial = 0, b""
                self._inode = status.st_ino
                file.seek(self._offset)
                read = file.read(_MOST_BYTES)
        except FileNotFoundError:
            self._offset, self._partial, self._inode = 0, b"", None
            return []
        self._offset += len(read)
        *whole, self._partial = (self._partial + read).split(b"\n")
        lines = [piece for line in whole for piece in _pieces(line)]
        *begun, self._partial = _pieces(self._partial)
        return lines + begun

    def rest(self) -> list[bytes]:
        """Everything left, the unfinished last line included: for a process that has ended."""
        lines: list[bytes] = []
        while more := self.new_lines():
            lines.extend(more)
        if self._partial:
            lines.append(self._partial)
            self._partial = b""
        return lines

    def _begin_at_end(self) -> None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return
        self._offset, self._inode = status.st_size, status.st_ino


def _pieces(line: bytes) -> Iterator[bytes]:
    """``line`` in pieces of at most 64 KiB; one piece for an empty line."""
    for start in range(0, max(1, len(line)), _LONGEST_LINE):
        yield line[start : start + _LONGEST_LINE]


def is_full(path: Path) -> bool:
    """Whether the disk that holds the file has no room left for us."""
    try:
        return os.statvfs(path.parent).f_bavail == 0
    except OSError:
        return False


def tail(path: Path, most_bytes: int = 1 << 19) -> list[bytes]:
    """The last lines of a file, from at most ``most_bytes`` of it."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - most_bytes))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return []
    return lines[1:] if size > most_bytes else lines
