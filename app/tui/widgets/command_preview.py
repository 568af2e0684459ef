"""What would be run, with the part of the current row marked, and what preflight says about it."""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from rich.cells import cell_len

from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.ink import Line, Span, clean, wrap
from specpanel.app.tui.widgets.pane import Pane
from specpanel.core.preflight.finding import Finding
from specpanel.core.settings.rows import Row

_MOST_ROWS = 6
"""Rows that one flag may take; what is longer is cut here, and whole in what ``y`` copies."""

_OTHER_NAMES = {"k": "num_speculative_tokens"}
_FLAGS = {
    "mla.force_sparse_mqa": "--attention-config",
    "engine.per_request_metrics": "--per-request-spec-decode-metrics",
    "engine.swappable": "--worker-extension-cls",
    "target.model": "--model",
}
_INDENT = 2

Range = tuple[int, int]


def parts_of(command: str) -> list[str]:
    """The lines of a command as ``shell_text`` writes it: environment, launcher, then a flag each."""
    return command.split(" \\\n  ")


def part_of_row(parts: Sequence[str], row: Row | None) -> tuple[int, Range] | None:
    """The part that a row is responsible for, and the characters in it; None where there is none."""
    if row is None:
        return None
    launcher = 1 if parts and parts[0].startswith("env ") else 0
    if row.section == "drafter":
        return _in_config(parts, row)
    wanted = row.flag or _FLAGS.get(row.dotted)
    if wanted is not None:
        for number, part in enumerate(parts):
            if part.split(" ", 1)[0] == wanted:
                return number, (0, len(part))
    if row.dotted in ("target.model", "engine.python") and launcher < len(parts):
        return launcher, (0, len(parts[launcher]))
    if row.dotted in ("engine.environment", "engine.cpu_kv_cache_gib") and launcher:
        names = list(row.value) if isinstance(row.value, dict) else ["VLLM_CPU_KVCACHE_SPACE"]
        place = next((parts[0].find(f" {name}=") for name in names if f" {name}=" in parts[0]), -1)
        if place >= 0:
            end = parts[0].find(" ", place + 1)
            return 0, (place + 1, end if end > 0 else len(parts[0]))
    if row.dotted == "engine.arguments" and isinstance(row.value, list):
        for number, part in enumerate(parts):
            if part.split(" ", 1)[0] in row.value:
                return number, (0, len(part))
    return None


def _in_config(parts: Sequence[str], row: Row) -> tuple[int, Range] | None:
    for number, part in enumerate(parts):
        if part.startswith("--speculative-config "):
            name = _OTHER_NAMES.get(row.name, row.name)
            found = re.search(rf'"{re.escape(name)}": ("[^"]*"|[^,}}]*)', part)
            return number, found.span() if found else (0, len(part))
    return None


@lru_cache(maxsize=256)
def wrapped(part: str, width: int) -> tuple[Range, ...]:
    """Ranges of characters that fit a row each: broken at blanks, and inside long words."""
    rows: list[Range] = []
    start = cells = 0
    for match in re.finditer(r"\S+\s*", part):
        word = cell_len(match.group().rstrip())
        if cells and cells + word > width:
            rows.append((start, match.start()))
            start, cells = match.start(), 0
        position = match.start()
        for char in match.group():
            wide = cell_len(char)
            if cells + wide > width and not char.isspace():
                rows.append((start, position))
                start, cells = position, 0
            cells += wide
            position += len(char)
    return (*rows, (start, len(part)))


def inked(part: str, row: Range, marked: Range | None) -> Line:
    """One row of a part, the marked characters in another ink."""
    begin, end = row
    low, high = marked or (0, 0)
    cuts = sorted({begin, end, *(min(end, max(begin, cut)) for cut in (low, high))})
    spans: list[Span] = []
    for left, right in pairwise(cuts):
        ink = "tab-on" if marked is not None and low <= left < high else "text"
        spans.append((part[left:right], ink))
    return tuple(spans)


