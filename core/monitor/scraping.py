"""Read the metrics of a server: from its own address, or from those where its engines expose them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from specpanel.core.engine.client import DEADLINE_S, EngineClient, Health
from specpanel.core.engine.exposition import ExpositionError
from specpanel.core.engine.metrics import EngineCounters
from specpanel.core.engine.rescrape import ExpositionReader
from specpanel.core.engine.several import together


@dataclass(frozen=True, slots=True)
class Scrape:
    """One look. ``counters`` is None where no address could be read; ``error`` says what could not."""

    counters: EngineCounters | None
    took_ms: float
    error: str | None = None


class Scraper:
    """A server's health, and its metrics from ``metrics_urls`` (its own address where there are none)."""

    def __init__(
        self, url: str, metrics_urls: Sequence[str] = (), *, deadline_s: float = DEADLINE_S
    ) -> None:
        self._server = EngineClient(url, deadline_s=deadline_s)
        clients = tuple(EngineClient(one, deadline_s=deadline_s) for one in metrics_urls) or (
            self._server,
        )
        self._sources = tuple((client, ExpositionReader()) for client in clients)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for client in {self._server, *(client for client, _ in self._sources)}:
            await client.__aexit__(kind, error, trace)

    async def health(self) -> Health:
        return await self._server.health()

    async def scrape(self) -> Scrape:
        """Ask every address at once. One that fails is left out and told; all failing is an error."""
        if len(self._sources) == 1:
            return await _read(*self._sources[0])
        found = await asyncio.gather(*(_read(*source) for source in self._sources))
        good = {
            client.url: one.counters
            for (client, _), one in zip(self._sources, found, strict=True)
            if one.counters is not None
        }
        bad = [
            f"{client.url}: {one.error}"
            for (client, _), one in zip(self._sources, found, strict=True)
            if one.counters is None
        ]
        error = None if not bad else f"{len(bad)} of {len(found)} addresses fail ({'; '.join(bad)})"
        took_ms = max(one.took_ms for one in found)
        return Scrape(together(good) if good else None, took_ms, error)


async def _read(client: EngineClient, reader: ExpositionReader) -> Scrape:
    body = await client.metrics()
    if body.text is None:
        return Scrape(None, body.took_ms, body.error or "no answer")
    try:
        exposition = reader.read(body.text)
    except ExpositionError as error:
        return Scrape(None, body.took_ms, error.message)
    if not exposition.is_vllm:
        return Scrape(None, body.took_ms, exposition.not_vllm or "/metrics is not vLLM's")
    return Scrape(exposition.counters, body.took_ms)
