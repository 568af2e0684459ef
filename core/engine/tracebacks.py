"""Python tracebacks in a log that several processes wrote at once. Pure.

vLLM writes a traceback in two ways: as a log record, with process, level, time and source repeated on
every line, and as the interpreter prints it, bare. Lines are kept apart by their writer, so records of
several processes may interleave; bare lines share one writer, and what does not fit is left out.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from specpanel.core.engine.logline import LogLine

MESSAGE_LINES = 12  # lines of one exception's text that are kept

_START = re.compile(r"^\s*(?:[+|]\s*)?(?:Exception Group )?Traceback \(most recent call last\):")
_RAISED = re.compile(
    r"^(?P<name>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:\([A-Z]\w*\))?)(?::(?: (?P<message>.*))?)?$"
)
_CHAINED = re.compile(
    r"^(?:The above exception was the direct cause of the following exception"
    r"|During handling of the above exception, another exception occurred):$"
)
_CHILD = re.compile(r"^Process (?P<name>[\w.\-]+):$")
_RANK = re.compile(r"^\[rank\d+\]: ?")
_QUIET_LEVELS = frozenset({"DEBUG", "INFO", "WARNING"})


@dataclass(frozen=True, slots=True)
class Raised:
    """One exception: its dotted class and its text, lines joined with line feeds."""

    name: str
    message: str

    @property
    def text(self) -> str:
        """As the interpreter prints it, on one line."""
        message = " ".join(self.message.split())
        return f"{self.name}: {message}" if message else self.name


@dataclass(frozen=True, slots=True)
class Traceback:
    """A traceback and its chain of exceptions, the first raised first.

    ``logged`` tells a log record from what the interpreter printed as the process ended. ``process``
    is None where a bare one names no process; then it is the API server's.
    """

    process: str | None
    pid: int | None
    logged: bool
    line_number: int  # of the line that begins it, from 0
    chain: tuple[Raised, ...]
    lines: tuple[str, ...]

    @property
    def final(self) -> Raised:
        return self.chain[-1]


@dataclass(slots=True)
class _Open:
    process: str | None
    pid: int | None
    logged: bool
    line_number: int
    lines: list[str] = field(default_factory=list)
    chain: list[tuple[str, list[str]]] = field(default_factory=list)
    in_message: bool = False

    def closed(self) -> Traceback | None:
        if not self.chain:
            return None
        chain = tuple(Raised(name, "\n".join(text).strip()) for name, text in self.chain)
        while self.lines and not self.lines[-1].strip():
            self.lines.pop()
        return Traceback(
            self.process, self.pid, self.logged, self.line_number, chain, tuple(self.lines)
        )


class _Reader:
    """Collects tracebacks while the lines go by; one open traceback a writer."""

    def __init__(self) -> None:
        self.done: list[Traceback] = []
        self._open: dict[object, _Open] = {}
        self._child: str | None = None
        self._ignore_next = False

    def feed(self, number: int, entry: LogLine) -> None:
        for text in entry.message.split("\n"):
            self._feed_text(number, entry, _RANK.sub("", text))

    def _feed_text(self, number: int, entry: LogLine, text: str) -> None:
        writer = entry.writer
        current = self._open.get(writer)
        if _START.match(text):
            if current is None or current.in_message:
                self._begin(number, entry, text)
            else:
                current.lines.append(text)
        elif current is None:
            self._note(entry, text)
        elif _CHAINED.match(text):
            current.lines.append(text)
            current.in_message = False
        elif current.in_message:
            self._continue_message(writer, current, entry, text)
        elif raised := _RAISED.match(text):
            current.lines.append(text)
            current.chain.append((raised["name"], [raised["message"] or ""]))
            current.in_message = True
        elif not text or text[0].isspace() or current.logged:
            current.lines.append(text)

    def _begin(self, number: int, entry: LogLine, text: str) -> None:
        self.close(entry.writer)
        if self._ignore_next or entry.level in _QUIET_LEVELS:
            self._ignore_next = False
            return
        bare = entry.process is None
        process = self._child if bare else entry.process
        self._child = None
        self._open[entry.writer] = _Open(
            process, entry.pid, entry.level is not None, number, [text]
        )

    def _note(self, entry: LogLine, text: str) -> None:
        """Remember what a line outside of tracebacks says about the one that follows."""
        if entry.level is None:
            child = _CHILD.match(text)
            self._child = child["name"] if child else None
            self._ignore_next = text.startswith("Exception ignored in")

    def _continue_message(self, writer: object, current: _Open, entry: LogLine, text: str) -> None:
        said = current.chain[-1][1]
        if not text.strip():
            current.lines.append(text)
        elif _CHILD.match(text) or len(said) >= MESSAGE_LINES:
            self.close(writer)
            self._note(entry, text)
        else:
            current.lines.append(text)
            said.append(text)

    def close(self, writer: object) -> None:
        current = self._open.pop(writer, None)
        finished = current.closed() if current else None
        if finished:
            self.done.append(finished)

    def close_all(self) -> None:
        for writer in list(self._open):
            self.close(writer)


def find_tracebacks(entries: Iterable[LogLine]) -> tuple[Traceback, ...]:
    """Every traceback that ends in an exception, in the order in which they begin.

    Left out: records below ERROR, and "Exception ignored in", which end no process.
    """
    reader = _Reader()
    for number, entry in enumerate(entries):
        reader.feed(number, entry)
    reader.close_all()
    return tuple(sorted(reader.done, key=lambda found: found.line_number))
