"""The panel's own notices, kept in memory as a small log that reads like any other."""

import time
from typing import Literal

from specpanel.core.printable import one_line

_MOST_BYTES = 1 << 18
_LONGEST_NOTICE = 2000

NoticeLevel = Literal["information", "warning", "error"]
_LEVELS: dict[NoticeLevel, str] = {
    "information": "INFO",
    "warning": "WARNING",
    "error": "ERROR",
}


class Notices:
    """A source of log lines: what was shown as a notice, oldest first. The oldest half goes when full."""

    def __init__(self) -> None:
        self._written = b""
        self._cut = 0

    def add(self, text: str, level: NoticeLevel = "information") -> None:
        """Keep a notice with the time of day."""
        moment = time.strftime("%H:%M:%S")
        line = f"{_LEVELS[level] + ':':<9} {moment} {one_line(text, _LONGEST_NOTICE)}\n"
        written = self._written + line.encode()
        if len(written) > _MOST_BYTES:
            written = written[written.index(b"\n", _MOST_BYTES // 2) + 1 :]
            self._cut += 1
        self._written = written

    def status(self) -> tuple[object, int] | None:
        return self._cut, len(self._written)

    def read(self, offset: int, size: int) -> bytes:
        return self._written[offset : offset + size]
