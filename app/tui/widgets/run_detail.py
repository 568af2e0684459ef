"""What is known of one session, or two past runs side by side."""

from collections.abc import Iterator, Sequence

from specpanel.app.run_words import (
    ABSENT,
    drafter_text,
    duration_text,
    size_text,
    started_text,
    value_text,
)
from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.ink import Line, clean, fit, wrap
from specpanel.app.tui.widgets.pane import Pane
from specpanel.app.tui.widgets.run_list import Entry
from specpanel.core.engine.registry import ServerRecord
from specpanel.core.session.history import PastRun
from specpanel.core.session.history_comparison import RunComparison
from specpanel.core.session.history_figures import Value

_LABEL = 19
_RATIO = 19
_COMPARED_LABEL = 23
_INTERVALS_FROM = 74


class RunDetail(Pane):
    """Shows the chosen entry; a comparison takes its place until it is closed."""

    def __init__(self, *, glyphs: Glyphs = BRAILLE) -> None:
        super().__init__("Details", glyphs=glyphs, id="run-detail")
        self.comparison: RunComparison | None = None
        self._entry: Entry | None = None
        self._owner: str | None = None

    def show(self, entry: Entry | None, owner: str | None = None) -> None:
        """``owner`` is what needs a server."""
        self._entry, self._owner = entry, owner
        self.redraw()

    def compare(self, found: RunComparison | None) -> None:
        self.comparison = found
        self.title = "Details" if found is None else "B against A"
        self.redraw()

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        rows = self._rows(width, height)
        return [_ascii(row) for row in rows] if self.glyphs.name == "ascii" else rows

    def _rows(self, width: int, height: int) -> Sequence[Line]:
        if self.comparison is not None:
            return self._cut(list(_compared(self.comparison, width)), height)
        if self._entry is None:
            return []
        if isinstance(self._entry, ServerRecord):
            return self._cut(list(_server(self._entry, self._owner, width)), height)
        return self._cut(list(_run(self._entry, width)), height)

    def _cut(self, rows: list[Line], height: int) -> list[Line]:
        if len(rows) <= height:
            return rows
        more = len(rows) - height + 1
        what = "specpanel runs compare" if self.comparison is not None else "specpanel runs show"
        return [*rows[: height - 1], ((f" {more} more lines: {what} prints all", "faint"),)]


_PLAIN = str.maketrans({"…": "..", "→": "->", "–": "-"})


def _ascii(row: Line) -> Line:
    """Our own signs for a terminal that has only ascii; names from outside stay what they are."""
    return tuple((text.translate(_PLAIN), ink) for text, ink in row)


def _fact(label: str, text: str, width: int, ink: str = "text") -> Iterator[Line]:
    for number, part in enumerate(wrap(clean(text), max(10, width - _LABEL - 2))):
        yield ((f" {label if number == 0 else '':<{_LABEL}}", "muted"), (part, ink))


def _server(record: ServerRecord, owner: str | None, width: int) -> Iterator[Line]:
    yield ((f" {clean(record.name)}", "strong"), (f"  at {clean(record.url)}", "muted"))
    if owner is not None:
        yield from _fact("belongs to", owner, width, "warn")
    k = f" K={record.draft_tokens}" if record.draft_tokens else ""
    yield from _fact("model", record.model, width)
    yield from _fact("drafter", f"{record.drafter}{k}", width)
    yield from _fact("started", started_text(record.started_unix, "%Y-%m-%d %H:%M:%S"), width)
    yield from _fact("process", ABSENT if record.pid is None else f"pid {record.pid}", width)
    yield from _fact("log", str(record.log), width)


def _run(run: PastRun, width: int) -> Iterator[Line]:
    yield ((f" {clean(run.id)}", "strong"), (f"  {size_text(run.size_bytes)}", "muted"))
    if run.ended == "broken":
        yield from _fact("cannot be read", run.why or "", width, "bad")
        yield from _fact("recording", str(run.path), width)
        return
    if run.why:
        bad = run.ended in ("failed", "exited")
        yield from _fact(run.ended, run.why, width, "bad" if bad else "muted")
    version = f" on vLLM {run.vllm_version}" if run.vllm_version else ""
    yield from _fact("model", f"{run.model or ABSENT}{version}", width)
    yield from _fact("drafter", drafter_text(run), width)
    started = started_text(run.started_unix, "%Y-%m-%d %H:%M:%S")
    yield from _fact("started", f"{started}, took {duration_text(run.duration_s)}", width)
    figures = run.figures
    if figures is None:
        yield from _fact("figures", "n/a: nothing was measured", width, "muted")
        return
    of = (
        "the whole run; in brackets 95 %"
        if figures.whole_run
        else "its last moments; there is no summary"
    )
    yield from _fact("acceptance length", value_text(figures.acceptance_length), width, "strong")
    yield from _fact("output", f"{value_text(figures.tokens_per_s)} tok/s", width, "strong")
    yield from _fact("TPOT p50", f"{value_text(figures.tpot_p50_ms)} ms", width, "strong")
    yield from _fact("TTFT p50", f"{value_text(figures.ttft_p50_ms)} ms", width, "strong")
    yield from _fact("figures of", of, width, "muted")


def _compared(found: RunComparison, width: int) -> Iterator[Line]:
    intervals = width >= _INTERVALS_FROM
    ratio = _RATIO if intervals else 8
    side = max(9, (width - _COMPARED_LABEL - ratio + 1) // 2)

    def cells(text: str, room: int, ink: str) -> Line:
        return (*fit(((text, ink),), room - 1), (" ", "text"))

    yield (
        *cells("", _COMPARED_LABEL, "text"),
        *_name("A", found.a, side),
        *_name("B", found.b, side),
    )
    yield (
        *cells("", _COMPARED_LABEL, "text"),
        *cells(_when(found.a), side, "muted"),
        *cells(_when(found.b), side, "muted"),
        ("B / A", "muted"),
    )
    for row in found.rows:

        def text(value: Value | None, digits: int | None = None) -> str:
            return value_text(value, interval=intervals, digits=digits)

        yield (
            *cells(f" {row.figure} {row.unit}", _COMPARED_LABEL, "muted"),
            *cells(text(row.a), side, "text"),
            *cells(text(row.b), side, "text"),
            (text(row.ratio, 2), "strong" if row.ratio else "muted"),
        )
    if found.settings is None:
        yield ((" settings: not recorded in both", "muted"),)
    elif not found.settings:
        yield ((" settings: the same", "muted"),)
    else:
        yield ((" settings that differ, A → B", "muted"),)
    for change in found.settings or ():
        words = clean(f"{change.setting}: {change.before} → {change.after}")
        yield ((f"   {words}", "text"),)
    for note in found.notes:
        for part in wrap(clean(note), max(10, width - 2)):
            yield ((f" {part}", "muted"),)


def _name(letter: str, run: PastRun, room: int) -> Line:
    return (*fit(((f"{letter} ", "warn"), (clean(run.name), "strong")), room - 1), (" ", "text"))


def _when(run: PastRun) -> str:
    return f"{started_text(run.started_unix, '%m-%d %H:%M')} {drafter_text(run)}"
