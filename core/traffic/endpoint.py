"""An OpenAI-compatible endpoint, asked for streamed chat answers and timed at this end."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import httpx

from specpanel.core.errors import ConfigurationError, ServerUnreachableError
from specpanel.core.printable import one_line, without_secrets
from specpanel.core.settings.profile import Traffic
from specpanel.core.traffic.address import (
    CONNECT_TIMEOUT_S,
    read_address,
    read_key,
    refusal,
)
from specpanel.core.traffic.answer import Answer, read_object
from specpanel.core.traffic.events import EventStream, EventTooLargeError
from specpanel.core.traffic.records import Prompt, RequestRecord
from specpanel.core.web import body_of, failure_reason, is_loopback

LOOK_TIMEOUT_S = 10.0
# How long the end of an exchange may take after the answer's end, so that its connection can be used again.
DRAIN_TIMEOUT_S = 1.0
# Below the 5 s after which uvicorn closes an idle connection: a request must not meet that moment.
KEEPALIVE_S = 2.0
# Connections that the server had closed by then; each one found is gone, so this many are never met.
_MOST_STALE = 16
ANSWER_LIMIT_BYTES = 64 * 1024 * 1024
PLAIN_BODY_LIMIT_BYTES = 1024 * 1024


class _NoAnswerError(Exception):
    """The exchange failed; the text says why, ``status`` is the HTTP status where there is one."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


