"""Replace the drafter of a running vLLM server, over HTTP, and bring the old one back.

The server must have been started with ``engine.swappable``. Nothing is changed before every worker has taken
and checked the checkpoint; only then is the server paused, for the copy alone. Requests in flight wait
meanwhile (``mode=keep``). Pausing clears the prefix cache too, which is needed: cached blocks hold keys and
values of the old drafter.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import httpx

from specpanel.core.errors import ConfigurationError, ServerUnreachableError, SpecpanelError
from specpanel.core.printable import one_line
from specpanel.core.training.resume_guard import resume_guard
from specpanel.core.web import failure_reason, is_loopback, server_root

_DEADLINE_S = 120.0  # reading and checking a checkpoint of a large drafter
_PAUSE_S = 30.0
_RESUME_S = 5.0
_RESUME_TRIES = 3
_NOT_SWAPPABLE = "Start it with --set engine.swappable=true."

Found = TypeVar("Found")


class CheckpointRefusedError(ConfigurationError):
    """The checkpoint cannot take the place of the running drafter, which is untouched."""


class SwapError(SpecpanelError):
    """A swap went wrong beyond the checkpoint; the message says what runs now."""


class NotSwappableError(SwapError):
    """The server lets nobody replace its drafter."""


@dataclass(frozen=True, slots=True)
class DrafterStatus:
    """The drafter that runs. ``fingerprint`` tells weights apart on one machine, not between machines."""

    drafter: str  # vLLM's class
    method: str
    draft_tokens: int | None
    folder: str
    fingerprint: str
    workers: int


@dataclass(frozen=True, slots=True)
class Swapped:
    """One swap. ``paused_s`` is from asking for the pause to the end of resuming."""

    folder: str
    fingerprint_before: str
    fingerprint: str
    prepare_s: float
    paused_s: float
    parameter_bytes: int
    shared: tuple[str, ...]  # tensors of the checkpoint that are the target's and were left alone


class DrafterSwap:
    """The drafter of one server; an asynchronous context manager.

    Raises:
        ConfigurationError: the address is not of this machine: the routes used here are guarded by nothing.
    """

    def __init__(self, url: str) -> None:
        self.url = server_root(url)
        if not is_loopback(urlsplit(self.url).hostname or ""):
            raise ConfigurationError(
                f"the drafter of {self.url} cannot be replaced from here: only a server of this machine can "
                "be asked to",
                "Run specpanel beside it, or reach it through a tunnel.",
            )
        self._http = httpx.AsyncClient(base_url=self.url, timeout=_DEADLINE_S, trust_env=False)
        self._paused_s = 0.0  # of the last pause

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def status(self) -> DrafterStatus:
        """What runs now.

        Raises:
            SwapError: the server lets nobody replace its drafter, or its workers differ.
        """
        answers = await self._call("specpanel_drafter_status")
        _require(answers, self.url)
        prints = {str(answer["fingerprint"]) for answer in answers if answer["rank"] == 0}
        first = answers[0]
        if len({str(answer["folder"]) for answer in answers}) > 1 or len(prints) != 1:
            raise SwapError(
                f"the workers of {self.url} draft with different weights", "Restart the server."
            )
        tokens = first.get("draft_tokens")
        return DrafterStatus(
            drafter=str(first["drafter"]),
            method=str(first["method"]),
            draft_tokens=tokens if isinstance(tokens, int) else None,
            folder=str(first["folder"]),
            fingerprint=prints.pop(),
            workers=len(answers),
        )

    async def check(self, folder: Path) -> None:
        """Let every worker read and check the checkpoint, and change nothing.

        Raises:
            CheckpointRefusedError: it does not fit.
        """
        await self._prepare(folder)
        await self.forget()

    async def swap(self, folder: Path) -> Swapped:
        """Draft with the checkpoint in ``folder`` from now on; ``undo`` brings the old one back.

        A cancelled call still ends the pause.

        Raises:
            CheckpointRefusedError: it does not fit; the old drafter is untouched.
            SwapError: the copy failed; the old drafter was put back, unless the message says otherwise.
        """
        began_s = time.monotonic()
        prepared = await self._prepare(folder)
        prepare_s = time.monotonic() - began_s
        first = prepared[0]
        paused_s = await _to_its_end(self._exchange(str(first["digest"])))
        now = await self.status()
        if now.fingerprint != first["fingerprint"]:
            await self.undo()
            raise SwapError(
                f"{self.url} drafts with other weights than those that were checked; the old ones were put "
                "back",
                "Report this with the server's log.",
            )
        return Swapped(
            folder=now.folder,
            fingerprint_before=str(first["live_fingerprint"]),
            fingerprint=now.fingerprint,
            prepare_s=prepare_s,
            paused_s=paused_s,
            parameter_bytes=sum(int(answer["parameter_bytes"]) for answer in prepared),
            shared=tuple(map(str, first["shared"])),
        )

    async def undo(self) -> DrafterStatus:
        """Bring back the drafter that the last swap replaced, from the workers' memory.

        Raises:
            SwapError: there is nothing to bring back, or it failed.
        """
        answers = await _to_its_end(self._undone())
        if not all(answer.get("undone") for answer in answers):
            raise SwapError(f"{self.url} keeps no drafter from before to go back to")
        return await self.status()

    async def forget(self) -> None:
        """Free the memory that ``undo`` needs."""
        _require(await self._call("specpanel_forget_drafter"), self.url)

    # -- steps ------------------------------------------------------------------------------

    async def _prepare(self, folder: Path) -> list[dict[str, Any]]:
        answers = await self._call("specpanel_prepare_drafter", str(folder))
        bad = next((answer for answer in answers if not answer["ok"]), None)
        if bad is not None or len({answer["digest"] for answer in answers}) != 1:
            await self.forget()
            reason = (
                bad["reason"] if bad else "the workers read different files: it is being written"
            )
            raise CheckpointRefusedError(
                f"{folder} cannot replace the running drafter: {one_line(str(reason), 400).rstrip('.')}",
                "The running drafter is untouched. A checkpoint of another shape needs a server of its own.",
            )
        return answers

    async def _exchange(self, digest: str) -> float:
        """Commit on every worker within one pause; seconds that it lasted."""
        async with self._paused():
            answers = await self._call("specpanel_commit_drafter", digest)
            bad = next((answer for answer in answers if not answer["ok"]), None)
            if bad is not None:
                await self._back_on_every_worker()
                raise SwapError(
                    f"the copy failed on worker {bad['rank']} of {self.url} "
                    f"({one_line(str(bad['reason']), 300).rstrip('.')}); the old drafter was put back"
                )
        return self._paused_s

    async def _undone(self) -> list[dict[str, Any]]:
        async with self._paused():
            return await self._back_on_every_worker()

    async def _back_on_every_worker(self) -> list[dict[str, Any]]:
        answers = await self._call("specpanel_undo_drafter")
        if bad := next((answer for answer in answers if not answer["ok"]), None):
            raise SwapError(
                f"worker {bad['rank']} of {self.url} could not bring the old drafter back "
                f"({one_line(str(bad['reason']), 300).rstrip('.')})",
                "Answers stay right, but what drafts is not known: restart the server.",
            )
        return answers

    @asynccontextmanager
    async def _paused(self) -> AsyncIterator[None]:
        """No step is done within. The server resumes on every way out, even where this process is killed."""
        async with resume_guard(self.url):
            began_s = time.monotonic()
            try:
                await self._post("/pause?mode=keep", timeout_s=_PAUSE_S)
                yield
            finally:
                await self._resume()
                self._paused_s = time.monotonic() - began_s

    async def _resume(self) -> None:
        error: SpecpanelError | None = None
        for _ in range(_RESUME_TRIES):
            try:
                await self._post("/resume", timeout_s=_RESUME_S)
            except SpecpanelError as failure:
                error = failure
            else:
                return
        raise SwapError(
            f"{self.url} may still be paused: it does not answer /resume ({error})",
            f"Send it yourself: curl -X POST {self.url}/resume",
        )

    # -- HTTP -------------------------------------------------------------------------------

    async def _call(self, method: str, *arguments: str) -> list[dict[str, Any]]:
        """What every worker answers to ``method``."""
        found = await self._post("/collective_rpc", {"method": method, "args": list(arguments)})
        results = found.get("results")
        if not isinstance(results, list) or not results or not all(map(_is_answer, results)):
            raise SwapError(f"{self.url} answers a call to its workers with something unknown")
        return results

    async def _post(
        self, path: str, body: dict[str, Any] | None = None, *, timeout_s: float = _DEADLINE_S
    ) -> dict[str, Any]:
        try:
            answer = await self._http.post(path, json=body, timeout=timeout_s)
        except httpx.HTTPError as error:
            reason = failure_reason(error)
            raise ServerUnreachableError(f"{self.url}{path} gives no answer ({reason})") from None
        if answer.status_code != 200:
            raise self._refusal(path, answer)
        try:
            found = answer.json()
        except ValueError:
            found = None
        return found if isinstance(found, dict) else {}

    def _refusal(self, path: str, answer: httpx.Response) -> SpecpanelError:
        text = one_line(answer.text, 160)
        if answer.status_code == 404:
            return NotSwappableError(
                f"{self.url} has no developer routes, so its drafter cannot be replaced",
                _NOT_SWAPPABLE,
            )
        if "has no attribute" in text and "specpanel" in text:
            return NotSwappableError(
                f"{self.url} was started without what replaces a drafter", _NOT_SWAPPABLE
            )
        return SwapError(f"{self.url}{path} answers {answer.status_code}: {text}")


def _is_answer(result: object) -> bool:
    return isinstance(result, dict) and isinstance(result.get("ok"), bool) and "rank" in result


def _require(answers: list[dict[str, Any]], url: str) -> None:
    for answer in answers:
        if not answer["ok"]:
            reason = one_line(str(answer.get("reason")), 300).rstrip(".")
            raise SwapError(f"{url} cannot replace its drafter: {reason}")


async def _to_its_end(work: Coroutine[Any, Any, Found]) -> Found:
    """What ``work`` gives. A cancellation meanwhile waits until it is done, so that no pause stays behind."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.exception()  # looked at: the cancellation is what goes on
        raise cancelled
    return task.result()
