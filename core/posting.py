"""One question to an HTTP server by POST, with a deadline and a limit to what is read of its answer."""

import asyncio
import json
from typing import Any

import httpx

from specpanel.core.errors import ServerUnreachableError
from specpanel.core.web import body_of, failure_reason


class NobodyListensError(ServerUnreachableError):
    """The server has ended: not even a connection is taken."""


async def posted(
    http: httpx.AsyncClient,
    path: str,
    body: dict[str, Any] | None = None,
    *,
    deadline_s: float,
    most_bytes: int,
) -> tuple[int, bytes]:
    """The status and the body of the answer. ``path`` begins with a slash.

    Raises:
        NobodyListensError: no connection is taken.
        ServerUnreachableError: no whole answer comes in time.
    """
    try:
        async with asyncio.timeout(deadline_s), http.stream("POST", path, json=body) as answer:
            return answer.status_code, await body_of(answer, most_bytes)
    except httpx.ConnectError as error:
        raise NobodyListensError(_no_answer(http, path, failure_reason(error))) from None
    except (TimeoutError, httpx.HTTPError) as error:
        late = isinstance(error, TimeoutError)
        reason = f"silent for {deadline_s:g} s" if late else failure_reason(error)
        raise ServerUnreachableError(_no_answer(http, path, reason)) from None


def json_object(body: bytes) -> dict[str, Any] | None:
    """The object that ``body`` holds, None where it holds none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _no_answer(http: httpx.AsyncClient, path: str, reason: str) -> str:
    return f"{str(http.base_url).rstrip('/')}{path} gives no answer ({reason})"
