"""Addresses of HTTP servers, and why one did not answer, in words that can be shown."""

import os
import socket
import ssl
from collections.abc import Iterator
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from specpanel.core.errors import ConfigurationError
from specpanel.core.printable import one_line

if TYPE_CHECKING:
    import httpx


def server_root(text: str) -> str:
    """The base of a server's address: ``localhost:8000/metrics`` gives ``http://localhost:8000``.

    Raises:
        ConfigurationError: this is no address of an HTTP server.
    """
    text = text.strip()
    shown = one_line(text.rpartition("@")[2])  # without a name and password
    fix = "Give it like http://127.0.0.1:8000, or http://[::1]:8000."
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        _refuse_host(parts.hostname or "")
    except ValueError as error:
        reason = one_line(str(error), 80).rstrip(".")
        raise ConfigurationError(
            f"{shown!r} is not the address of a server: {reason}", fix
        ) from None
    try:
        port = parts.port
    except ValueError:
        raise ConfigurationError(
            f"{shown!r} is not the address of a server: the port must be between 1 and 65535", fix
        ) from None
    unusable = parts.scheme not in ("http", "https") or not parts.hostname or port == 0
    if unusable or any(character.isspace() for character in parts.netloc):
        raise ConfigurationError(f"{shown!r} is not the address of a server", fix)
    path = parts.path.rstrip("/")
    for known in ("/metrics", "/v1/models", "/v1", "/health"):
        path = path.removesuffix(known)
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def _refuse_host(host: str) -> None:
    """Refuse what no resolver takes.

    Raises:
        ValueError: the host is neither a name nor an address.
    """
    if not host.isprintable():
        raise ValueError("the host holds characters that cannot be printed")
    if ":" in host:
        ip_address(host)
    else:
        host.encode("idna")


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine itself."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def body_of(answer: "httpx.Response", most_bytes: int) -> bytes:
    """The body of an answer that is being streamed, as much of it as ``most_bytes``."""
    body = b""
    async for received in answer.aiter_bytes():
        body += received
        if len(body) > most_bytes:
            break
    return body[:most_bytes]


def failure_reason(error: Exception) -> str:
    """Why an exchange over httpx failed, in a few words: it tells only that every attempt did."""
    # Loaded by who uses it: a panel that watches asks its one server without.
    import httpx

    if isinstance(error, httpx.ConnectTimeout):
        return "no connection in time"
    if isinstance(error, httpx.TimeoutException):
        return "no answer in time"
    if isinstance(error, httpx.TooManyRedirects):
        return one_line(str(error), 160)
    for cause in _causes(error):
        if isinstance(cause, ConnectionRefusedError):
            return "connection refused"
        if isinstance(cause, socket.gaierror):
            return "no machine of that name is known"
        if isinstance(cause, ssl.SSLError):
            return f"TLS failed: {one_line(str(error), 100)}"
    if isinstance(error, httpx.ConnectError):
        return _system_reason(error) or f"no connection: {one_line(str(error), 100)}"
    if isinstance(error, httpx.ReadError | httpx.WriteError | httpx.RemoteProtocolError):
        return "connection closed without an answer"
    return one_line(f"{type(error).__name__}: {error}", 120)


def _system_reason(error: Exception) -> str | None:
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno is not None:
            return os.strerror(cause.errno).lower()
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """``error`` and what it came from, groups included."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        cause = waiting.pop()
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        waiting += [cause.__cause__, cause.__context__]
        if isinstance(cause, BaseExceptionGroup):
            waiting += cause.exceptions
