"""Where an endpoint is, with which key, and why it did not answer, in words that can be shown."""

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus
from ipaddress import ip_address

import httpx

from specpanel.core.errors import ConfigurationError
from specpanel.core.traffic.answer import error_message, one_line, read_object

CONNECT_TIMEOUT_S = 10.0


def read_address(url: str) -> httpx.URL:
    """The root of the server that ``url`` names; a trailing ``/v1`` is dropped.

    Raises:
        ConfigurationError: no address of an HTTP server.
    """
    try:
        parsed = httpx.URL(url.strip())
    except httpx.InvalidURL as error:
        raise _not_an_address(url) from error
    port = parsed.port
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise _not_an_address(url)
    if port is not None and not 1 <= port <= 65535:
        raise _not_an_address(url)
    path = parsed.path.rstrip("/").removesuffix("/v1")
    return parsed.copy_with(path=f"{path}/", query=None, fragment=None)


def _not_an_address(url: str) -> ConfigurationError:
    shown = one_line(url.rpartition("@")[2])  # without a name and password
    return ConfigurationError(
        f"{shown!r} is not the address of a server", "Write it like http://127.0.0.1:8000."
    )


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine itself."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_key(variable: str) -> str:
    """The API key in the environment variable ``variable``; an error never shows it."""
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigurationError(
            f"the environment variable {variable} holds no API key", f"Set {variable}."
        )
    if not key.isascii() or not key.isprintable():
        raise ConfigurationError(
            f"the API key in {variable} holds characters that no header can carry",
            f"Set {variable} to the key alone.",
        )
    return key


def refusal(status: int, body: bytes) -> str:
    """``HTTP 503: reason``, with the server's own reason where it gives one."""
    answered = read_object(body.decode("utf-8", errors="replace"))
    reason = None if answered is None else error_message(answered)
    if reason is None:
        with suppress(ValueError):  # a status of the server's own making
            reason = HTTPStatus(status).phrase
    return f"HTTP {status}: {reason}" if reason else f"HTTP {status}"


def failure_reason(error: Exception) -> str:
    """Why an exchange failed before an answer began, in a few words."""
    if isinstance(error, httpx.ConnectTimeout):
        return f"no connection within {CONNECT_TIMEOUT_S:g} s"
    causes = tuple(_causes(error))
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return "connection refused"
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return "host not found"
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return f"TLS failed: {one_line(str(error), 100)}"
    if isinstance(error, httpx.ConnectError):
        return f"no connection: {one_line(str(error), 100)}"
    if isinstance(error, httpx.ReadError | httpx.WriteError | httpx.RemoteProtocolError):
        return "connection closed without an answer"
    return one_line(f"{type(error).__name__}: {error}", 120)


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
