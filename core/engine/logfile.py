"""Follow a growing log file by polling: whole lines as bytes, whatever they hold."""

from pathlib import Path

_MOST_BYTES = 1 << 20  # read at once, so that a flood cannot hold the loop
_LONGEST_LINE = 1 << 16


class LogFollower:
    """Reads what was appended since the last call. A file that does not exist yet has no lines."""

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        self.path = path
        self._offset = 0
        self._partial = b""
        if from_end:
            self._offset = self._size()

    def new_lines(self) -> list[bytes]:
        """Whole lines appended since the last call, without their line ends.

        At most 1 MiB a call. A line longer than 64 KiB is handed out in pieces. A file that was cut
        short is read again from its start.
        """
        if self._size() < self._offset:
            self._offset, self._partial = 0, b""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                read = file.read(_MOST_BYTES)
        except FileNotFoundError:
            return []
        self._offset += len(read)
        *lines, self._partial = (self._partial + read).split(b"\n")
        while len(self._partial) > _LONGEST_LINE:
            lines.append(self._partial[:_LONGEST_LINE])
            self._partial = self._partial[_LONGEST_LINE:]
        return lines

    def rest(self) -> list[bytes]:
        """Everything left, the unfinished last line included: for a process that has ended."""
        lines: list[bytes] = []
        while more := self.new_lines():
            lines.extend(more)
        if self._partial:
            lines.append(self._partial)
            self._partial = b""
        return lines

    def _size(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0


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
