"""Asking an endpoint: what is sent, what is measured, and how every failure is named."""

import time

import pytest
from fakes.openai_endpoint import FakeEndpoint, Fault, Reply
from ports import free_port

from specpanel.core.errors import ConfigurationError, ServerUnreachableError
from specpanel.core.settings.profile import Traffic
from specpanel.core.traffic.endpoint import Endpoint
from specpanel.core.traffic.records import Prompt, RequestRecord

PROMPT = Prompt("chat-01", "chat", "How are you?")
SIX = "one two three four five six"


async def _ask(server: FakeEndpoint, settings: Traffic | None = None) -> RequestRecord:
    async with Endpoint(server.url) as endpoint:
        return await endpoint.ask(PROMPT, settings or Traffic(), 0)


async def test_a_vllm_answer_is_recorded_with_ids_and_steps() -> None:
    steps = {"per_step_drafted": [4, 2], "per_step_accepted": [3, 0]}
    reply = Reply(chunk_tokens=2, metrics={"speculative_decoding": steps})
    async with FakeEndpoint([reply], vllm=True) as server:
        record = await _ask(server, Traffic(ignore_eos=True, max_tokens=6))
    assert record.ok
    assert record.text == SIX
    assert record.token_ids == (100, 101, 102, 103, 104, 105)
    assert (record.drafted, record.accepted) == ((4, 2), (3, 0))
    assert (record.prompt_tokens, record.output_tokens) == (7, 6)
    assert record.first_chunk_tokens == 2
    assert record.finish_reason == "length"
    assert server.bodies == [
        {
            "model": "fake",
            "messages": [{"role": "user", "content": "How are you?"}],
            "stream": True,
            "max_tokens": 6,
            "temperature": 0.0,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
            "ignore_eos": True,
        }
    ]


async def test_other_servers_are_asked_without_vllms_fields() -> None:
    async with FakeEndpoint() as server:
        record = await _ask(server, Traffic(ignore_eos=True, temperature=0.5, seed=40))
    assert record.ok
    assert record.text == SIX
    assert record.token_ids is None
    assert set(server.bodies[0]) == {
        "model", "messages", "stream", "max_tokens", "temperature", "stream_options", "seed",
    }  # fmt: skip
    assert server.bodies[0]["seed"] == 40


async def test_times_follow_the_chunks() -> None:
    reply = Reply(first_chunk_tokens=3, gap_s=0.05)  # 3 tokens at once, then 3 chunks
    async with FakeEndpoint([reply], vllm=True) as server:
        record = await _ask(server)
    assert record.ttft_ms is not None
    assert record.tpot_ms is not None
    assert record.end_to_end_ms is not None
    assert 50 <= record.ttft_ms < record.end_to_end_ms
    assert 45 <= record.tpot_ms <= (record.end_to_end_ms - record.ttft_ms) / 3


async def test_a_stream_cut_anywhere_gives_the_same_answer() -> None:
    tokens = ("é", "漢字", "😀", " end")
    for reply in (
        Reply(tokens=tokens, slice_bytes=1),
        Reply(tokens=tokens, slice_bytes=3, crlf=True, comments=True),
        Reply(tokens=tokens, fault="end without done"),
        Reply(tokens=tokens, chunk_tokens=4),
    ):
        async with FakeEndpoint([reply]) as server:
            record = await _ask(server)
        assert (record.error, record.text) == (None, "é漢字😀 end")
        assert record.output_tokens == 4


async def test_without_usage_the_token_count_is_absent() -> None:
    async with FakeEndpoint([Reply(usage=False)]) as server:
        record = await _ask(server)
    assert record.ok
    assert (record.output_tokens, record.tpot_ms) == (None, None)
    assert record.ttft_ms is not None


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ("cut", "stream ended early"),
        ("end without reason", "stream ended early"),
        ("error event", "error in the stream: said by the server"),
        ("not json", 'unreadable chunk: {"choices": ['),
        ("endless event", "unreadable stream: an event without an end"),
        ("hang up", "connection closed without an answer"),
        ("no stream", "no stream, but application/json"),
    ],
)
async def test_a_broken_answer_is_a_failed_record_that_names_it(fault: Fault, named: str) -> None:
    async with FakeEndpoint([Reply(fault=fault)]) as server:
        record = await _ask(server)
    assert record.error == named
    assert (record.tpot_ms, record.end_to_end_ms) == (None, None)


