"""Ask a vLLM server over HTTP: is it well, what is it, what does it measure."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from specpanel.core.engine.exchange import Answer, Exchange, ExchangeError, origin_of
from specpanel.core.errors import ServerUnreachableError
from specpanel.core.printable import one_line, without_secrets
from specpanel.core.web import server_root

DEADLINE_S = 10.0
_CONNECT_S = 3.0
_MOST_METRICS_BYTES = 32 << 20
_MOST_JSON_BYTES = 4 << 20
_MOST_ERROR_BYTES = 2048
_MOST_REDIRECTS = 5


@dataclass(frozen=True, slots=True)
class Health:
    """``alive``: something answers. ``well``: it says that it can serve (``/health`` 200)."""

    alive: bool
    well: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class MetricsBody:
    """One answer of ``/metrics``: the text, or why there is none."""

    text: str | None
    took_ms: float
    error: str | None = None


class EngineClient:
    """One server. Every call has a deadline and says why it failed instead of raising."""

    def __init__(self, url: str, *, deadline_s: float = DEADLINE_S) -> None:
        self.url = server_root(url)
        self._deadline_s = deadline_s
        self._found: dict[str, str] = {}  # where a path really is
        self._http = Exchange(connect_s=min(_CONNECT_S, deadline_s))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    async def health(self) -> Health:
        try:
            async with asyncio.timeout(self._deadline_s), self._open("/health") as answer:
                status = answer.status
                if answer.is_empty:
                    await answer.skip()  # an answer that was read keeps its connection
        except TimeoutError:
            return Health(alive=False, well=False, reason="no answer in time")
        except ExchangeError as error:
            return Health(alive=False, well=False, reason=str(error))
        well = status == 200
        return Health(True, well, None if well else f"/health answers {status}")

    async def metrics(self) -> MetricsBody:
        """The exposition as text. Endless or huge bodies end as an error, not as full memory."""
        clock = asyncio.get_running_loop().time
        began = clock()

        def result(text: str | None, error: str | None = None) -> MetricsBody:
            return MetricsBody(text, (clock() - began) * 1000, error)

        try:
            status, body = await self._get("/metrics", _MOST_METRICS_BYTES)
        except TimeoutError:
            return result(None, f"/metrics took longer than {self._deadline_s:g} s")
        except ExchangeError as error:
            return result(None, str(error))
        if status != 200:
            said = without_secrets(one_line((body or b"").decode("utf-8", "replace").strip(), 120))
            return result(None, f"/metrics answers {status}{f' ({said})' if said else ''}")
        if body is None:
            return result(None, f"/metrics is larger than {_MOST_METRICS_BYTES >> 20} MiB")
        return result(body.decode("utf-8", "replace"))

    async def version(self) -> str | None:
        """vLLM's version, None where the server does not tell."""
        found = await self._json("/version")
        version = found.get("version") if isinstance(found, dict) else None
        return version if isinstance(version, str) else None

    async def model_names(self) -> tuple[str, ...]:
        """Names of the models served; empty where the server does not tell."""
        found = await self._json("/v1/models")
        models = found.get("data") if isinstance(found, dict) else None
        if not isinstance(models, list):
            return ()
        names = (model.get("id") for model in models if isinstance(model, dict))
        return tuple(name for name in names if isinstance(name, str))

    async def require_vllm(self) -> str | None:
        """The version of the vLLM server at this address, None where it answers without telling.

        Raises:
            ServerUnreachableError: nothing answers, or what answers is not vLLM.
        """
        health = await self.health()
        if not health.alive:
            raise ServerUnreachableError(
                f"nothing answers at {self.url} ({health.reason})",
                "Check host and port; specpanel ps lists the servers that it started.",
            )
        version = await self.version()
        if version is None:
            body = await self.metrics()
            if body.text is None or "vllm:" not in body.text:
                raise ServerUnreachableError(
                    f"the server at {self.url} is not vLLM: it has neither /version nor vllm: metrics",
                    "Give the address of vLLM itself, not of a router before it.",
                )
        return version

    async def _json(self, path: str) -> object:
        try:
            status, body = await self._get(path, _MOST_JSON_BYTES)
            return json.loads(body) if status == 200 and body is not None else None
        except (ExchangeError, TimeoutError, ValueError, RecursionError):
            return None

    async def _get(self, path: str, most_bytes: int) -> tuple[int, bytes | None]:
        """Status and body, ``None`` where it is larger than ``most_bytes``.

        Of an answer other than 200 the first bytes are given, for people to read.

        Raises:
            TimeoutError: the whole answer took longer than the deadline.
            ExchangeError: the request failed.
        """
        chunks: list[bytes] = []
        size = 0
        async with asyncio.timeout(self._deadline_s), self._open(path) as answer:
            well = answer.status == 200
            async for chunk in answer.chunks():
                size += len(chunk)
                if well and size > most_bytes:
                    return 200, None
                chunks.append(chunk)
                if not well and size >= _MOST_ERROR_BYTES:
                    break
        body = b"".join(chunks)
        return answer.status, body if well else body[:_MOST_ERROR_BYTES]

    @asynccontextmanager
    async def _open(self, path: str) -> AsyncIterator[Answer]:
        """The answer of ``path``, after redirects within this server; where they led is remembered.

        A redirect to another machine or port is not followed: what answers there is not the server that
        the user named.

        Raises:
            ExchangeError: the request failed, or it is sent elsewhere or in a circle.
        """
        place = self._found.get(path, self.url + path)
        for _ in range(_MOST_REDIRECTS):
            async with self._http.get(place) as answer:
                if answer.location is None:
                    self._found[path] = place
                    yield answer
                    return
                _refuse_elsewhere(answer.location, place)
            place = answer.location
        raise ExchangeError("it redirects in a circle")


def _refuse_elsewhere(there: str, here: str) -> None:
    """Refuse a redirect that does more than stay on the machine and port, or turn to TLS there.

    Raises:
        ExchangeError: it does.
    """
    try:
        to, at = origin_of(there), origin_of(here)
    except ValueError:
        raise ExchangeError("it redirects to what is no address") from None
    if to.host != at.host or not (to == at or to.secure):
        raise ExchangeError(f"it redirects to another server ({one_line(to.host, 60)}:{to.port})")
