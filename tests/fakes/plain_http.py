"""A small real HTTP server whose every path answers with bytes, or does something worse."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self

Misbehave = Callable[[asyncio.StreamWriter], Awaitable[None]]


def answer(status: str, body: bytes = b"", *headers: str) -> bytes:
    """A whole answer; ``status`` like ``200 OK``."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def vllm_answers(
    metrics: bytes, version: str = "0.32.0", model: str = "smollm2"
) -> dict[str, bytes]:
    """What a vLLM server answers on the paths that specpanel asks."""
    return {
        "/health": answer("200 OK"),
        "/version": answer("200 OK", b'{"version":"%s"}' % version.encode()),
        "/v1/models": answer("200 OK", b'{"data":[{"id":"%s"}]}' % model.encode()),
        "/metrics": answer("200 OK", metrics),
    }


async def endless(writer: asyncio.StreamWriter) -> None:
    """A body that goes on, a few bytes at a time, until the reader leaves."""
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"4\r\n# x\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.02)


async def silent(writer: asyncio.StreamWriter) -> None:
    """Takes the request and never answers."""
    await asyncio.Event().wait()


class PlainServer:
    """Listens on a free port of 127.0.0.1 while it is entered; unknown paths answer 404.

    ``answers`` may be changed while it runs. ``asked`` holds the paths in order.
    """

    def __init__(self, answers: Mapping[str, bytes | Misbehave]) -> None:
        self.answers = dict(answers)
        self.asked: list[str] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._tasks: set[asyncio.Task[None]] = set()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split()[1].decode()
            self.asked.append(path)
            found = self.answers.get(path, answer("404 Not Found"))
            if isinstance(found, bytes):
                writer.write(found)
                await writer.drain()
            else:
                await found(writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return
        finally:
            self._tasks.discard(task)
            writer.close()
