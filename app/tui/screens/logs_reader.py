"""Reads a log for the Logs screen, a slice at a time, in a thread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from specpanel.app.tui.ink import clean
from specpanel.core.engine.log_filter import LogFilter
from specpanel.core.engine.log_index import Anchor, Entry, LogIndex, LogState
from specpanel.core.engine.log_source import LogSource
from specpanel.core.engine.logline import LogLine
from specpanel.core.engine.regex_child import RegexChild

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
    """``marks`` says where the regex is in the texts that are shown."""

    entries: dict[int, Entry]
    state: LogState
    more: bool
    marks: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)


class LogReader:
    """One index and the page last read from it. All methods run in a thread, one at a time."""

    def __init__(self, source: LogSource, shown: LogFilter, anchor: Anchor = "end") -> None:
        self.source = source
        self.shown = shown
        self._regex = None if shown.regex is None else RegexChild(shown.regex)
        self._index = self._indexed(anchor)
        self._last: tuple[Wanted, LogState, LogPage] | None = None

    def _indexed(self, anchor: Anchor) -> LogIndex:
        matches = None if self._regex is None else self._regex.matches
        return LogIndex(self.source, self.shown, anchor, matches)

    def close(self) -> None:
        """Ends what searches for a regex."""
        if self._regex is not None:
            self._regex.close()

    def read(self, wanted: Wanted) -> LogPage:
        """Index for one slice of time, then read the lines that are wanted.

        Raises:
            SlowPatternError: the regex takes too long.
        """
        more = self._index.advance(SLICE_S)
        if wanted.follow and self._index.unread_bytes > FAR_BEHIND_BYTES:
            self._index = self._indexed("end")
            more = self._index.advance(SLICE_S)
        state = self._index.state
        if self._last is not None and self._last[:2] == (wanted, state):
            return replace(self._last[2], more=more)
        margin = 2 * wanted.rows
        cursor = state.end - 1 if wanted.follow else wanted.cursor
        found = self._index.window(cursor - margin, 2 * margin)
        entries = {entry.ordinal: entry for entry in found}
        page = LogPage(entries, state, more, self._marks(found))
        self._last = (wanted, state, page)
        return page

    def _marks(self, entries: Sequence[Entry]) -> dict[str, list[tuple[int, int]]]:
        if self._regex is None:
            return {}
        both = ((entry.line.text, entry.line.message) for entry in entries)
        texts = list({clean(text) for pair in both for text in pair})
        return dict(zip(texts, self._regex.spans(texts), strict=True))

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
