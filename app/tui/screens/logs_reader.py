"""Reads a log for the Logs screen, a slice at a time, in a thread."""

from dataclasses import dataclass
from pathlib import Path

from specpanel.core.engine.log_filter import LogFilter
from specpanel.core.engine.log_index import Anchor, Entry, LogIndex, LogState
from specpanel.core.engine.log_source import LogSource
from specpanel.core.engine.logline import LogLine

SLICE_S = 0.04
FAR_BEHIND_BYTES = 16 << 20
"""A log that has grown by more than this since the last look is shown from its end again."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines to have at hand: around ``cursor``, or the last ones."""

    cursor: int
    rows: int
    follow: bool


@dataclass(frozen=True, slots=True)
class LogPage:
    entries: dict[int, Entry]
    state: LogState
    more: bool


class LogReader:
    """One index and the page last read from it. All methods run in a thread, one at a time."""

    def __init__(self, source: LogSource, shown: LogFilter, anchor: Anchor = "end") -> None:
        self.source = source
        self.shown = shown
        self._index = LogIndex(source, shown, anchor)
        self._last: tuple[Wanted, LogState, dict[int, Entry]] | None = None

    def read(self, wanted: Wanted) -> LogPage:
        """Index for one slice of time, then read the lines that are wanted."""
        more = self._index.advance(SLICE_S)
        if wanted.follow and self._index.unread_bytes > FAR_BEHIND_BYTES:
            self._index = LogIndex(self.source, self.shown)
            more = self._index.advance(SLICE_S)
        state = self._index.state
        if self._last is not None and self._last[:2] == (wanted, state):
            return LogPage(self._last[2], state, more)
        margin = 2 * wanted.rows
        cursor = state.end - 1 if wanted.follow else wanted.cursor
        found = self._index.window(cursor - margin, 2 * margin)
        entries = {entry.ordinal: entry for entry in found}
        self._last = (wanted, state, entries)
        return LogPage(entries, state, more)

    def notable(self, ordinal: int, step: int) -> int | None:
        """The next warning or error, or the one before, among what has been indexed."""
        index = self._index
        return index.notable_after(ordinal) if step > 0 else index.notable_before(ordinal)

    def whole(self, offset: int) -> LogLine:
        return self._index.whole(offset)


def newest_log(folder: Path) -> Path | None:
    """The log that was written to last."""
    try:
        found = [(path.stat().st_mtime, path) for path in folder.glob("*.log")]
    except OSError:
        return None
    return max(found)[1] if found else None
