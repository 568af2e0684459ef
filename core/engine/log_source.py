"""Where the bytes of a log are: a file on disk, or the panel's own notices in memory."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class LogSource(Protocol):
    """Bytes that grow at the end."""

    def status(self) -> tuple[object, int] | None:
        """What the bytes are (another value: others have taken their place) and how many; None: gone."""

    def read(self, offset: int, size: int) -> bytes:
        """At most ``size`` bytes from ``offset``; fewer at the end, none when gone."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file on disk, opened for each read so that nothing is held when it is rotated away."""

    path: Path

    def status(self) -> tuple[object, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return (status.st_dev, status.st_ino), status.st_size

    def read(self, offset: int, size: int) -> bytes:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return b""
        try:
            return os.pread(descriptor, size, offset)
        except OSError:
            return b""
        finally:
            os.close(descriptor)
