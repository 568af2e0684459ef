"""Calls to every worker of a vLLM server with developer routes, over HTTP."""

from collections.abc import Iterator
from typing import Any

import httpx

from specpanel.core.errors import SpecpanelError
from specpanel.core.posting import json_object, posted
from specpanel.core.printable import one_line

DEADLINE_S = 120.0  # reading and checking a checkpoint of a large drafter
_MOST_ANSWER_BYTES = 4 << 20
_NOT_SWAPPABLE = "Start it with --set engine.swappable=true."
# What an answer of a worker that went well must tell, by the method that was called.
_TOLD: dict[str, dict[str, type]] = {
    "specpanel_drafter_status": dict.fromkeys(("drafter", "method", "folder", "fingerprint"), str),
    "specpanel_prepare_drafter": {
        **dict.fromkeys(("digest", "live_fingerprint", "fingerprint"), str),
        "parameter_bytes": int,
        "shared": list,
    },
}


class SwapError(SpecpanelError):
    """A swap went wrong beyond the checkpoint; the message says what runs now."""


class NotSwappableError(SwapError):
    """The server lets nobody replace its drafter."""


class WorkerCalls:
    """The workers of the server at ``url``; ``close`` it after use."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx.AsyncClient(base_url=url, timeout=DEADLINE_S, trust_env=False)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def call(
        self, method: str, *arguments: str, timeout_s: float = DEADLINE_S
    ) -> list[dict[str, Any]]:
        """What every worker answers to ``method``, at least ``ok`` and ``rank``.

        Raises:
            SwapError: the answer is not one of a worker.
            SpecpanelError: as of ``post``.
        """
        body = {"method": method, "args": list(arguments)}
        found = await self.post("/collective_rpc", body, timeout_s=timeout_s)
        results = found.get("results")
        if not isinstance(results, list) or not results or not all(_are_answers(method, results)):
            raise SwapError(f"{self.url} answers a call to its workers with something unknown")
        return results

    async def post(
        self, path: str, body: dict[str, Any] | None = None, *, timeout_s: float = DEADLINE_S
    ) -> dict[str, Any]:
        """The object that is answered; an empty one where it is none.

        Raises:
            NobodyListensError, ServerUnreachableError: no whole answer comes in time.
            SwapError: it is refused.
        """
        status, text = await posted(
            self._http, path, body, deadline_s=timeout_s, most_bytes=_MOST_ANSWER_BYTES
        )
        if status != 200:
            raise self._refusal(path, status, text)
        return json_object(text) or {}

    def _refusal(self, path: str, status: int, body: bytes) -> SpecpanelError:
        text = one_line(body.decode("utf-8", "replace"), 160)
        if status == 404:
            return NotSwappableError(
                f"{self.url} has no developer routes, so its drafter cannot be replaced",
                _NOT_SWAPPABLE,
            )
        if "has no attribute" in text and "specpanel" in text:
            return NotSwappableError(
                f"{self.url} was started without what replaces a drafter", _NOT_SWAPPABLE
            )
        return SwapError(f"{self.url}{path} answers {status}: {text}")


def _are_answers(method: str, results: list[Any]) -> Iterator[bool]:
    """Of each result, whether a worker can have answered it to ``method``."""
    for result in results:
        whole = isinstance(result, dict) and isinstance(result.get("ok"), bool) and "rank" in result
        told = _TOLD.get(method, {}).items() if whole and result["ok"] else ()
        yield whole and all(isinstance(result.get(name), kind) for name, kind in told)


def reason_of(answer: dict[str, Any]) -> str:
    """Why a worker could not, in one line."""
    return one_line(str(answer.get("reason")), 300).rstrip(".")


def require(answers: list[dict[str, Any]], url: str) -> None:
    for answer in answers:
        if not answer["ok"]:
            raise SwapError(f"{url} cannot replace its drafter: {reason_of(answer)}")
