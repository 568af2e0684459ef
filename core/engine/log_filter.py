"""Which lines of a log are shown, decided for a block of lines at a time. Pure.

A log of gigabytes is scanned in the background, so most lines are decided on their bytes: only what may
be a warning, an error or a probe, or holds more than plain characters, is taken apart.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from specpanel.core.engine.logline import LINE_LIMIT, LogLine, parse_line
from specpanel.core.errors import ConfigurationError

Level = Literal["all", "warning", "error"]
Matches = Callable[[Sequence[str]], Sequence[bool]]
"""For each line whether a regular expression is in it."""

Severity = Literal["warning", "error"]

_CONTROLS = bytes(code for code in range(32) if code not in b"\n\t") + b"\x7f"
_WORDS = (
    b"ERROR",
    b"WARN",
    b"CRITICAL",
    b"FATAL",
    b"Traceback",
    b"Error",
    b"Exception",
    b"Warning",
)
_ANY_WORD = re.compile(b"|".join(_WORDS))
_PROBE_PATHS = (b"/metrics", b"/health")
_WORDED = re.compile(b"(?:" + b"|".join(_WORDS) + b")[^\n]*")
_WORDED_OR_PROBE = re.compile(b"(?:" + b"|".join((*_WORDS, *_PROBE_PATHS)) + b")[^\n]*")
# uvicorn 0.30 to 0.38, ``AccessFormatter``: client - "METHOD path HTTP/version" status
_PROBE = re.compile(r'"GET /(?:metrics|health)/?(?:\?[^ "]*)? HTTP/[\d.]+" 2\d\d\b')
_BARE_ERROR = re.compile(
    r"^\s*(?:Traceback \(most recent call last\)|[\w.]*(?:Error|Exception)(?::|$))"
)
_BARE_WARNING = re.compile(r"\b\w*Warning: ")
_SEVERITIES: dict[str, Severity] = {
    "WARNING": "warning",
    "WARN": "warning",
    "ERROR": "error",
    "CRITICAL": "error",
    "FATAL": "error",
}


def severity_of(line: LogLine) -> Severity | None:
    """Whether a line is a warning or an error: by its level, or by what Python writes without one."""
    if line.level is not None:
        return _SEVERITIES.get(line.level.upper())
    if _BARE_ERROR.search(line.message):
        return "error"
    return "warning" if _BARE_WARNING.search(line.message) else None


def is_probe(line: LogLine) -> bool:
    """Whether this is the access line of a scrape or a health check that was answered."""
    return _PROBE.search(line.text) is not None


@dataclass(frozen=True, slots=True)
class Selection:
    """What a filter lets through of a block: places of ``hits`` among its lines, in order.

    ``notable`` are places in ``hits`` where a warning or an error begins; ``folded`` counts probes left
    out that would have been hits.
    """

    lines: int
    hits: Sequence[int]
    notable: Sequence[int] = ()
    folded: int = 0


@dataclass(frozen=True, slots=True)
class LogFilter:
    """What is shown. ``pattern`` is part of the line in either case, or a regex between slashes.

    A regex may backtrack for ever on some line, so where it is typed by a person ``select`` is given
    ``matches``, which searches somewhere else.

    Raises:
        ConfigurationError: the regex is none.
    """

    pattern: str = ""
    level: Level = "all"
    probes: bool = False  # show the access lines of GET /metrics and /health
    _regex: re.Pattern[str] | None = field(init=False, repr=False, compare=False)
    _needle: bytes | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        regex = _compiled(self.pattern)
        literal = self.pattern.isascii() and not _is_regex(self.pattern)
        needle = self.pattern.lower().encode() if self.pattern and literal else None
        object.__setattr__(self, "_regex", regex)
        object.__setattr__(self, "_needle", needle)

    @property
    def narrows(self) -> bool:
        """Whether anything but probes is left out."""
        return bool(self.pattern) or self.level != "all"

    @property
    def regex(self) -> str | None:
        """The regular expression, None where the pattern is a plain text."""
        return self.pattern[1:-1] if _is_regex(self.pattern) else None

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where a plain text stands in a text."""
        if self._regex is None or self.regex is not None:
            return []
        return [match.span() for match in self._regex.finditer(text) if match.end() > match.start()]

    def select(self, block: bytes, matches: Matches | None = None) -> Selection:
        """Decide for whole lines; the last may lack its line end."""
        if self.regex is not None:
            return self._choose(self._matched(block, matches or self._search), _count_lines(block))
        if not _is_plain(block):
            return self._choose(enumerate(lines_of(block)), _count_lines(block))
        if not self.pattern and self.level == "all":
            return self._all_but_probes(block)
        if self._needle is not None:
            lowered = block.lower()
            found = (
                re.compile(re.escape(self._needle) + b"[^\n]*") if self._needle in lowered else None
            )
            return self._choose(_matching(found, lowered, block), _count_lines(block))
        if self.pattern:  # a plain text that is not ASCII
            return self._choose(enumerate(lines_of(block)), _count_lines(block))
        return self._choose(_matching(_WORDED, block, block), _count_lines(block))

    def _search(self, lines: Sequence[str]) -> list[bool]:
        return [self._regex is None or self._regex.search(line) is not None for line in lines]

    def _matched(self, block: bytes, matches: Matches) -> Iterator[tuple[int, bytes]]:
        """Place and bytes of each line that the regex is in, all asked for at once."""
        asked = [
            (place, raw)
            for place, raw in enumerate(lines_of(block))
            if self.level == "all" or not _is_plain(raw) or _ANY_WORD.search(raw) is not None
        ]
        found = matches([_text_of(raw) for _, raw in asked])
        return (line for line, fits in zip(asked, found, strict=True) if fits)

    def _all_but_probes(self, block: bytes) -> Selection:
        count = _count_lines(block)
        suspects = _WORDED if self.probes else _WORDED_OR_PROBE
        folded: list[int] = []
        notable: list[int] = []
        before: _Told = None
        for place, raw in _matching(suspects, block, block):
            line = parse_line(raw)
            if not self.probes and is_probe(line):
                folded.append(place)
            elif severity_of(line) is not None:
                if not _goes_on(before, place, line):
                    notable.append(place - len(folded))
                before = (place, line)
        if not folded:
            return Selection(count, range(count), notable)
        gone = set(folded)
        hits = [place for place in range(count) if place not in gone]
        return Selection(count, hits, notable, len(folded))

    def _choose(self, candidates: Iterable[tuple[int, bytes]], count: int) -> Selection:
        hits: list[int] = []
        notable: list[int] = []
        folded = 0
        before: _Told = None
        for place, raw in candidates:
            simple = _is_plain(raw)
            worded = not simple or _ANY_WORD.search(raw) is not None
            if simple and not self._may_pass(raw, worded):
                continue
            may_fold = not self.probes and (not simple or any(part in raw for part in _PROBE_PATHS))
            if not worded and not may_fold:
                hits.append(place)
                continue
            line = parse_line(raw)
            severity = severity_of(line)
            if not self._passes(line, severity):
                continue
            if may_fold and is_probe(line):
                folded += 1
                continue
            if severity is not None:
                if not _goes_on(before, place, line):
                    notable.append(len(hits))
                before = (place, line)
            hits.append(place)
        return Selection(count, hits, notable, folded)

    def _may_pass(self, raw: bytes, worded: bool) -> bool:
        """The pattern is decided here for plain bytes; of the level only that it can be."""
        if self.level != "all" and not worded:
            return False
        if self._needle is not None:
            return self._needle in raw[:LINE_LIMIT].lower()
        return self._is_literally_in(raw[:LINE_LIMIT].decode())

    def _is_literally_in(self, text: str) -> bool:
        """Whether a plain text is; what a regex finds was decided before."""
        return self._regex is None or self.regex is not None or bool(self._regex.search(text))

    def _passes(self, line: LogLine, severity: Severity | None) -> bool:
        if self.level != "all" and severity is None:
            return False
        if self.level == "error" and severity != "error":
            return False
        return self._is_literally_in(line.text)


