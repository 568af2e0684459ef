"""Server-sent events: bytes as they arrive become events, wherever the network cut them.

The format is that of the WHATWG HTML standard, section 9.2; lines end in LF or CRLF.
"""

from collections.abc import Iterator
from dataclasses import dataclass

EVENT_LIMIT_BYTES = 8 * 1024 * 1024


class EventTooLargeError(ValueError):
    """A server sends an event without an end."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its ``data`` lines joined, and its name, which is empty in OpenAI's protocol."""

    data: str
    name: str = ""


class EventStream:
    """Takes bytes, yields the events that they complete.

    Bytes are decoded a line at a time, so a cut within a UTF-8 character does no harm; what is not
    UTF-8 becomes the replacement character.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # pieces of a line whose end has not come
        self._data: list[str] = []
        self._name = ""
        self._held_bytes = 0

    def feed(self, received: bytes) -> Iterator[Event]:
        """The events completed by ``received``; raises EventTooLargeError above 8 MiB in one event."""
        self._held_bytes += len(received)
        if b"\n" in received:
            *lines, rest = b"".join((*self._rest, received)).split(b"\n")
            self._rest = [rest]
            for line in lines:
                yield from self._line(line)
        else:
            self._rest.append(received)
        if self._held_bytes > EVENT_LIMIT_BYTES:
            raise EventTooLargeError

    def end(self) -> Iterator[Event]:
        """What stands after the last blank line, which some servers leave out; it may be half an event."""
        rest, self._rest = b"".join(self._rest), []
        yield from self._line(rest)
        yield from self._line(b"")

    def _line(self, raw: bytes) -> Iterator[Event]:
        line = raw.removesuffix(b"\r").decode("utf-8", errors="replace")
        if not line:
            if self._data:
                yield Event("\n".join(self._data), self._name)
            self._data, self._name = [], ""
            self._held_bytes = sum(map(len, self._rest))
            return
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field.removeprefix("\ufeff") == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