class CommandPreview(Pane):
    """The exact command, as it may be pasted into a shell."""

    def __init__(self, *, glyphs: Glyphs = BRAILLE) -> None:
        super().__init__("Command", glyphs=glyphs, id="command")
        self._parts: list[str] = []
        self._row: Row | None = None
        self._stale = False
        self._note = ""
        self._top = 0
        self._place: tuple[int, Range] | None = None

    def shift(self, rows: int) -> None:
        """Shows what is further down, or up."""
        self._top += rows
        self.redraw()

    def show(self, command: str | None, row: Row | None, *, stale: bool, note: str = "") -> None:
        """``stale``: the command is that of settings from before; ``note`` stands where there is none."""
        self._parts = [] if command is None else [clean(part) for part in parts_of(command)]
        self._row, self._stale, self._note = row, stale, note
        self.redraw()

    def legend(self) -> Line:
        if not self._parts:
            return ()
        if self._stale:
            return (("of before the last edit", "warn"),)
        return (("y", "key"), (" copies", "muted"))

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        if not self._parts:
            return [((f" {part}", "muted"),) for part in wrap(self._note, max(1, width - 2))]
        place = part_of_row(self._parts, self._row)
        rows: list[Line] = []
        marked_at = 0
        for number, part in enumerate(self._parts):
            chosen = place is not None and place[0] == number
            if chosen:
                marked_at = len(rows)
            last = number == len(self._parts) - 1
            rows += self._part(
                part,
                width - 3,
                place[1] if chosen and place else None,
                indent=number > 0,
                last=last,
            )
        if place is not None and place != self._place:
            self._top = marked_at - height // 3
        self._place = place
        self._top = max(0, min(self._top, len(rows) - height))
        return rows[self._top : self._top + height]

    def _part(
        self, part: str, width: int, marked: Range | None, *, indent: bool, last: bool
    ) -> list[Line]:
        pad = " " * (_INDENT if indent else 0)
        found = wrapped(part, max(4, width - _INDENT - len(pad)))
        cut = len(found) > _MOST_ROWS and marked is None
        rows = [
            ((" " + pad if number == 0 else f" {pad}  ", "text"), *inked(part, row, marked))
            for number, row in enumerate(found[: _MOST_ROWS - 1] if cut else found)
        ]
        if cut:
            rows.append(((f" {pad}  {self.glyphs.ellipsis}", "muted"),))
        if self._stale:
            rows = [tuple((text, "muted") for text, _ in row) for row in rows]
        if not last:
            rows[-1] = (*rows[-1], (" \\", "faint"))
        return rows


class Findings(Pane):
    """What is wrong in the form, then what preflight found, each with its fix."""

    def __init__(self, *, glyphs: Glyphs = BRAILLE) -> None:
        super().__init__("Preflight", glyphs=glyphs, id="findings")
        self._errors: tuple[str, ...] = ()
        self._facts: tuple[str, ...] = ()
        self._unjudged: tuple[str, ...] = ()
        self._findings: tuple[Finding, ...] | None = None
        self._note = ""

    def show(
        self,
        errors: Sequence[str],
        findings: Sequence[Finding] | None,
        *,
        facts: Sequence[str] = (),
        unjudged: Sequence[str] = (),
        note: str = "",
    ) -> None:
        """``findings`` is None while they are not known; ``note`` says why.

        ``unjudged`` could not be looked at.
        """
        self._errors, self._facts, self._note = tuple(errors), tuple(facts), note
        self._unjudged = tuple(unjudged)
        self._findings = None if findings is None else tuple(findings)
        self.redraw()

    def legend(self) -> Line:
        found = self._findings or ()
        bad = len(self._errors) + sum(finding.severity == "error" for finding in found)
        warnings = sum(finding.severity == "warning" for finding in found)
        spans: list[Span] = []
        if bad:
            spans.append((f"{self.glyphs.states['exited']} {bad}", "bad"))
        if warnings:
            spans.append((f"{' ' if spans else ''}! {warnings}", "warn"))
        if not spans and self._findings is not None and not self._unjudged:
            spans.append((self.glyphs.states["good"], "good"))
        return tuple(spans)

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        cross = (self.glyphs.states["exited"], "bad")
        rows: list[Line] = []
        for text in self._errors:
            rows += _hanging(cross, text, width, "text")
        if self._findings is None:
            if self._note:
                rows += _hanging((self.glyphs.dot, "muted"), self._note, width, "muted")
            return rows
        marks: dict[str, Span] = {
            "error": cross,
            "warning": ("!", "warn"),
            "note": (self.glyphs.dot, "muted"),
        }
        order = ("error", "warning", "note")
        for finding in sorted(self._findings, key=lambda finding: order.index(finding.severity)):
            ink = "muted" if finding.severity == "note" else "text"
            rows += _hanging(marks[finding.severity], finding.text, width, ink)
            if finding.fix:
                key: Span = ("f", "key") if finding.mend else (" ", "text")
                rows += _hanging(key, finding.fix, width, "muted")
        if not self._errors and not any(f.severity == "error" for f in self._findings):
            rows += self._verdict(width)
        for fact in self._facts:
            rows += _hanging((self.glyphs.dot, "muted"), fact, width, "muted")
        return rows

    def _verdict(self, width: int) -> list[Line]:
        """That nothing was found, as far as everything could be looked at."""
        if not self._unjudged:
            good = (self.glyphs.states["good"], "good")
            return _hanging(good, "nothing stands in the way of a start", width, "muted")
        words = "nothing was found that stands in the way; not judged: "
        text = words + ", ".join(self._unjudged)
        return _hanging((self.glyphs.dot, "warn"), text, width, "muted")


