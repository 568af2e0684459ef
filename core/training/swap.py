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

from specpanel.core.errors import ConfigurationError, ServerUnreachableError, SpecpanelError
from specpanel.core.posting import NobodyListensError
from specpanel.core.training.resume_guard import resume_guard
from specpanel.core.training.worker_calls import SwapError, WorkerCalls, reason_of, require
from specpanel.core.web import is_loopback, server_root

_PAUSE_S = 30.0
_COPY_S = 20.0  # one call within the pause, in which nobody is answered
_RESUME_S = 5.0
_RESUME_TRIES = 3
_UNKNOWN = "Answers stay right, but what drafts is not known: restart the server."

Found = TypeVar("Found")


class CheckpointRefusedError(ConfigurationError):
    """The checkpoint cannot take the place of the running drafter, which is untouched."""


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
    """One swap.

    ``waited_s`` is from asking for the pause to its beginning: the step under way is done to its end and its
    tokens are answered. ``paused_s`` is from then to the end of resuming: no step is done.
    """

    folder: str
    fingerprint_before: str
    fingerprint: str
    prepare_s: float
    waited_s: float
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
        self._workers = WorkerCalls(self.url)
        self._waited_s = self._paused_s = 0.0  # before the last pause, and in it

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._workers.close()

    async def status(self) -> DrafterStatus:
        """What runs now.

        Raises:
            SwapError: the server lets nobody replace its drafter, or its workers differ.
        """
        answers = await self._workers.call("specpanel_drafter_status")
        require(answers, self.url)
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
            ServerUnreachableError: the server has ended, or cannot be paused.
        """
        began_s = time.monotonic()
        prepared = await self._prepare(folder)
        prepare_s = time.monotonic() - began_s
        first = prepared[0]
        await _to_its_end(self._exchange(str(first["digest"])))
        now = await self.status()
        if now.fingerprint != first["fingerprint"]:
            if now.fingerprint != first["live_fingerprint"]:
                await self.undo()
            raise SwapError(
                f"{self.url} does not draft with the weights that were checked, though it said so; the old "
                "ones draft",
                "Report this with the server's log.",
            )
        return Swapped(
            folder=now.folder,
            fingerprint_before=str(first["live_fingerprint"]),
            fingerprint=now.fingerprint,
            prepare_s=prepare_s,
            waited_s=self._waited_s,
            paused_s=self._paused_s,
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
        require(await self._workers.call("specpanel_forget_drafter"), self.url)

    # -- steps ------------------------------------------------------------------------------

    async def _prepare(self, folder: Path) -> list[dict[str, Any]]:
        answers = await self._workers.call("specpanel_prepare_drafter", str(folder))
        bad = next((answer for answer in answers if not answer["ok"]), None)
        if bad is not None or len({answer["digest"] for answer in answers}) != 1:
            await self.forget()
            reason = (
                reason_of(bad) if bad else "the workers read different files: it is being written"
            )
            raise CheckpointRefusedError(
                f"{folder} cannot replace the running drafter: {reason}",
                "The running drafter is untouched. A checkpoint of another shape needs a server of its own.",
            )
        return answers

    async def _exchange(self, digest: str) -> None:
        """Commit on every worker within one pause."""
        async with self._paused():
            reason = await self._reason_of_no_commit(digest)
            if reason is not None:
                await self._back_on_every_worker(f"the copy failed ({reason}), and ")
                raise SwapError(f"the copy failed ({reason}); the old drafter was put back")

    async def _reason_of_no_commit(self, digest: str) -> str | None:
        """Why not every worker has committed, None where all have.

        Raises:
            ServerUnreachableError: the server has ended.
        """
        try:
            answers = await self._workers.call(
                "specpanel_commit_drafter", digest, timeout_s=_COPY_S
            )
        except NobodyListensError:
            raise
        except SpecpanelError as error:
            return error.message
        bad = next((answer for answer in answers if not answer["ok"]), None)
        if bad is None:
            return None
        return f"worker {bad['rank']} of {self.url}: {reason_of(bad)}"

    async def _undone(self) -> list[dict[str, Any]]:
        async with self._paused():
            return await self._back_on_every_worker()

    async def _back_on_every_worker(self, before: str = "") -> list[dict[str, Any]]:
        """Undo everywhere. ``before`` begins the sentence where that fails."""
        try:
            answers = await self._workers.call("specpanel_undo_drafter", timeout_s=_COPY_S)
        except NobodyListensError:
            raise
        except SpecpanelError as error:
            raise SwapError(
                f"{before}the old drafter could not be brought back ({error.message})", _UNKNOWN
            ) from None
        if bad := next((answer for answer in answers if not answer["ok"]), None):
            raise SwapError(
                f"{before}worker {bad['rank']} of {self.url} could not bring the old drafter back "
                f"({reason_of(bad)})",
                _UNKNOWN,
            )
        return answers

    @asynccontextmanager
    async def _paused(self) -> AsyncIterator[None]:
        """No step is done within. The server resumes on every way out, even where this process is killed."""
        async with resume_guard(self.url):
            asked_s = began_s = time.monotonic()
            resumes = True
            try:
                try:
                    await self._pause()
                except NobodyListensError:
                    resumes = False
                    raise
                began_s = time.monotonic()
                yield
            finally:
                if resumes:
                    await self._resume()
                self._waited_s, self._paused_s = began_s - asked_s, time.monotonic() - began_s

    async def _pause(self) -> None:
        try:
            await self._workers.post("/pause?mode=keep", timeout_s=_PAUSE_S)
        except SpecpanelError as error:
            fix = error.fix
            if isinstance(error, NobodyListensError):
                fix = "Look at its log, and start it again."
            elif isinstance(error, ServerUnreachableError):
                fix = "Try again while no long prompt is being read."
            raise type(error)(f"{error.message}; nothing was replaced", fix) from None

    async def _resume(self) -> None:
        error: SpecpanelError | None = None
        for _ in range(_RESUME_TRIES):
            try:
                await self._workers.post("/resume", timeout_s=_RESUME_S)
            except NobodyListensError:
                raise ServerUnreachableError(
                    f"the server at {self.url} ended while its drafter was being replaced; what it had "
                    "paused ended with it",
                    "Look at its log, and start it again.",
                ) from None
            except SpecpanelError as failure:
                error = failure
            else:
                return
        raise SwapError(
            f"{self.url} may still be paused: it does not answer /resume ({error})",
            f"Send it yourself: curl -X POST {self.url}/resume",
        )


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
