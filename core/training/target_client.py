"""What training asks of a vLLM server: token ids of a chat, the target's answers, hidden states."""

import asyncio
import fcntl
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from specpanel.core.errors import ServerUnreachableError, SpecpanelError
from specpanel.core.printable import one_line
from specpanel.core.training.conversations import Turn
from specpanel.core.web import failure_reason

_LOCK_WAIT_S = 20.0
_POLL_S = 0.01
_AGAIN_AFTER_S = (0.3, 0.6)


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer in tokens; ``finish_reason`` is ``stop`` where the target ended it itself."""

    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    finish_reason: str | None


class RequestRefusedError(SpecpanelError):
    """The server answers, and turned this request down."""


class TargetClient:
    """One server of the target; an asynchronous context manager."""

    def __init__(self, url: str, model: str, *, timeout_s: float = 600.0) -> None:
        self._model = model
        self._http = httpx.AsyncClient(
            base_url=url,
            timeout=httpx.Timeout(timeout_s, connect=10.0),
            limits=httpx.Limits(max_connections=None, keepalive_expiry=2.0),
            trust_env=False,
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

    async def tokens(self, turns: Sequence[Turn], *, ask: bool) -> tuple[int, ...]:
        """Token ids of the chat by the target's own template; ``ask`` adds the beginning of an answer.

        Raises:
            RequestRefusedError: the template does not take these turns.
            ServerUnreachableError: nothing answers.
        """
        body = {
            "model": self._model,
            "messages": _messages(turns),
            "add_generation_prompt": ask,
            "return_token_strs": False,
        }
        return _ids((await self._post("/tokenize", body)).get("tokens"))

    async def answer(
        self, turns: Sequence[Turn], *, max_tokens: int, temperature: float, seed: int
    ) -> Answered:
        """The target's answer in tokens.

        Raises:
            RequestRefusedError, ServerUnreachableError: as ``tokens``.
        """
        body: dict[str, Any] = {
            "model": self._model,
            "messages": _messages(turns),
            "max_tokens": max_tokens,
            "temperature": temperature,
            "return_token_ids": True,
        }
        if temperature > 0:
            body["seed"] = seed
        found = await self._post("/v1/chat/completions", body)
        choice = _first(found)
        return Answered(
            _ids(found.get("prompt_token_ids")),
            _ids(choice.get("token_ids")),
            choice.get("finish_reason"),
        )

    async def states(self, token_ids: Sequence[int]) -> Path:
        """The file with the hidden states of these tokens, completely written.

        Raises:
            RequestRefusedError, ServerUnreachableError: as ``tokens``.
        """
        body = {
            "model": self._model,
            "prompt": list(token_ids),
            "max_tokens": 1,
            "temperature": 0,
            "return_token_ids": True,
        }
        found = await self._post("/v1/completions", body)
        if list(_ids(_first(found).get("prompt_token_ids"))) != list(token_ids):
            raise RequestRefusedError("the extraction server answers for other tokens")
        transfer = found.get("kv_transfer_params")
        place = transfer.get("hidden_states_path") if isinstance(transfer, dict) else None
        if not isinstance(place, str):
            raise RequestRefusedError(
                "the server gives no hidden states",
                "It must run with extract_hidden_states and the file connector.",
            )
        path = Path(place)
        await _written(path)
        return path

    async def _sent(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """The answer to a request, which is sent again where a connection broke: it changes nothing."""
        delays = iter(_AGAIN_AFTER_S)
        while True:
            try:
                return await self._http.post(path, json=body)
            except httpx.TransportError as error:
                delay_s = next(delays, None)
                if delay_s is None or isinstance(error, httpx.TimeoutException):
                    raise ServerUnreachableError(
                        f"the server of the target does not answer ({failure_reason(error)})"
                    ) from error
                await asyncio.sleep(delay_s)

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        response = await self._sent(path, body)
        try:
            found = response.json()
        except ValueError:
            found = None
        if response.status_code != 200 or not isinstance(found, dict):
            raise RequestRefusedError(
                f"the server refuses {path}: HTTP {response.status_code} {_reason(found)}".rstrip()
            )
        return found


async def _written(path: Path) -> None:
    """Wait until the file is completely written; the lock goes, as the protocol has it."""
    deadline = asyncio.get_running_loop().time() + _LOCK_WAIT_S
    while asyncio.get_running_loop().time() < deadline:
        if _is_written(path):
            return
        await asyncio.sleep(_POLL_S)
    raise SpecpanelError(
        f"the hidden states in {path} were not written within {_LOCK_WAIT_S:g} s",
        "Look at the extraction server's log and at the free space of that folder.",
    )


def _is_written(path: Path) -> bool:
    """Whether the writer has let go of its lock, which is removed then."""
    lock = Path(f"{path}.lock")
    if lock.exists():
        if not _free(lock):
            return False
        lock.unlink(missing_ok=True)
    return path.exists()


def _free(lock: Path) -> bool:
    try:
        handle = os.open(lock, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def _messages(turns: Sequence[Turn]) -> list[dict[str, str]]:
    return [{"role": turn.role, "content": turn.text} for turn in turns]


def _first(found: dict[str, Any]) -> dict[str, Any]:
    choices = found.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        raise RequestRefusedError("the server's answer holds no choice")
    return choice


def _ids(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(one) is int for one in value):
        raise RequestRefusedError(
            "the server gives no token ids", "It must be vLLM of 0.32 or newer."
        )
    return tuple(value)


def _reason(found: Any) -> str:
    if not isinstance(found, dict):
        return ""
    error = found.get("error")
    message = error.get("message") if isinstance(error, dict) else found.get("message")
    return one_line(str(message)) if message else ""