class Endpoint:
    """A server of OpenAI's chat protocol; an asynchronous context manager that looks whom it talks to.

    Args:
        base_url: ``http://host:port``, with or without ``/v1``.
        model: name to ask for; None takes what the server lists.
        api_key_variable: environment variable that holds the API key; None sends none, so that a key
            that lies in the environment for one service is not handed to another. It is never shown.
        api_key: the key itself, for a server of ours that was started with it.

    Raises:
        ConfigurationError: the address is not one, the variable is empty, the model is not served.
        ServerUnreachableError: on entering, when nothing answers or it lists no model.
    """

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        *,
        api_key_variable: str | None = None,
        api_key: str | None = None,
    ) -> None:
        address = read_address(base_url)
        self.url = str(address.copy_with(username=None, password=None)).rstrip("/")
        self.is_vllm = False
        self.version: str | None = None
        self.extras_refused = False  # it turned down every field beyond the plain protocol
        self._model = model
        self._key = api_key if api_key_variable is None else read_key(api_key_variable)
        # A proxy could hold a compressed stream back until it is worth compressing.
        headers = {"Accept-Encoding": "identity"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        self._client = httpx.AsyncClient(
            base_url=address,
            headers=headers,
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(
                max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEPALIVE_S
            ),
            verify=address.scheme == "https",  # reading the certificates takes time
            trust_env=not is_loopback(address.host),  # no proxy between this machine and itself
        )

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r}, model={self._model!r})"

    @property
    def model(self) -> str:
        """The name that is asked for; known once the endpoint has been entered."""
        if self._model is None:
            raise RuntimeError("the endpoint has not been entered")
        return self._model

    async def __aenter__(self) -> Self:
        try:
            await self._look()
        except BaseException:
            await self._client.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._client.aclose()

    async def ask(
        self,
        prompt: Prompt,
        settings: Traffic,
        index: int,
        *,
        began_s: float | None = None,
        due_s: float | None = None,
        warmup: bool = False,
    ) -> RequestRecord:
        """Send one prompt and follow its answer to the end. Raises for nothing that a server does.

        Args:
            index: number of the request; with the seed it fixes what is sampled.
            began_s: ``time.monotonic()`` when the load began; now where absent.
            due_s: ``time.monotonic()`` when the request was due (open loop); see ``RequestRecord``.
            warmup: marks the record.
        """
        started_unix, started_s = time.time(), time.monotonic()
        answer = Answer(sent_s=started_s)
        error: str | None = None
        try:
            async with asyncio.timeout(settings.timeout_s):
                await self._exchange(self._body(prompt, settings, index), answer)
            error = answer.error
        except TimeoutError:
            error = f"timeout after {settings.timeout_s:g} s"
        except _NoAnswerError as reason:
            error = answer.error or str(reason)
        waited_ms = None if due_s is None else max(0.0, started_s - due_s) * 1000
        return RequestRecord(
            index=index,
            prompt_id=prompt.id,
            kind=prompt.kind,
            started_unix=started_unix,
            started_s=0.0 if began_s is None else started_s - began_s,
            ttft_ms=_plus(answer.ttft_ms, waited_ms),
            tpot_ms=answer.tpot_ms if error is None else None,
            end_to_end_ms=_plus(answer.end_to_end_ms, waited_ms) if error is None else None,
            prompt_tokens=answer.prompt_tokens,
            output_tokens=answer.output_tokens,
            finish_reason=answer.finish_reason,
            error=self._shown(error),
            text=answer.text,
            token_ids=answer.token_ids,
            drafted=answer.drafted,
            accepted=answer.accepted,
            warmup=warmup,
            first_chunk_tokens=answer.first_chunk_tokens,
            waited_ms=waited_ms,
        )

    def _body(self, prompt: Prompt, settings: Traffic, index: int) -> dict[str, Any]:
        system = [] if prompt.system is None else [{"role": "system", "content": prompt.system}]
        plain: dict[str, Any] = {
            "model": self.model,
            "messages": [*system, {"role": "user", "content": prompt.text}],
            "stream": True,
            "max_tokens": settings.max_tokens,
            "temperature": settings.temperature,
        }
        return plain if self.extras_refused else {**plain, **self._extras(settings, index)}

    def _extras(self, settings: Traffic, index: int) -> dict[str, Any]:
        """Fields that a server of the plain protocol may not know."""
        extras: dict[str, Any] = {"stream_options": {"include_usage": True}}
        if settings.temperature > 0:  # greedy answers need none, and vLLM samples slower with one
            extras["seed"] = settings.seed + index
        if self.is_vllm:
            extras["return_token_ids"] = True
            if settings.ignore_eos:
                extras["ignore_eos"] = True
        return extras

    async def _exchange(self, body: dict[str, Any], answer: Answer) -> None:
        """One exchange, or two where the server may not know a field; the clock starts with the last."""
        try:
            await self._follow(body, answer)
        except _NoAnswerError as reason:
            plain = {key: body[key] for key in _PLAIN_FIELDS}
            if reason.status not in (400, 422) or plain == body:
                raise
            answer.sent_s = time.monotonic()
            await self._follow(plain, answer)
            self.extras_refused = True

    async def _follow(self, body: dict[str, Any], answer: Answer) -> None:
        """Once more over another connection where the server closed a kept one as we used it.

        Such a moment is nobody's failure, and no part of the latency: the clock starts with the last.
        """
        for _ in range(_MOST_STALE):
            wire = _Wire()
            try:
                await self._follow_over(wire, body, answer)
                return
            except _NoAnswerError:
                if not wire.was_stale:
                    raise
            answer.sent_s = time.monotonic()
        raise _NoAnswerError("the server closes every connection that is used again")

    async def _follow_over(self, wire: "_Wire", body: dict[str, Any], answer: Answer) -> None:
        asked = self._client.stream(
            "POST", "v1/chat/completions", json=body, extensions={"trace": wire.take}
        )
        try:
            async with asked as response:
                if response.status_code != 200:
                    raise _NoAnswerError(
                        refusal(
                            response.status_code, await body_of(response, PLAIN_BODY_LIMIT_BYTES)
                        ),
                        response.status_code,
                    )
                kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
                if kind != "text/event-stream":
                    raise _NoAnswerError(
                        f"no stream, but {one_line(kind, 40) or 'an untyped body'}"
                    )
                await _follow_stream(response, answer)
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise _NoAnswerError(failure_reason(error)) from error

    async def _look(self) -> None:
        """Learn the model and whether this is vLLM, from ``/v1/models`` and ``/version``."""
        status, body = await self._get("v1/models")
        listed = body.get("data") if body is not None else None
        if status in (401, 403):
            raise ServerUnreachableError(
                f"{self.url} refuses: HTTP {status}",
                "Name the environment variable that holds its API key.",
            )
        if status not in (404, 405, 501) and (status != 200 or not isinstance(listed, list)):
            raise ServerUnreachableError(
                f"what answers at {self.url} is not an OpenAI-compatible server "
                f"(/v1/models: HTTP {status})",
                "Check the address; a server that is still starting needs more time.",
            )
        entries = [entry for entry in listed or () if isinstance(entry, dict)]
        owners = {entry.get("owned_by") for entry in entries if entry.get("owned_by")}
        _, version = await self._get("version")
        told = None if version is None else version.get("version")
        # Others have a /version, too; it decides only where nobody says who owns the model.
        self.is_vllm = "vllm" in owners or (not owners and isinstance(told, str))
        self.version = one_line(told, 60) if isinstance(told, str) else None
        self._model = self._choose_model(
            [entry["id"] for entry in entries if isinstance(entry.get("id"), str)]
        )

    def _choose_model(self, names: list[str]) -> str:
        shown = one_line(", ".join(names))
        if self._model is not None:
            if self.is_vllm and names and self._model not in names:
                raise ConfigurationError(
                    f"{self.url} does not serve {one_line(self._model)!r}", f"It serves: {shown}."
                )
            return self._model
        if not names:
            raise ServerUnreachableError(f"{self.url} lists no model", "Name the model to ask for.")
        if len(names) > 1 and not self.is_vllm:  # vLLM's first is the target; adapters follow
            raise ConfigurationError(
                f"{self.url} serves {len(names)} models", f"Name one of: {shown}."
            )
        return names[0]

    async def _get(self, path: str) -> tuple[int, dict[str, Any] | None]:
        """The status, and the JSON object where the body is one."""
        try:
            async with (
                asyncio.timeout(LOOK_TIMEOUT_S),
                self._client.stream("GET", path) as response,
            ):
                body = await body_of(response, PLAIN_BODY_LIMIT_BYTES)
                return response.status_code, read_object(body.decode("utf-8", errors="replace"))
        except (TimeoutError, httpx.HTTPError) as error:
            timed_out = isinstance(error, TimeoutError)
            reason = f"silent for {LOOK_TIMEOUT_S:g} s" if timed_out else failure_reason(error)
            raise ServerUnreachableError(
                f"nothing answers at {self.url} ({self._shown(reason)})",
                "Start the server, or check the address.",
            ) from error

    def _shown(self, reason: str | None) -> str | None:
        """``reason`` without keys, which a server may repeat in what it says."""
        if reason is None:
            return None
        return without_secrets(reason if self._key is None else reason.replace(self._key, "…"))