@pytest.mark.parametrize("status", [400, 429, 500, 503])
async def test_an_http_error_is_named_with_the_servers_reason(status: int) -> None:
    async with FakeEndpoint([Reply(status=status, message="too\nbusy")]) as server:
        record = await _ask(server)
        assert record.error == f"HTTP {status}: too busy"
        assert len(server.bodies) == (2 if status == 400 else 1)


async def test_a_silent_server_is_a_timeout_and_is_left() -> None:
    async with FakeEndpoint([Reply(hold=True)]) as server:
        record = await _ask(server, Traffic(timeout_s=0.2))
        assert record.error == "timeout after 0.2 s"
        assert record.text == "one"
        await server.until(lambda: server.hung_up == 1)


async def test_a_server_that_goes_away_refuses_the_next_request() -> None:
    async with FakeEndpoint() as server:
        endpoint = Endpoint(server.url)
        await endpoint.__aenter__()
    async with FakeEndpoint() as other:
        assert other.port != server.port
        record = await endpoint.ask(PROMPT, Traffic(), 0)
    await endpoint.__aexit__(None, None, None)
    assert record.error in ("connection refused", "connection closed without an answer")


async def test_refused_fields_are_left_out_from_then_on() -> None:
    async with (
        FakeEndpoint(refused_fields=frozenset({"stream_options"})) as server,
        Endpoint(server.url) as endpoint,
    ):
        records = [await endpoint.ask(PROMPT, Traffic(), n) for n in range(3)]
        assert endpoint.extras_refused
    assert [record.error for record in records] == [None, None, None]
    assert len(server.bodies) == 4
    assert [("stream_options" in body) for body in server.bodies] == [True, False, False, False]


async def test_the_refused_attempt_is_no_part_of_the_latency() -> None:
    async with (
        FakeEndpoint(refused_fields=frozenset({"stream_options"}), refusal_s=0.2) as server,
        Endpoint(server.url) as endpoint,
    ):
        began_s = time.monotonic()
        record = await endpoint.ask(PROMPT, Traffic(), 0)
        took_ms = (time.monotonic() - began_s) * 1000
    assert record.end_to_end_ms is not None
    assert record.end_to_end_ms <= took_ms - 200


async def test_one_bad_prompt_does_not_cost_the_fields_of_the_others() -> None:
    async with (
        FakeEndpoint([Reply(status=400), Reply(status=400), Reply()], vllm=True) as server,
        Endpoint(server.url) as endpoint,
    ):
        bad = await endpoint.ask(PROMPT, Traffic(), 0)
        good = await endpoint.ask(PROMPT, Traffic(), 1)
        assert not endpoint.extras_refused
    assert bad.error == "HTTP 400: said by the server"
    assert good.token_ids is not None


async def test_a_connection_is_used_again_after_an_answer() -> None:
    async with FakeEndpoint() as server, Endpoint(server.url) as endpoint:
        for n in range(3):
            assert (await endpoint.ask(PROMPT, Traffic(), n)).ok
        assert server.connections == 1


async def test_a_kept_connection_that_the_server_closes_as_it_is_used_costs_no_request() -> None:
    replies = [Reply(), Reply(fault="hang up"), Reply()]
    async with FakeEndpoint(replies) as server, Endpoint(server.url) as endpoint:
        assert (await endpoint.ask(PROMPT, Traffic(), 0)).ok
        record = await endpoint.ask(PROMPT, Traffic(), 1)
        assert record.error is None
        assert record.text == SIX
        assert (len(server.bodies), server.connections) == (3, 2)


