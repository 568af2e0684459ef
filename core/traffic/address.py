"""Where an endpoint is, with which key, and how it refused, in words that can be shown."""

import os
from contextlib import suppress
from http import HTTPStatus

import httpx

from specpanel.core.errors import ConfigurationError
from specpanel.core.traffic.answer import error_message, read_object
from specpanel.core.web import server_root

CONNECT_TIMEOUT_S = 10.0


def read_address(url: str) -> httpx.URL:
    """The root of the server that ``url`` names, with a slash at its end for relative paths.

    Raises:
        ConfigurationError: no address of an HTTP server.
    """
    return httpx.URL(f"{server_root(url)}/")


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
