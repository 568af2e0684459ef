"""The client against real servers: well, broken, endless, huge, silent, gone and not vLLM."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator

import pytest
from fakes.plain_http import Misbehave, PlainServer, answer, endless, silent, vllm_answers

from specpanel.core.engine.client import EngineClient, Health
from specpanel.core.errors import ConfigurationError, ExitCode, ServerUnreachableError
from specpanel.core.web import server_root

METRICS = b'vllm:num_requests_running{engine="0"} 1.0\n'


@pytest.fixture
async def server() -> AsyncIterator[PlainServer]:
    async with PlainServer(vllm_answers(METRICS)) as running:
        yield running


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("localhost:8000", "http://localhost:8000"),
        ("http://localhost:8000/", "http://localhost:8000"),
        ("http://localhost:8000/metrics", "http://localhost:8000"),
        ("localhost:8000/metrics/", "http://localhost:8000"),
        ("http://h:1/v1", "http://h:1"),
        ("http://h:1/v1/models", "http://h:1"),
        ("http://h:1/health", "http://h:1"),
        ("https://h/proxy/vllm/v1/", "https://h/proxy/vllm"),
        ("http://h:1/metrics?x=1#y", "http://h:1"),
        ("  http://h:1/metrics \n", "http://h:1"),
        ("HTTP://h:1", "http://h:1"),
        ("[::1]:8000", "http://[::1]:8000"),
        ("http://[fe80::1]:8000/metrics", "http://[fe80::1]:8000"),
        ("127.0.0.1", "http://127.0.0.1"),
    ],
)
def test_an_address_becomes_the_base_of_its_server(text: str, url: str) -> None:
    assert server_root(text) == url
    assert server_root(url) == url


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "http://",
        "http:///metrics",
        "ftp://h:1",
        "file:///etc/passwd",
        "http://h:0",
        "http://h:70000",
        "http://h:-1",
        "http://h:x",
        "http://h:1:2",
        "::1",
        "http://[::1",
        "http://[nonsense]:1",
        "http://my host:1",
        "http://a\0b",
        "http://ex\u2028a",
        "h\udcffx",
    ],
)
def test_what_is_no_address_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        server_root(text)
    assert caught.value.exit_code == ExitCode.USAGE
    assert "\n" not in caught.value.message
    assert "http://127.0.0.1:8000" in caught.value.fix


async def test_a_vllm_server_tells_what_it_is(server: PlainServer) -> None:
    async with EngineClient(f"{server.url}/metrics") as client:
        assert client.url == server.url
        assert await client.health() == Health(alive=True, well=True)
        assert await client.require_vllm() == "0.32.0"
        assert await client.model_names() == ("smollm2",)
        body = await client.metrics()
    assert body.text == METRICS.decode()
    assert body.error is None
    assert body.took_ms > 0


async def test_a_path_before_the_server_is_kept() -> None:
    found = {f"/proxy{path}": text for path, text in vllm_answers(METRICS).items()}
    async with PlainServer(found) as server, EngineClient(f"{server.url}/proxy/v1") as client:
        assert await client.require_vllm() == "0.32.0"


async def test_a_redirect_is_followed_and_a_circle_of_them_is_left(server: PlainServer) -> None:
    server.answers["/metrics"] = answer("307 Temporary Redirect", b"", "Location: /elsewhere")
    server.answers["/elsewhere"] = answer("200 OK", METRICS)
    server.answers["/health"] = answer("307 Temporary Redirect", b"", "Location: /health")
    async with EngineClient(server.url) as client:
        assert (await client.metrics()).text == METRICS.decode()
        health = await client.health()
    assert not health.alive
    assert "redirect" in str(health.reason)


async def test_a_server_that_is_not_well_is_alive(server: PlainServer) -> None:
    server.answers["/health"] = answer("503 Service Unavailable", b"busy")
    async with EngineClient(server.url) as client:
        assert await client.health() == Health(True, False, "/health answers 503")


async def test_metrics_that_fail_say_why(server: PlainServer) -> None:
    server.answers["/metrics"] = answer("500 Internal Server Error", b"oops")
    async with EngineClient(server.url) as client:
        body = await client.metrics()
    assert (body.text, body.error) == (None, "/metrics answers 500 (oops)")


@pytest.mark.parametrize("misbehaviour", [endless, silent])
async def test_no_call_outlasts_its_deadline(server: PlainServer, misbehaviour: Misbehave) -> None:
    for path in ("/health", "/metrics", "/version", "/v1/models"):
        server.answers[path] = misbehaviour
    began_s = time.monotonic()
    async with EngineClient(server.url, deadline_s=0.3) as client:
        health = await client.health()
        body = await client.metrics()
        assert await client.version() is None
        assert await client.model_names() == ()
    assert time.monotonic() - began_s < 5
    assert health.alive is (misbehaviour is endless)  # its status came at once
    assert body.text is None
    assert body.error in ("/metrics took longer than 0.3 s", "no answer in time")


async def test_a_body_of_forty_megabytes_is_refused_and_not_kept(server: PlainServer) -> None:
    server.answers["/metrics"] = server.answers["/version"] = answer("200 OK", b"x" * (40 << 20))
    async with EngineClient(server.url) as client:
        body = await client.metrics()
        assert await client.version() is None
    assert (body.text, body.error) == (None, "/metrics is larger than 32 MiB")


async def test_a_connection_cut_in_the_middle_is_an_error_not_half_a_body(
    server: PlainServer,
) -> None:
    whole = answer("200 OK", METRICS)
    server.answers["/metrics"] = whole[:-10]
    async with EngineClient(server.url) as client:
        body = await client.metrics()
    assert body.text is None
    assert body.error


async def test_bytes_that_are_no_text_are_read_all_the_same(server: PlainServer) -> None:
    server.answers["/metrics"] = answer("200 OK", b"vllm:x 1\n\xff\xfe")
    async with EngineClient(server.url) as client:
        assert (await client.metrics()).text == "vllm:x 1\n\ufffd\ufffd"


async def test_an_address_where_nothing_listens_is_told() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # taken, but nobody listens
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        async with EngineClient(url) as client:
            assert await client.health() == Health(False, False, "connection refused")
            assert (await client.metrics()).error == "connection refused"
            with pytest.raises(ServerUnreachableError) as caught:
                await client.require_vllm()
    assert caught.value.message == f"nothing answers at {url} (connection refused)"


async def test_both_addresses_of_a_name_are_tried_before_a_connection_counts_as_refused() -> None:
    async with EngineClient("http://localhost:9") as client:
        assert (await client.health()).reason == "connection refused"


async def test_a_name_that_nobody_knows_is_told() -> None:
    async with EngineClient("http://no-such-machine.invalid") as client:
        reason = (await client.health()).reason
    assert reason in ("no machine of that name is known", "no connection in time")


async def test_something_that_speaks_no_http_is_told() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server, EngineClient(f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
        with pytest.raises(ServerUnreachableError, match="nothing answers at"):
            await client.require_vllm()


@pytest.mark.parametrize(
    "body",
    [b"<html>", b"[]", b'{"version": 3}', b"null", b"\xff", b"", b"[" * 100_000],
    ids=["page", "list", "number", "null", "bytes", "empty", "deep"],
)
async def test_a_version_or_models_that_make_no_sense_count_as_untold(
    body: bytes, server: PlainServer
) -> None:
    server.answers["/version"] = server.answers["/v1/models"] = answer("200 OK", body)
    async with EngineClient(server.url) as client:
        assert await client.version() is None
        assert await client.model_names() == ()
        assert await client.require_vllm() is None  # its metrics are vLLM's


async def test_models_without_a_name_are_left_out(server: PlainServer) -> None:
    body = b'{"data": [{"id": "a"}, {"id": 3}, {}, "b", {"id": "c"}]}'
    server.answers["/v1/models"] = answer("200 OK", body)
    async with EngineClient(server.url) as client:
        assert await client.model_names() == ("a", "c")


@pytest.mark.parametrize("metrics", [b"", b"python_info 1\n", None])
async def test_a_server_that_is_not_vllm_is_told(metrics: bytes | None) -> None:
    found = {"/health": answer("404 Not Found")}
    if metrics is not None:
        found["/metrics"] = answer("200 OK", metrics)
    async with PlainServer(found) as server, EngineClient(server.url) as client:
        with pytest.raises(ServerUnreachableError, match="is not vLLM") as caught:
            await client.require_vllm()
    assert caught.value.exit_code == ExitCode.FAILED


async def test_proxies_of_the_environment_are_not_asked(
    server: PlainServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with EngineClient(server.url) as client:
        assert (await client.health()).well