async def test_a_new_connection_that_ends_without_an_answer_is_a_failure_and_not_tried_again() -> (
    None
):
    replies = [Reply(), Reply(fault="hang up"), Reply(fault="hang up"), Reply()]
    async with FakeEndpoint(replies) as server, Endpoint(server.url) as endpoint:
        assert (await endpoint.ask(PROMPT, Traffic(), 0)).ok
        record = await endpoint.ask(PROMPT, Traffic(), 1)
        assert record.error == "connection closed without an answer"
        assert (len(server.bodies), server.connections) == (3, 2)


async def test_waiting_for_a_slot_is_part_of_the_latency() -> None:
    async with FakeEndpoint() as server, Endpoint(server.url) as endpoint:
        record = await endpoint.ask(PROMPT, Traffic(), 0, due_s=time.monotonic() - 5)
    assert record.waited_ms is not None
    assert record.ttft_ms is not None
    assert record.waited_ms >= 5000
    assert record.waited_ms < record.ttft_ms < record.waited_ms + 2000


async def test_the_key_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    refusing = Reply(status=401, message="Incorrect API key provided: sk-very-secret")
    async with (
        FakeEndpoint([refusing]) as server,
        Endpoint(server.url, api_key_variable="MY_KEY") as endpoint,
    ):
        record = await endpoint.ask(PROMPT, Traffic(), 0)
        assert server.headers[0]["authorization"] == "Bearer sk-very-secret"
        assert record.error == "HTTP 401: Incorrect API key provided: …"
        assert "sk-very" not in repr(endpoint)


async def test_no_key_is_sent_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-for-another-service")
    async with FakeEndpoint() as server:
        await _ask(server)
    assert "authorization" not in server.headers[0]


@pytest.mark.parametrize("value", ["", "  ", "sk-\nx", "sk-é"])
def test_a_key_that_cannot_be_used_is_refused_without_being_shown(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", value)
    with pytest.raises(ConfigurationError, match="MY_KEY") as raised:
        Endpoint("http://127.0.0.1:1", api_key_variable="MY_KEY")
    assert "sk-" not in str(raised.value)


@pytest.mark.parametrize("url", ["ftp://a", "http://", "http://a:99999", "http://a:b", "", "\x00"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="is not the address of a server"):
        Endpoint(url)


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
async def test_the_address_may_end_in_v1(ending: str) -> None:
    async with FakeEndpoint() as server, Endpoint(server.url + ending) as endpoint:
        assert endpoint.url == server.url
        assert (await endpoint.ask(PROMPT, Traffic(), 0)).ok


async def test_nobody_at_the_address_is_said_on_entering() -> None:
    with pytest.raises(ServerUnreachableError, match="connection refused"):
        async with Endpoint(f"http://127.0.0.1:{free_port()}"):
            pass


async def test_vllm_is_told_from_others_by_who_owns_the_model() -> None:
    async with FakeEndpoint(vllm=True) as server, Endpoint(server.url) as endpoint:
        assert (endpoint.is_vllm, endpoint.version, endpoint.model) == (True, "0.32.0", "fake")
    async with FakeEndpoint() as server, Endpoint(server.url) as endpoint:
        assert (endpoint.is_vllm, endpoint.version) == (False, None)


async def test_the_model_must_be_one_that_vllm_serves() -> None:
    async with FakeEndpoint(vllm=True, models=("target", "adapter")) as server:
        async with Endpoint(server.url) as endpoint:
            assert endpoint.model == "target"
        with pytest.raises(ConfigurationError, match="does not serve 'other'") as raised:
            async with Endpoint(server.url, "other"):
                pass
        assert "target, adapter" in raised.value.fix


async def test_several_models_of_another_server_must_be_chosen_from() -> None:
    async with FakeEndpoint(models=("a", "b")) as server:
        with pytest.raises(ConfigurationError, match="serves 2 models"):
            async with Endpoint(server.url):
                pass
        async with Endpoint(server.url, "unlisted-alias") as endpoint:
            assert endpoint.model == "unlisted-alias"
    async with FakeEndpoint(models=()) as server:
        with pytest.raises(ServerUnreachableError, match="lists no model"):
            async with Endpoint(server.url):
                pass
