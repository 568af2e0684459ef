"""A small server that speaks OpenAI's streaming chat protocol over sockets, with chosen speed and faults.

It makes no claim about any model: what it answers is in the script. Each request takes the next
``Reply``; the last one stays. ``vllm=True`` adds what vLLM 0.32 adds: ``owned_by``, ``/version``, and
token ids for those who ask.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType
from typing import Any, Literal, Self

Fault = Literal[
    "none",
    "cut",  # the connection is reset after half of the chunks
    "end without done",  # the stream ends in good order, but without [DONE]
    "end without reason",  # the same after half of the chunks
    "error event",  # an error object after half of the chunks, then [DONE]
    "not json",
    "endless event",
    "hang up",  # the connection is closed before an answer
    "no stream",  # a JSON answer in place of a stream
]


@dataclass(frozen=True)
class Reply:
    """What one request gets."""

    tokens: tuple[str, ...] = ("one", " two", " three", " four", " five", " six")
    chunk_tokens: int = 1
    first_chunk_tokens: int | None = None
    gap_s: float = 0.0  # before every chunk
    hold: bool = False  # sends the first chunk, then waits for ``release``
    status: int = 200
    message: str = "said by the server"
    fault: Fault = "none"
    usage: bool = True
    slice_bytes: int | None = None  # sends the stream in pieces of this size, blind to characters
    comments: bool = False  # a keep-alive comment before every chunk
    crlf: bool = False
    metrics: dict[str, Any] | None = None


@dataclass
class FakeEndpoint:
    """Serves ``replies`` on a free port of 127.0.0.1 while its context is open."""

    replies: Sequence[Reply] = (Reply(),)
    vllm: bool = False
    models: tuple[str, ...] = ("fake",)
    refused_fields: frozenset[str] = frozenset()  # 400 for a request that has one of them
    refusal_s: float = 0.0  # how long such a 400 takes
    release: asyncio.Event = field(default_factory=asyncio.Event)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    open_now: int = 0
    open_most: int = 0
    hung_up: int = 0  # requests that the client left before their end
    connections: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def __aenter__(self) -> Self:
        self._taken = 0
        self._tasks: set[asyncio.Task[None]] = set()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: asyncio.StreamReaderProtocol(_Reader(), self._accept), "127.0.0.1", 0
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, reached: Callable[[], bool], deadline_s: float = 10.0) -> None:
        """Wait until ``reached`` is true; asked whenever a request comes or goes."""
        async with asyncio.timeout(deadline_s), self.changed:
            await self.changed.wait_for(reached)

    async def _count(self, name: str, change: int) -> None:
        async with self.changed:
            setattr(self, name, getattr(self, name) + change)
            self.open_most = max(self.open_most, self.open_now)
            self.changed.notify_all()

    async def _accept(self, reader: "_Reader", writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        try:
            while await self._serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client or the test is done with this connection; nothing runs after it
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve_one(self, reader: "_Reader", writer: asyncio.StreamWriter) -> bool:
        """Serve one request; whether the connection stays open."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:])}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        if path == "/v1/models" and method == "GET":
            owner = "vllm" if self.vllm else "someone"
            entries = [{"id": name, "object": "model", "owned_by": owner} for name in self.models]
            return await _send_json(writer, 200, {"object": "list", "data": entries})
        if path == "/version" and self.vllm:
            return await _send_json(writer, 200, {"version": "0.32.0"})
        if path != "/v1/chat/completions" or method != "POST":
            return await _send_json(writer, 404, {"detail": "Not Found"})
        self.headers.append(headers)
        self.bodies.append(json.loads(body))
        await self._count("open_now", 1)
        gone = asyncio.create_task(reader.left.wait())
        answer = asyncio.create_task(self._answer(self.bodies[-1], writer))
        try:
            await asyncio.wait((gone, answer), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                await self._count("hung_up", 1)
                return False
            return answer.result()
        finally:
            for task in (gone, answer):
                task.cancel()
            await asyncio.gather(gone, answer, return_exceptions=True)
            await self._count("open_now", -1)

    async def _answer(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        refused = self.refused_fields.intersection(body)
        if refused:
            await asyncio.sleep(self.refusal_s)
            message = f"Unrecognized request argument supplied: {', '.join(sorted(refused))}"
            return await _send_json(writer, 400, {"error": {"message": message}})
        reply = self.replies[min(self._taken, len(self.replies) - 1)]
        self._taken += 1
        if reply.fault == "hang up":
            writer.transport.abort()
            return False
        if reply.status != 200:
            return await _send_json(writer, reply.status, {"error": {"message": reply.message}})
        if reply.fault == "no stream":
            return await _send_json(writer, 200, {"choices": []})
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        return await self._stream(reply, body, writer)

    async def _stream(
        self, reply: Reply, body: dict[str, Any], writer: asyncio.StreamWriter
    ) -> bool:
        chunks = list(_chunks(reply, with_ids=self.vllm and body.get("return_token_ids") is True))
        half = len(chunks) // 2
        send = _Sender(reply, writer)
        await send.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        for n, chunk in enumerate(chunks):
            if n == half and reply.fault == "cut":
                await writer.drain()
                writer.transport.abort()
                return False
            if n == half and reply.fault == "end without reason":
                return await send.end()
            if n == half and reply.fault in ("error event", "not json", "endless event"):
                return await send.fault()
            if reply.gap_s:
                await asyncio.sleep(reply.gap_s)
            await send.event({"choices": [chunk]})
            if n == 0 and reply.hold:
                await self.release.wait()
        wants_usage = (body.get("stream_options") or {}).get("include_usage")
        if reply.usage and wants_usage:
            usage = {"prompt_tokens": 7, "completion_tokens": len(reply.tokens)}
            await send.event(
                {"choices": [], "usage": usage}
                | ({"metrics": reply.metrics} if reply.metrics is not None else {})
            )
        if reply.fault != "end without done":
            await send.data("[DONE]")
        return await send.end()


class _Reader(asyncio.StreamReader):
    """A reader that tells, without reading, that the client has closed the connection."""

    def __init__(self) -> None:
        super().__init__()
        self.left = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.left.set()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.left.set()


class _Sender:
    def __init__(self, reply: Reply, writer: asyncio.StreamWriter) -> None:
        self._reply = reply
        self._writer = writer
        self._end = "\r\n" if reply.crlf else "\n"

    async def event(self, value: dict[str, Any]) -> None:
        await self.data(json.dumps(value, ensure_ascii=False))

    async def data(self, data: str) -> None:
        comment = f": keep-alive{self._end}{self._end}" if self._reply.comments else ""
        await self._write(f"{comment}data: {data}{self._end}{self._end}".encode())

    async def fault(self) -> bool:
        if self._reply.fault == "endless event":
            for _ in range(10):
                await self._write(b"data: " + b"x" * (1024 * 1024))
        elif self._reply.fault == "not json":
            await self.data('{"choices": [')
        else:
            await self.event({"error": {"message": self._reply.message, "code": 500}})
        await self.data("[DONE]")
        return await self.end()

    async def end(self) -> bool:
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()
        return True

    async def _write(self, raw: bytes) -> None:
        size = self._reply.slice_bytes or len(raw)
        for start in range(0, len(raw), size):
            piece = raw[start : start + size]
            self._writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await self._writer.drain()
            if self._reply.slice_bytes:
                await asyncio.sleep(0)  # lets the client read each piece by itself


def _chunks(reply: Reply, *, with_ids: bool) -> list[dict[str, Any]]:
    """The choices of the stream, the finish reason on the last."""
    bounds = [0, reply.first_chunk_tokens or reply.chunk_tokens]
    while bounds[-1] < len(reply.tokens):
        bounds.append(bounds[-1] + reply.chunk_tokens)
    chunks: list[dict[str, Any]] = []
    for start, stop in pairwise(bounds):
        texts = reply.tokens[start:stop]
        chunk: dict[str, Any] = {"index": 0, "delta": {"content": "".join(texts)}}
        if with_ids:
            chunk["token_ids"] = [100 + start + n for n in range(len(texts))]
        chunks.append(chunk | {"finish_reason": None})
    chunks[-1]["finish_reason"] = "length"
    return chunks


async def _send_json(writer: asyncio.StreamWriter, status: int, value: dict[str, Any]) -> bool:
    body = json.dumps(value).encode()
    writer.write(
        f"HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n".encode()
        + body
    )
    await writer.drain()
    return True