def _hanging(mark: Span, text: str, width: int, ink: str) -> list[Line]:
    """A text behind its mark, wrapped so that all its rows begin below each other."""
    parts = wrap(clean(text), max(1, width - 4))
    return [
        ((" ", "text"), mark if number == 0 else (" ", "text"), (f" {part}", ink))
        for number, part in enumerate(parts)
    ]


class PreflightLine(Pane):
    """Preflight in a row or two, where there is no room for its pane."""

    def __init__(self, *, glyphs: Glyphs = BRAILLE) -> None:
        super().__init__("preflight", glyphs=glyphs, id="preflight-line")
        self.framed = False
        self._errors: tuple[str, ...] = ()
        self._unjudged: tuple[str, ...] = ()
        self._findings: tuple[Finding, ...] | None = None
        self._note = ""

    def show(
        self,
        errors: Sequence[str],
        findings: Sequence[Finding] | None,
        note: str = "",
        *,
        unjudged: Sequence[str] = (),
    ) -> None:
        self._errors, self._note, self._unjudged = tuple(errors), note, tuple(unjudged)
        self._findings = None if findings is None else tuple(findings)
        self.redraw()

    def legend(self) -> Line:
        found = self._findings or ()
        bad = len(self._errors) + sum(finding.severity == "error" for finding in found)
        warnings = sum(finding.severity == "warning" for finding in found)
        counts: list[Span] = [
            (f"{mark} {count} {word}{'s' if count > 1 else ''} ", ink)
            for mark, count, word, ink in (
                (self.glyphs.states["exited"], bad, "error", "bad"),
                (self.glyphs.states["warning"], warnings, "warning", "warn"),
            )
            if count
        ]
        if not counts and self._findings is not None and self._unjudged:
            counts = [(f"{self.glyphs.dot} not all was judged ", "warn")]
        elif not counts and self._findings is not None:
            counts = [(f"{self.glyphs.states['good']} nothing in the way ", "good")]
        return (*counts, (" v", "key"), (" shows all", "muted"))

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        for text in self._errors:
            return [((f" {self.glyphs.states['exited']} ", "bad"), (clean(text), "text"))]
        marks: dict[str, Span] = {
            "error": (self.glyphs.states["exited"], "bad"),
            "warning": (self.glyphs.states["warning"], "warn"),
        }
        for severity, mark in marks.items():
            for finding in self._findings or ():
                if finding.severity == severity:
                    return [((" ", "text"), mark, (f" {clean(finding.text)}", "text"))]
        for text in self._unjudged:
            return [((f" {self.glyphs.dot} not judged: {clean(text)}", "muted"),)]
        for finding in self._findings or ():
            return [((f" {self.glyphs.dot} {clean(finding.text)}", "muted"),)]
        return [((f" {clean(self._note)}", "muted"),)]
