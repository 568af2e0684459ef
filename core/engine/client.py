"""Ask a vLLM server over HTTP: is it well, what is it, what does it measure."""

import asyncio
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

import httpx

from specpanel.core.errors import ConfigurationError, ServerUnreachableError

_TIMEOUT = httpx.Timeout(10.0, connect=3.0)
_MOST_METRICS_BYTES = 32 << 20


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


def normalised_url(text: str) -> str:
    """The base of a server's address: ``localhost:8000/metrics`` gives ``http://localhost:8000``.

    Raises:
        ConfigurationError: this is no address of an HTTP server.
    """
    parts = urlsplit(text if "://" in text else f"http://{text}")
    try:
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(
            f"{text} is not an address: the port must be between 0 and 65535",
            "Give it like http://127.0.0.1:8000.",
        ) from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ConfigurationError(
            f"{text} is not the address of a server", "Give it like http://127.0.0.1:8000."
        )
    path = parts.path.rstrip("/")
    for known in ("/metrics", "/v1/models", "/v1", "/health"):
        path = path.removesuffix(known)
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


class EngineClient:
    """One server. Every call has a deadline and says why it failed instead of raising."""

    def __init__(self, url: str) -> None:
        self.url = normalised_url(url)
        self._http = httpx.AsyncClient(
            base_url=self.url, timeout=_TIMEOUT, follow_redirects=True, trust_env=False
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def health(self) -> Health:
        try:
            answer = await self._http.get("/health")
        except httpx.HTTPError as error:
            return Health(alive=False, well=False, reason=plain_reason(error))
        well = answer.status_code == 200
        return Health(True, well, None if well else f"/health answers {answer.status_code}")

    async def metrics(self) -> MetricsBody:
        """The exposition as text. Endless or huge bodies end as an error, not as full memory."""
        clock = asyncio.get_running_loop().time
        began = clock()

        def result(text: str | None, error: str | None = None) -> MetricsBody:
            return MetricsBody(text, (clock() - began) * 1000, error)

        chunks: list[bytes] = []
        size = 0
        try:
            async with (
                asyncio.timeout(_TIMEOUT.read),
                self._http.stream("GET", "/metrics") as answer,
            ):
                if answer.status_code != 200:
                    return result(None, f"/metrics answers {answer.status_code}")
                async for chunk in answer.aiter_bytes():
                    size += len(chunk)
                    if size > _MOST_METRICS_BYTES:
                        return result(None, "/metrics is larger than 32 MiB")
                    chunks.append(chunk)
        except TimeoutError:
            return result(None, f"/metrics took longer than {_TIMEOUT.read:g} s")
        except httpx.HTTPError as error:
            return result(None, plain_reason(error))
        return result(b"".join(chunks).decode("utf-8", "replace"))

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
            answer = await self._http.get(path)
            return answer.json() if answer.status_code == 200 else None
        except (httpx.HTTPError, ValueError):
            return None


def plain_reason(error: httpx.HTTPError) -> str:
    """A few words for a person: what went wrong with a request."""
    if isinstance(error, httpx.ConnectTimeout):
        return "no connection in time"
    if isinstance(error, httpx.TimeoutException):
        return "no answer in time"
    if isinstance(error, httpx.ConnectError):
        text = str(error)
        return "connection refused" if "refused" in text or not text else text
    return str(error) or type(error).__name__