class _Wire:
    """What httpx tells of the connection that one exchange went over."""

    def __init__(self) -> None:
        self._is_new = False
        self._answered = False

    @property
    def was_stale(self) -> bool:
        """Whether a connection of an earlier exchange ended before it brought any answer to this one."""
        return not self._is_new and not self._answered

    async def take(self, event: str, _: Mapping[str, Any]) -> None:
        if event == "connection.connect_tcp.started":
            self._is_new = True
        elif event == "http11.receive_response_headers.complete":
            self._answered = True


_PLAIN_FIELDS = ("model", "messages", "stream", "max_tokens", "temperature")


async def _follow_stream(response: httpx.Response, answer: Answer) -> None:
    """Hand the stream's events to ``answer`` until it ends; raises where that was too early."""
    chunks = response.aiter_bytes()
    try:
        await _take_events(chunks, answer)
    except EventTooLargeError as error:
        raise _NoAnswerError("unreadable stream: an event without an end") from error
    except httpx.HTTPError as error:
        if not answer.ended:
            raise _NoAnswerError("stream ended early") from error
    answer.end_s = answer.end_s or time.monotonic()
    if answer.error is not None:
        return
    if not answer.ended:
        raise _NoAnswerError("stream ended early")
    if answer.empty:
        raise _NoAnswerError("empty answer")
    with suppress(TimeoutError, httpx.HTTPError, httpx.StreamError):
        async with asyncio.timeout(DRAIN_TIMEOUT_S):
            async for _ in chunks:
                pass


async def _take_events(chunks: AsyncIterator[bytes], answer: Answer) -> None:
    """Take events until ``[DONE]``, an error or the end of the connection; stamps ``answer.end_s``."""
    events, received_bytes = EventStream(), 0
    async for received in chunks:
        now_s = time.monotonic()
        received_bytes += len(received)
        for event in events.feed(received):
            answer.take(event, now_s)
        if answer.done or answer.error is not None:
            answer.end_s = now_s
            return
        if received_bytes > ANSWER_LIMIT_BYTES:
            raise _NoAnswerError(f"answer above {ANSWER_LIMIT_BYTES >> 20} MiB")
    answer.end_s = time.monotonic()
    for event in events.end():
        answer.take(event, answer.end_s)


def _plus(value_ms: float | None, waited_ms: float | None) -> float | None:
    return None if value_ms is None else value_ms + (waited_ms or 0.0)
