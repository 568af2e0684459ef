"""The lines of a log as rows, the whole line under the cursor, and what the log is."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.figures import grouped
from specpanel.app.tui.ink import Line, Span, clean, fit, shorten, spread, width_of, wrap
from specpanel.app.tui.widgets.canvas import Canvas
from specpanel.app.tui.widgets.pane import Pane
from specpanel.core.engine.log_filter import SHOW_ALL, LogFilter
from specpanel.core.engine.log_index import Entry, LogState

_TIME = re.compile(r"\d\d:\d\d:\d\d")
_PROCESS_CELLS = 11
_GUTTER_CELLS = 3
_INKS: Mapping[str | None, str] = {"error": "bad", "warning": "warn", None: "text"}
_MARKS: Mapping[str, str] = {"error": "exited", "warning": "warning"}


@dataclass(frozen=True, slots=True)
class LogPicture:
    """What is drawn: the entries around the cursor, by ordinal, and how."""

    entries: Mapping[int, Entry]
    state: LogState
    cursor: int
    shown: LogFilter = SHOW_ALL
    follow: bool = True
    wrap: bool = False
    empty: tuple[str, ...] = ()  # said when there is no line
    marks: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)

    @property
    def entry(self) -> Entry | None:
        return self.entries.get(self.cursor)

    def spans(self, text: str) -> Sequence[tuple[int, int]]:
        """Where in a text that is shown stands what the filter looks for."""
        return self.shown.spans(text) if self.shown.regex is None else self.marks.get(text, ())


NOTHING = LogPicture({}, LogState(), 0)


class LogHeader(Canvas):
    """Which log this is, on the left; its counts and what is going on with it, on the right."""

    DEFAULT_CSS = """
    LogHeader { height: 1; background: $surface; }
    """

    def __init__(self, *, glyphs: Glyphs) -> None:
        super().__init__(id="log-header")
        self.glyphs = glyphs
        self._left: Line = ()
        self._right: Line = ()

    def show(
        self, sources: Sequence[tuple[str, bool]], place: str, picture: LogPicture, indexing: bool
    ) -> None:
        """``sources`` are names, and whether each is the one that is shown."""
        self._left = (
            (" ", "text"),
            *(
                span
                for name, chosen in sources
                for span in ((f" {name} ", "tab-on" if chosen else "muted"), (" ", "text"))
            ),
            (clean(place), "muted"),
        )
        self._right = (
            ("  ", "text"),
            *header_counts(picture, indexing, self.glyphs),
            (" ", "text"),
        )
        self.redraw()

    def compose_rows(self, width: int, height: int) -> Sequence[Line]:
        return [spread(self._left, self._right, width, self.glyphs.ellipsis)]


def header_counts(picture: LogPicture, indexing: bool, glyphs: Glyphs) -> Line:
    """Lines, hits, folded probes and what is going on, separated by dots."""
    state = picture.state
    parts: list[Span] = [(_counted(state.lines, "line"), "text")]
    if picture.shown.narrows:
        parts.append((_counted(state.hits, "hit"), "strong"))
    if state.folded:
        parts.append((f"{grouped(state.folded)} folded", "muted"))
    if state.size and not state.exists:
        parts.append(("file is gone", "warn"))
    if indexing:
        parts.append((f"indexing {100 * state.progress:.0f} %", "warn"))
    parts.append(("following", "good") if picture.follow else ("not following", "muted"))
    dot: Span = (f" {glyphs.dot} ", "faint")
    return tuple(span for part in parts for span in (dot, part))[1:]


class LogView(Pane):
    """One row a line, or more with ``wrap``; keeps the cursor's line in sight."""

    def __init__(self, *, glyphs: Glyphs) -> None:
        super().__init__("Log", glyphs=glyphs, id="log-view")
        self.top = 0
        self._picture = NOTHING

    def show(self, picture: LogPicture) -> None:
        self._picture = picture
        self.title = view_title(picture.shown)
        self.redraw()

    def legend(self) -> Line:
        return (("wrapped", "muted"),) if self._picture.wrap else ()

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        picture = self._picture
        if width < 1 or height < 1:
            return []
        if not picture.entries:
            return self._nothing(width, height)
        self.top = self._top_for(width, height)
        rows: list[Line] = []
        ordinal = self.top
        while len(rows) < height and ordinal < picture.state.end:
            entry = picture.entries.get(ordinal)
            rows += self._rows(entry, width, height) if entry is not None else [()]
            ordinal += 1
        return [self._cut(row, width) for row in rows[:height]]

    def _cut(self, row: Line, width: int) -> Line:
        if width_of(row) <= width:
            return row
        return (*fit(row, width - len(self.glyphs.ellipsis), ""), (self.glyphs.ellipsis, "muted"))

    def _nothing(self, width: int, height: int) -> list[Line]:
        rows: list[Line] = [()] * max(0, (height - len(self._picture.empty)) // 2)
        for number, text in enumerate(self._picture.empty):
            text = shorten(clean(text), width - 2, self.glyphs.ellipsis)
            left = " " * max(1, (width - len(text)) // 2)
            rows.append(((left + text, "muted" if number else "strong"),))
        return rows

    def _top_for(self, width: int, height: int) -> int:
        """The first line to draw: moved as little as keeps the whole line of the cursor in sight."""
        picture = self._picture
        first, last = picture.state.first, picture.state.end - 1
        cursor = picture.cursor
        lowest = cursor  # the topmost line with which the cursor's line is still seen whole
        room = height - self._height_of(cursor, width, height)
        while lowest > first and room > 0:
            room -= self._height_of(lowest - 1, width, height)
            if room < 0:
                break
            lowest -= 1
        if picture.follow or cursor == last:
            return lowest
        return min(max(self.top, lowest), cursor)

    def _height_of(self, ordinal: int, width: int, height: int) -> int:
        entry = self._picture.entries.get(ordinal)
        if not self._picture.wrap or entry is None:
            return 1
        return min(height, len(_wrapped(clean(entry.line.text), width - _GUTTER_CELLS)))

    def _rows(self, entry: Entry, width: int, height: int) -> list[Line]:
        here = entry.ordinal == self._picture.cursor
        gutter = self._gutter(entry, here)
        ink = _ink(entry, here)
        if not self._picture.wrap:
            return [(*gutter, *self._brief(entry, ink))]
        parts = _wrapped(clean(entry.line.text), width - _GUTTER_CELLS)[:height]
        indent: Line = ((" " * _GUTTER_CELLS, "text"),)
        return [
            ((*gutter, *self._marked(part, ink)) if n == 0 else (*indent, *self._marked(part, ink)))
            for n, part in enumerate(parts)
        ]

    def _gutter(self, entry: Entry, here: bool) -> Line:
        pointer = (">" if self.glyphs.name == "ascii" else "▸") if here else " "
        mark = self.glyphs.states[_MARKS[entry.severity]] if entry.severity else " "
        return ((pointer, "key"), (mark, _INKS[entry.severity]), (" ", "text"))

    def _brief(self, entry: Entry, ink: str) -> Line:
        """Time, process and message; what has no time is shown as it is."""
        line = entry.line
        moment = _TIME.search(line.time_text) if line.time_text else None
        if moment is None:
            return self._marked(clean(line.text), ink)
        process = fit(((clean(line.process or ""), "muted"),), _PROCESS_CELLS, self.glyphs.ellipsis)
        return (
            (moment[0] + " ", "faint"),
            *process,
            (" ", "text"),
            *self._marked(clean(line.message), ink),
        )

    def _marked(self, text: str, ink: str) -> Line:
        """The text, with what the filter looks for picked out."""
        spans: list[Span] = []
        at = 0
        for start, end in self._picture.spans(text):
            if start > at:
                spans.append((text[at:start], ink))
            spans.append((text[start:end], "key"))
            at = end
        return (*spans, (text[at:], ink))


class LineDetail(Pane):
    """The whole line under the cursor, wrapped."""

    def __init__(self, *, glyphs: Glyphs) -> None:
        super().__init__("Line", glyphs=glyphs, id="log-line")
        self._entry: Entry | None = None
        self._number: int | None = None

    def show(self, picture: LogPicture) -> None:
        self._entry = picture.entry
        before = picture.state.lines_before
        known = self._entry is not None and before is not None
        self._number = (before or 0) + self._entry.number + 1 if known and self._entry else None
        self.title = "Line" if self._number is None else f"Line {grouped(self._number)}"
        self.redraw()

    def legend(self) -> Line:
        if self._entry is None:
            return ()
        line, severity = self._entry.line, self._entry.severity
        facts: list[Span] = []
        if severity is not None:
            facts.append((f"{self.glyphs.states[_MARKS[severity]]} {severity} ", _INKS[severity]))
        if line.source:
            facts.append((clean(line.source) + " ", "muted"))
        if line.cut:
            facts.append(("cut: y copies more ", "warn"))
        return tuple(facts)

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        if self._entry is None or width < 4:
            return []
        parts = _wrapped(clean(self._entry.line.text), width - 2)
        if len(parts) > height > 0:
            rest = " ".join(parts[height - 1 :])
            parts = (*parts[: height - 1], shorten(rest, width - 2, self.glyphs.ellipsis))
        return [((" ", "text"), (part, "text")) for part in parts]


def _counted(number: int, what: str) -> str:
    return f"{grouped(number)} {what}{'' if number == 1 else 's'}"


def view_title(shown: LogFilter) -> str:
    """What is shown, in words."""
    levels = {"all": "All lines", "warning": "Warnings and errors", "error": "Errors"}
    if not shown.pattern:
        return levels[shown.level]
    return f"{levels[shown.level]} with {clean(shown.pattern)}"


def _ink(entry: Entry, here: bool) -> str:
    if entry.severity is not None:
        return _INKS[entry.severity]
    if here:
        return "strong"
    return "faint" if entry.line.level == "DEBUG" else "text"


@lru_cache(maxsize=512)
def _wrapped(text: str, width: int) -> tuple[str, ...]:
    """The text in rows of ``width`` cells; what is indented stays so."""
    indent = text[: min(len(text) - len(text.lstrip(" ")), width // 3)]
    return tuple(indent + part for part in wrap(text[len(indent) :], max(1, width - len(indent))))
