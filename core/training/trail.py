"""Reads a run's events as they are written: each line once, in slices, over all files of the run.

A run that was gone on with has ``events.ndjson``, ``events-2.ndjson`` and so on.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specpanel.core.engine.logfile import tail
from specpanel.core.printable import one_line

SLICE_BYTES = 1 << 18
_LONGEST_LINE = 4 << 20
_TAIL_BYTES = 1 << 15


@dataclass(frozen=True, slots=True)
class TrailRead:
    """``lines`` as objects, None for one that is no event. ``again``: the files are others than before, so
    all that was read is void. ``share`` is how much of what lies there has been read."""

    lines: list[Mapping[str, Any] | None]
    more: bool
    again: bool
    share: float


class Trail:
    """Where one reader stands in a run's events. ``read`` is for a thread, one call at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._number = 1
        self._offset = 0
        self._partial = b""
        self._inode: int | None = None
        self._before = 0  # bytes in the files that have been read
        self._total = 0

    @property
    def path(self) -> Path:
        """The file that is being read."""
        return _events(self.root, self._number)

    def has_more(self) -> bool:
        """Whether something was written since; two looks at the disk."""
        try:
            status = self.path.stat()
        except OSError:
            return self._inode is not None
        changed = status.st_size != self._offset or self._inode not in (None, status.st_ino)
        return changed or _events(self.root, self._number + 1).exists()

    def read(self) -> TrailRead:
        """The next 256 KiB at most."""
        again = False
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_size < self._offset or self._inode not in (None, status.st_ino):
                    self._rewind()
                    again = True
                    if self._number != 1:
                        self._number = 1
                        return TrailRead([], True, True, 0.0)
                self._inode = status.st_ino
                file.seek(self._offset)
                found = file.read(SLICE_BYTES)
        except OSError:
            gone = self._inode is not None
            self._rewind()
            self._number = 1
            return TrailRead([], False, gone, 1.0)
        self._offset += len(found)
        self._total = max(self._total, self._before + status.st_size)
        lines = self._whole_lines(found)
        more = self._offset < status.st_size
        if not more and _events(self.root, self._number + 1).exists():
            self._next_file(status.st_size)
            more = True
        share = (self._before + self._offset) / self._total if self._total else 1.0
        return TrailRead(lines, more, again, min(1.0, share))

    def _whole_lines(self, found: bytes) -> list[Mapping[str, Any] | None]:
        *whole, self._partial = (self._partial + found).split(b"\n")
        lines = [_event(text) for text in whole if text.strip()]
        if len(self._partial) > _LONGEST_LINE:
            self._partial = b""
            lines.append(None)
        return lines

    def _next_file(self, size: int) -> None:
        self._before += size
        self._number += 1
        self._offset, self._partial, self._inode = 0, b"", None

    def _rewind(self) -> None:
        self._offset, self._partial, self._inode, self._before, self._total = 0, b"", None, 0, 0


def _events(root: Path, number: int) -> Path:
    return root / ("events.ndjson" if number == 1 else f"events-{number}.ndjson")


def _event(text: bytes) -> Mapping[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def stage_began_unix(root: Path) -> float | None:
    """When the stage that is being done began: as the last one ended, or the run began."""
    stamps = []
    with suppress(OSError):
        stamps.append((root / "recipe.json").stat().st_mtime)
    for path in (root / "stages").glob("*.json"):
        with suppress(OSError):
            stamps.append(path.stat().st_mtime)
    return max(stamps, default=None)


# Lines drawn across a log, and the edges of frames, say nothing.
_RULES = set("-=_*~+#|.^ ") | {
    chr(code) for code in range(0x2500, 0x2580)
}  # what rules are drawn with


def last_log_line(log: Path) -> str:
    """The last line of a log that says something, fit to be shown; empty where there is none."""
    try:
        lines = tail(log, _TAIL_BYTES)
    except OSError:
        return ""
    for line in reversed(lines):
        text = one_line(" ".join(line.decode("utf-8", "replace").split()), 400)
        if set(text) - _RULES:
            return text
    return ""


def free_share(folder: Path) -> float | None:
    """Free part of the disk (or /dev/shm) that holds ``folder``; None where it is not there."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail / found.f_blocks if found.f_blocks else None
