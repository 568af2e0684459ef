"""GET over a connection that is kept: what asking one server every second needs, and no more.

h11 reads and writes the protocol, asyncio owns the sockets. Nothing of the environment is heeded, no
redirect is followed and nothing is asked for compressed. Deadlines are the caller's: cancelling is safe
at any moment and costs the connection.
"""

import asyncio
import functools
import os
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

import h11

from specpanel.core.printable import one_line

_READ_BYTES = 1 << 18
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PLAIN = "%/?:@!$&'()*+,;=-._~"  # stands in a target as it is
_CLOSED = "connection closed without an answer"


class ExchangeError(Exception):
    """There is no answer; the text says why in a few words."""


class Origin(NamedTuple):
    """Where a connection leads."""

    secure: bool
    host: str
    port: int


def origin_of(url: str) -> Origin:
    """Where the server of ``url`` listens.

    Raises:
        ValueError: this is no address.
    """
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    return Origin(secure, parts.hostname or "", parts.port or (443 if secure else 80))


class Answer:
    """An answer whose head has come. ``location`` is the absolute address that a redirect names."""

    def __init__(self, wire: "_Wire", head: h11.Response, url: str) -> None:
        self.status = head.status_code
        self._wire = wire
        named = _header(head, b"location") if self.status in _REDIRECTS else None
        self.location = None if named is None else urljoin(url, named)
        self.is_empty = _header(head, b"content-length") == "0"
        self._encoding = _header(head, b"content-encoding") or "identity"

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes.

        Raises:
            ExchangeError: it does not come whole, or is compressed all the same.
        """
        if self._encoding != "identity":
            raise ExchangeError(f"it answers in {one_line(self._encoding, 20)}, unasked")
        while (part := await self._wire.event()) is not None:
            if isinstance(part, h11.Data):
                yield bytes(part.data)

    async def skip(self) -> None:
        """Read the rest, so that the connection can be used again."""
        while await self._wire.event() is not None:
            pass


class Exchange:
    """GETs, one connection to one origin at a time.

    Args:
        connect_s: how long a connection may take.
    """

    def __init__(self, *, connect_s: float) -> None:
        self._connect_s = connect_s
        self._kept: tuple[Origin, _Wire] | None = None

    def close(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept[1].close()

    @asynccontextmanager
    async def get(self, url: str) -> AsyncIterator[Answer]:
        """The answer of ``url``, its body to be read inside.

        Raises:
            ExchangeError: there is none.
        """
        origin = origin_of(url)
        kept, self._kept = self._kept, None
        wire: _Wire | None = None
        head: h11.Response | None = None
        if kept is not None and kept[0] == origin and not kept[1].is_closed:
            wire = kept[1]
            head = await wire.asked_again(url)
        elif kept is not None:
            kept[1].close()
        if wire is None or head is None:
            wire = await self._connected(origin)
            head = await wire.asked(url)
        try:
            yield Answer(wire, head, url)
        finally:
            if self._kept is None and wire.is_ready_again():
                self._kept = origin, wire
            else:
                wire.close()

    async def _connected(self, origin: Origin) -> "_Wire":
        try:
            async with asyncio.timeout(self._connect_s):
                return await _connect(origin)
        except TimeoutError:
            raise ExchangeError("no connection in time") from None
        except ConnectionRefusedError:
            raise ExchangeError("connection refused") from None
        except (socket.gaierror, UnicodeError):
            raise ExchangeError("no machine of that name is known") from None
        except ssl.SSLError as error:
            raise ExchangeError(f"TLS failed: {one_line(str(error), 100)}") from None
        except OSError as error:
            known = None if error.errno is None else os.strerror(error.errno).lower()
            raise ExchangeError(known or f"no connection: {one_line(str(error), 100)}") from None


async def _connect(origin: Origin) -> "_Wire":
    """A connection to the first address of the host that takes one.

    Raises:
        OSError: none does; the last one's reason.
    """
    refused = OSError("the name has no address")
    for address in await _addresses(origin):
        try:
            return _Wire(
                *await asyncio.open_connection(
                    address,
                    origin.port,
                    limit=_READ_BYTES,
                    ssl=_trusted() if origin.secure else None,
                    server_hostname=origin.host if origin.secure else None,
                )
            )
        except OSError as error:
            refused = error
    raise refused


async def _addresses(origin: Origin) -> list[str]:
    """Asking for a name takes a thread, so that an address is not asked for."""
    try:
        return [str(ip_address(origin.host))]
    except ValueError:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
        return [str(address[0]) for *_, address in found]


@functools.cache
def _trusted() -> ssl.SSLContext:
    import certifi

    return ssl.create_default_context(cafile=certifi.where())


class _Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.protocol = h11.Connection(h11.CLIENT)

    @property
    def is_closed(self) -> bool:
        return self.reader.at_eof() or self.writer.is_closing()

    def close(self) -> None:
        self.writer.close()

    def is_ready_again(self) -> bool:
        """Whether the answer was read to its end and another request may follow."""
        protocol = self.protocol
        if protocol.our_state is not h11.DONE or protocol.their_state is not h11.DONE:
            return False
        protocol.start_next_cycle()
        return True

    async def asked_again(self, url: str) -> h11.Response | None:
        """As ``asked``; None where the server closed this connection meanwhile, as it may."""
        try:
            return await self.asked(url)
        except ExchangeError:
            return None

    async def asked(self, url: str) -> h11.Response:
        """The head of the answer. Where that fails the connection is closed."""
        try:
            for event in (_request(url), h11.EndOfMessage()):
                self.writer.write(self.protocol.send(event) or b"")
            while not isinstance(head := await self.event(), h11.Response):
                if head is None:
                    raise ExchangeError(_CLOSED)
            return head
        except BaseException:
            self.close()
            raise

    async def event(self) -> h11.Event | None:
        """What comes next; None once the answer is at its end."""
        try:
            while (event := self.protocol.next_event()) is h11.NEED_DATA:
                self.protocol.receive_data(await self.reader.read(_READ_BYTES))
        except (OSError, h11.RemoteProtocolError):
            raise ExchangeError(_CLOSED) from None
        if isinstance(event, h11.ConnectionClosed):
            raise ExchangeError(_CLOSED)
        if isinstance(event, h11.Event) and not isinstance(event, h11.EndOfMessage):
            return event
        return None


def _request(url: str) -> h11.Request:
    parts = urlsplit(url)
    headers = [
        ("Host", _named(parts)),
        ("Accept", "*/*"),
        ("Accept-Encoding", "identity"),
        ("User-Agent", "specpanel"),
        *_authorization(parts),
    ]
    target = quote(parts.path or "/", _PLAIN)
    if parts.query:
        target += f"?{quote(parts.query, _PLAIN)}"
    return h11.Request(method="GET", target=target, headers=headers)


def _named(parts: SplitResult) -> str:
    """The host as the request names it, its port where the address has one."""
    host = parts.hostname or ""
    named = f"[{host}]" if ":" in host else host.encode("idna").decode()
    return named if parts.port is None else f"{named}:{parts.port}"


def _authorization(parts: SplitResult) -> list[tuple[str, str]]:
    """Name and password of the address, where it has them."""
    if parts.username is None:
        return []
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return [("Authorization", f"Basic {b64encode(pair.encode()).decode()}")]


def _header(head: h11.Response, name: bytes) -> str | None:
    found = next((value for key, value in head.headers if key == name), None)
    return None if found is None else bytes(found).decode("latin-1")
