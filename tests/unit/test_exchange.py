"""One kept connection: used again, replaced when the server dropped it, given up when it is spoilt."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from specpanel.core.engine.exchange import Exchange, ExchangeError

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


class Server:
    """Answers each request of a connection with the next of ``answers``, the last one for ever."""

    def __init__(self, *answers: bytes, drops_after: int | None = None) -> None:
        self.answers, self.drops_after = list(answers), drops_after
        self.connections = 0
        self.heads: list[str] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        answered = 0
        try:
            while answered != self.drops_after:
                self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
                writer.write(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
                await writer.drain()
                answered += 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def listening(server: Server) -> AsyncIterator[Server]:
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    async with listener:
        server.port = listener.sockets[0].getsockname()[1]
        yield server


async def body_of(exchange: Exchange, url: str) -> bytes:
    async with asyncio.timeout(20), exchange.get(url) as answer:
        return b"".join([chunk async for chunk in answer.chunks()])


async def test_a_connection_is_used_again() -> None:
    exchange = Exchange(connect_s=20)
    async with listening(Server(OK)) as server:
        for _ in range(3):
            assert await body_of(exchange, server.url) == b"hi"
        assert (server.connections, len(server.heads)) == (1, 3)
        exchange.close()


async def test_a_connection_that_the_server_dropped_is_replaced() -> None:
    exchange = Exchange(connect_s=20)
    async with listening(Server(OK, drops_after=1)) as server:
        for _ in range(3):
            assert await body_of(exchange, server.url) == b"hi"
        assert server.connections == 3
        exchange.close()


async def test_an_answer_that_was_not_read_costs_its_connection() -> None:
    exchange = Exchange(connect_s=20)
    async with listening(Server(OK)) as server:
        async with exchange.get(server.url) as answer:
            assert answer.status == 200
        assert await body_of(exchange, server.url) == b"hi"
        assert server.connections == 2
        exchange.close()


async def test_name_and_password_of_an_address_are_sent_and_odd_paths_quoted() -> None:
    exchange = Exchange(connect_s=20)
    async with listening(Server(OK)) as server:
        url = server.url.replace("//", "//me:p%40ss@") + "/a b?c=é"
        assert await body_of(exchange, url) == b"hi"
        (head,) = server.heads
        assert head.startswith("GET /a%20b?c=%C3%A9 HTTP/1.1\r\n")
        assert f"Host: 127.0.0.1:{server.port}\r\n" in head
        assert f"Authorization: Basic {b64encode(b'me:p@ss').decode()}\r\n" in head
        exchange.close()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nhi", "gzip"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000, "closed"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "closed"),
    ],
    ids=["compressed", "endless head", "no chunk"],
)
async def test_an_answer_that_cannot_be_read_says_why(answer: bytes, reason: str) -> None:
    exchange = Exchange(connect_s=20)
    async with listening(Server(answer)) as server:
        with pytest.raises(ExchangeError, match=reason):
            await body_of(exchange, server.url)
        exchange.close()