def _text_of(raw: bytes) -> str:
    return raw[:LINE_LIMIT].decode() if _is_plain(raw) else parse_line(raw).text


def lines_of(block: bytes) -> list[bytes]:
    """The lines of a block, without their ends."""
    lines = block.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


_Told = tuple[int, LogLine] | None


def _goes_on(before: _Told, place: int, line: LogLine) -> bool:
    """Whether a line belongs to the record of the line above it: a traceback is one error."""
    if before is None or line.level is None:
        return False
    return before[0] == place - 1 and before[1].writer == line.writer


def _count_lines(block: bytes) -> int:
    return block.count(b"\n") + (bool(block) and not block.endswith(b"\n"))


def _matching(
    pattern: re.Pattern[bytes] | None, searched: bytes, block: bytes
) -> Iterator[tuple[int, bytes]]:
    """Place and bytes of each line with a match; the pattern takes the rest of its line."""
    place = last = 0
    for match in pattern.finditer(searched) if pattern is not None else ():
        place += block.count(b"\n", last, match.start())
        last = match.start()
        yield place, block[block.rfind(b"\n", 0, last) + 1 : match.end()]


def _is_plain(data: bytes) -> bool:
    return data.isascii() and len(data.translate(None, _CONTROLS)) == len(data)


def _is_regex(pattern: str) -> bool:
    return len(pattern) > 2 and pattern.startswith("/") and pattern.endswith("/")


def _compiled(pattern: str) -> re.Pattern[str] | None:
    if not pattern:
        return None
    if not _is_regex(pattern):
        return re.compile(re.escape(pattern), re.IGNORECASE)
    try:
        return re.compile(pattern[1:-1])
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigurationError(
            f"{pattern} is no regular expression: {error}",
            "Mend it, or leave out the slashes to look for the text itself.",
        ) from error


SHOW_ALL = LogFilter(probes=True)
