"""Running servers above, past runs below: one list with one cursor."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from specpanel.app.run_words import (
    drafter_text,
    duration_text,
    size_text,
    started_text,
    value_text,
)
from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.ink import Line, Span, clean, fit, shorten, width_of
from specpanel.app.tui.widgets.pane import Pane
from specpanel.core.engine.registry import ServerRecord
from specpanel.core.session.history import PastRun, total_bytes
from specpanel.core.session.history_figures import Value

Entry = ServerRecord | PastRun

NOTHING = (
    ("Nothing runs, and no run is recorded yet.", "strong"),
    ("", "text"),
    ("specpanel run PROFILE and this panel record by themselves;", "muted"),
)
_WIDE, _MIDDLE = 104, 74
_MARKS = "AB"
_ENDS: dict[str, tuple[str, str, str]] = {
    "done": ("good", "done", "good"),
    "interrupted": ("warning", "interrupted", "warn"),
    "failed": ("exited", "failed", "bad"),
    "stopped": ("stopped", "stopped", "muted"),
    "exited": ("exited", "exited", "bad"),
    "left": ("stopped", "left on", "muted"),
    "abruptly": ("warning", "abruptly", "warn"),
    "writing": ("serving", "recording", "good"),
    "no server": ("warning", "no server", "warn"),
}


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    cells: int
    text: Callable[[PastRun], str]
    right: bool = True
    since: int = 0  # the width from which there is room for it


def _figure(name: str) -> Callable[[PastRun], str]:
    def text(run: PastRun) -> str:
        value: Value | None = getattr(run.figures, name, None)
        return value_text(value, interval=False)

    return text


_COLUMNS = (
    _Column("started", 11, lambda run: started_text(run.started_unix, "%m-%d %H:%M"), right=False),
    _Column("took", 7, lambda run: duration_text(run.duration_s), since=_WIDE),
    _Column("drafter", 12, drafter_text, right=False, since=_MIDDLE),
    _Column("AL", 5, _figure("acceptance_length")),
    _Column("tok/s", 6, _figure("tokens_per_s")),
    _Column("TPOT", 6, _figure("tpot_p50_ms"), since=_MIDDLE),
    _Column("TTFT", 6, _figure("ttft_p50_ms"), since=_WIDE),
    _Column("size", 7, lambda run: size_text(run.size_bytes), since=_WIDE),
)
_END_CELLS = 13
_NAME_CELLS = 10  # of a server's name at least, before other things are left out


def key_of(entry: Entry) -> str:
    """What stays the same over a rereading."""
    return f"server {entry.id}" if isinstance(entry, ServerRecord) else f"run {entry.path}"


class RunList(Pane):
    """Holds the entries, the filter, the cursor and the two marks; the screen does the rest."""

    def __init__(self, *, glyphs: Glyphs = BRAILLE) -> None:
        super().__init__("Sessions", glyphs=glyphs, id="run-list")
        self.selected = True
        self.running: tuple[ServerRecord, ...] = ()
        self.past: tuple[PastRun, ...] = ()
        self.current: str | None = None  # the id of the server on the desk
        self.needs: dict[str, str] = {}  # what runs on a server, by its id
        self.marked: tuple[Path, ...] = ()  # A, and B
        self.reading = True
        self.filter = ""
        self._nothing: tuple[Span, ...] = NOTHING
        self._close_key = "esc"
        self._cursor = 0
        self._places: list[int | None] = []  # of the rows that are drawn

    def place_at(self, row: int) -> int | None:
        return self._places[row - 1] if 0 < row <= len(self._places) else None

    def name_keys(self, launch: str, reread: str, close: str) -> None:
        """Which keys lead on where nothing is shown."""
        ways = f"{launch} chooses a profile to start, {reread} reads again."
        self._nothing, self._close_key = (*NOTHING, (ways, "muted")), close

    @property
    def cursor(self) -> int:
        """The place of the chosen entry."""
        return min(self._cursor, len(self.entries) - 1)

    # The entries

    def put(self, running: Sequence[ServerRecord], past: Sequence[PastRun]) -> None:
        """Takes what was read; the cursor and the marks stay on what they are on."""
        chosen = self.chosen
        self.running, self.past, self.reading = tuple(running), tuple(past), False
        there = {run.path for run in self.past}
        self.marked = tuple(path for path in self.marked if path in there)
        if chosen is not None:
            keys = [key_of(entry) for entry in self.entries]
            if key_of(chosen) in keys:
                self._cursor = keys.index(key_of(chosen))
        self.redraw()

    @property
    def entries(self) -> list[Entry]:
        """What the filter lets through: servers, then runs."""
        words = self.filter.lower().split()
        servers = [entry for entry in self.running if _matches(_server_words(entry), words)]
        runs = [entry for entry in self.past if _matches(_run_words(entry), words)]
        return [*servers, *runs]

    @property
    def chosen(self) -> Entry | None:
        entries = self.entries
        return entries[min(self._cursor, len(entries) - 1)] if entries else None

    def move(self, step: int) -> None:
        last = len(self.entries) - 1
        self._cursor = max(0, min(last, min(self._cursor, last) + step))
        self.redraw()

    def narrow(self, text: str) -> None:
        """Shows only what matches every word of ``text``."""
        self.filter, self._cursor = text, 0
        self.redraw()

    def mark(self, run: PastRun) -> None:
        """A, then B; a third takes B's place, and a marked one loses its mark."""
        if run.path in self.marked:
            self.marked = tuple(path for path in self.marked if path != run.path)
        else:
            self.marked = (*self.marked[:1], run.path)
        self.redraw()

    # The picture

    def legend(self) -> Line:
        spans: list[Span] = []
        if self.past:
            many = "1 run" if len(self.past) == 1 else f"{len(self.past)} runs"
            spans.append((f"{many}, {size_text(total_bytes(list(self.past)))} ", "muted"))
        if self.filter:
            spans.append((f"/{clean(self.filter)} ", "warn"))
        if self.reading:
            spans.append(("reading", "warn"))
        return tuple(spans)

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        self._places = []
        if not self.running and not self.past:
            return [] if self.reading else _centred(self._nothing, width, height)
        chosen = self.chosen
        if chosen is None:
            words = (
                (f"Nothing matches {clean(self.filter)}", "strong"),
                (f"{self._close_key} shows everything.", "muted"),
            )
            return _centred(words, width, height)
        rows: list[Line] = []
        places: list[int | None] = []
        at = number = 0
        for heading, group in self._groups(width):
            if group and rows:
                rows.append(())
            rows += [heading] if group else []
            places += [None] * (len(rows) - len(places))
            for entry in group:
                if entry is chosen:
                    at = len(rows)
                rows.append(self._entry(entry, width, chosen=entry is chosen))
                places.append(number)
                number += 1
        top = max(0, min(at - height // 2, len(rows) - height))
        self._places = places[top : top + height]
        return rows[top : top + height]

    def _groups(self, width: int) -> list[tuple[Line, list[Entry]]]:
        entries = self.entries
        servers: list[Entry] = [entry for entry in entries if isinstance(entry, ServerRecord)]
        runs: list[Entry] = [entry for entry in entries if isinstance(entry, PastRun)]
        return [
            (((f"   RUNNING  {len(servers)}", "brand"),), servers),
            (self._heading(f"PAST RUNS  {len(runs)}", width), runs),
        ]

    def _heading(self, text: str, width: int) -> Line:
        columns = [column for column in _COLUMNS if width >= column.since]
        name = _name_cells(columns, width)
        row: list[Span] = [*fit(((f"   {text}", "brand"),), name, self.glyphs.ellipsis)]
        row += [(f" {_aligned(column.title, column)}", "muted") for column in columns]
        return (*row, (" ended", "muted"))

    def _entry(self, entry: Entry, width: int, *, chosen: bool) -> Line:
        pointer = ">" if self.glyphs.name == "ascii" else "▸"
        head: Line = ((pointer if chosen else " ", "key"),)
        ink = "title-selected" if chosen else "text"
        if isinstance(entry, ServerRecord):
            return (*head, *self._server(entry, width - 1, ink))
        return (*head, *self._run(entry, width, ink))

    def _server(self, record: ServerRecord, width: int, ink: str) -> Line:
        here = record.id == self.current
        sign = self.glyphs.states["serving"]
        k = f" K={record.draft_tokens}" if record.draft_tokens else ""
        up = duration_text(max(0.0, time.time() - record.started_unix))
        what: Line = ((f" {clean(record.drafter)}{k}", ink),)
        known: Line = ((f"  {clean(record.url)}", ink), (f"  up {up}", "muted"))
        whose: Line = (
            ("  in the panel" if here else "", "good"),
            (f"  for {self.needs[record.id]}" if record.id in self.needs else "", "warn"),
        )
        named: Line = ((clean(record.name), ink),)
        least = 2 + min(_NAME_CELLS, width_of(named))
        while known and least + width_of((*what, *known, *whose)) > width:
            known = known[:-1]  # whose it is must be seen; the details have the rest
        right = (*what, *known, *whose)
        name = fit(named, max(8, width - 2 - width_of(right)), self.glyphs.ellipsis)
        return ((f"{sign} ", "good"), *name, *right)

    def _run(self, run: PastRun, width: int, ink: str) -> Line:
        columns = [column for column in _COLUMNS if width >= column.since]
        mark = _MARKS[self.marked.index(run.path)] if run.path in self.marked else " "
        name = _name_cells(columns, width) - 3
        row: list[Span] = [(f"{mark} ", "warn")]
        row += fit(((clean(run.name), ink),), name, self.glyphs.ellipsis)
        if run.ended == "broken":
            sign = self.glyphs.states["exited"]
            return (*row, (f" {sign} broken: {clean(run.why or '')}", "bad"))
        for column in columns:
            text = shorten(clean(column.text(run)), column.cells, self.glyphs.ellipsis)
            row.append((f" {_aligned(text, column)}", ink))
        glyph, word, tone = _ENDS[run.ended]
        return (*row, (f" {self.glyphs.states[glyph]} {word}", tone))


def _name_cells(columns: Sequence[_Column], width: int) -> int:
    return max(12, width - sum(column.cells + 1 for column in columns) - _END_CELLS - 1)


def _aligned(text: str, column: _Column) -> str:
    cells = column.cells - width_of(((text, "text"),)) + len(text)
    return f"{text:>{cells}}" if column.right else f"{text:<{cells}}"


def _centred(words: Sequence[Span], width: int, height: int) -> list[Line]:
    left = max(1, (width - max(len(text) for text, _ in words)) // 2)
    above = max(0, (height - len(words)) // 2)
    rows: list[Line] = [()] * above
    return rows + [((" " * left, "text"), word) for word in words]


def _matches(text: str, words: Sequence[str]) -> bool:
    return all(word in text for word in words)


def _server_words(record: ServerRecord) -> str:
    return f"{record.name} {record.model} {record.drafter} {record.url}".lower()


def _run_words(run: PastRun) -> str:
    return f"{run.id} {run.name} {run.model} {run.drafter} {run.ended}".lower()
