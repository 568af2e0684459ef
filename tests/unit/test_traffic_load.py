"""Load: how many requests are in flight and when, what is counted, and how it ends."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest
from fakes.openai_endpoint import FakeEndpoint, Reply

from specpanel.core.errors import ConfigurationError, TrafficError
from specpanel.core.monitor.frame import TrafficSample
from specpanel.core.settings.profile import Traffic
from specpanel.core.traffic.endpoint import Endpoint
from specpanel.core.traffic.load import Load, LoadResult
from specpanel.core.traffic.records import Prompt, RequestRecord

PROMPTS = tuple(Prompt(f"p{n}", "chat", f"prompt {n}") for n in range(5))


async def _run(
    server: FakeEndpoint,
    settings: Traffic,
    prompts: Sequence[Prompt] = PROMPTS,
    seen: list[RequestRecord] | None = None,
) -> LoadResult:
    on_record = (lambda record: None) if seen is None else seen.append
    async with Endpoint(server.url) as endpoint:
        load = Load(endpoint, prompts, settings, on_record=on_record, stop=asyncio.Event())
        return await load.run()


def _asked(server: FakeEndpoint) -> list[str]:
    return [body["messages"][-1]["content"].removeprefix("prompt ") for body in server.bodies]


async def test_requests_cycle_through_the_prompts_and_end_after_their_number() -> None:
    async with FakeEndpoint() as server:
        result = await _run(server, Traffic(requests=7, warmup=0))
    assert _asked(server) == ["0", "1", "2", "3", "4", "0", "1"]
    assert [record.index for record in result.records] == list(range(7))
    assert result.ended_by == "requests"
    assert result.failures == {}
    assert result.elapsed_s > 0


async def test_warm_up_comes_first_with_prompts_that_are_not_measured() -> None:
    seen: list[RequestRecord] = []
    async with FakeEndpoint() as server:
        result = await _run(server, Traffic(requests=3, warmup=2, concurrency=4), seen=seen)
    assert sorted(_asked(server)[:2]) == ["3", "4"]
    assert sorted(_asked(server)[2:]) == ["0", "1", "2"]
    assert [record.warmup for record in seen] == [True, True, False, False, False]
    assert (len(result.warmups), len(result.records)) == (2, 3)


async def test_the_closed_loop_keeps_its_concurrency_and_no_more() -> None:
    async with FakeEndpoint([Reply(hold=True)]) as server:
        running = asyncio.create_task(_run(server, Traffic(requests=9, warmup=0, concurrency=3)))
        await server.until(lambda: server.open_now == 3)
        server.release.set()
        result = await running
    assert server.open_most == 3
    assert len(result.records) == 9


async def test_progress_can_be_read_while_the_load_runs() -> None:
    replies = [Reply(), Reply(status=500), Reply(), Reply(hold=True)]
    async with FakeEndpoint(replies) as server, Endpoint(server.url) as endpoint:
        load = Load(
            endpoint,
            PROMPTS,
            Traffic(requests=4, warmup=0),
            on_record=lambda record: None,
            stop=asyncio.Event(),
        )
        assert load.progress.sent == 0
        running = asyncio.create_task(load.run())
        await server.until(lambda: len(server.bodies) == 4)
        now = load.progress
        assert (now.sent, now.finished, now.failed, now.in_flight, now.planned) == (4, 2, 1, 1, 4)
        server.release.set()
        await running
        assert (load.progress.finished, load.progress.in_flight) == (3, 0)


async def test_stop_cancels_what_is_in_flight_and_counts_it_as_nothing() -> None:
    stop = asyncio.Event()
    before = asyncio.all_tasks()
    async with FakeEndpoint([Reply(), Reply(hold=True)]) as server:
        async with Endpoint(server.url) as endpoint:
            load = Load(
                endpoint,
                PROMPTS,
                Traffic(warmup=0, concurrency=2),
                on_record=lambda record: None,
                stop=stop,
            )
            running = asyncio.create_task(load.run())
            await server.until(lambda: server.open_now == 2)
            stop.set()
            result = await running
            assert result.ended_by == "stop"
            assert result.failures == {}
            assert all(record.ok for record in result.records)
            assert load.progress.in_flight == 0
        await server.until(lambda: server.open_now == 0)
        assert server.hung_up == 2
    assert asyncio.all_tasks() == before


async def test_a_load_that_is_stopped_before_it_begins_sends_nothing() -> None:
    stop = asyncio.Event()
    stop.set()
    async with FakeEndpoint() as server, Endpoint(server.url) as endpoint:
        load = Load(endpoint, PROMPTS, Traffic(), on_record=lambda record: None, stop=stop)
        result = await load.run()
    assert (result.ended_by, result.records, server.bodies) == ("stop", (), [])


async def test_cancelling_the_run_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()
    async with FakeEndpoint([Reply(hold=True)]) as server:
        running = asyncio.create_task(_run(server, Traffic(concurrency=3, warmup=0)))
        await server.until(lambda: server.open_now == 3)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await server.until(lambda: server.open_now == 0)
    assert asyncio.all_tasks() == before


async def test_the_duration_ends_new_requests_and_lets_the_last_ones_finish() -> None:
    async with FakeEndpoint([Reply(gap_s=0.02)]) as server:
        result = await _run(server, Traffic(duration_s=0.3, warmup=0, concurrency=2))
    assert result.ended_by == "duration"
    assert result.failures == {}
    assert len(result.records) == len(server.bodies) >= 2
    assert server.hung_up == 0
    assert result.elapsed_s >= 0.3
    assert all(record.started_s < 0.3 + 0.2 for record in result.records)


async def test_the_open_loop_sends_at_random_moments_that_the_seed_fixes() -> None:
    settings = Traffic(requests=30, rate_per_s=100, concurrency=3, warmup=0, seed=3)
    runs = []
    for gap_s in (0.0, 0.01):  # the server's speed changes nothing
        async with FakeEndpoint([Reply(tokens=("a",), gap_s=gap_s)]) as server:
            result = await _run(server, settings)
        due_s = sorted(r.started_s - (r.waited_ms or 0.0) / 1000 for r in result.records)
        runs.append([due - due_s[0] for due in due_s])
    assert runs[0] == pytest.approx(runs[1], abs=1e-6)
    gaps = [later - sooner for sooner, later in pairwise(runs[0])]
    assert sum(gaps) / len(gaps) == pytest.approx(1 / 100, rel=0.5)
    assert max(gaps) > 2 * sum(gaps) / len(gaps) > 4 * min(gaps)  # not evenly spaced


async def test_in_the_open_loop_a_slow_server_shows_in_the_latency() -> None:
    reply = Reply(tokens=("a",), gap_s=0.05)
    settings = Traffic(requests=8, rate_per_s=1000, concurrency=1, warmup=0)
    async with FakeEndpoint([reply]) as server:
        result = await _run(server, settings)
    assert server.open_most == 1
    waits = [record.waited_ms or 0.0 for record in result.records]
    assert waits == sorted(waits)
    assert waits[-1] > 6 * 50
    last = result.records[-1]
    assert last.ttft_ms is not None
    assert last.ttft_ms >= waits[-1] + 50


async def test_what_was_due_and_found_no_slot_in_time_is_counted() -> None:
    reply = Reply(tokens=("a",), gap_s=0.1)
    settings = Traffic(duration_s=0.25, rate_per_s=200, concurrency=1, warmup=0)
    async with FakeEndpoint([reply]) as server:
        result = await _run(server, settings)
    assert result.ended_by == "duration"
    assert result.unsent > 10
    assert len(result.records) == len(server.bodies) <= 4


async def test_failures_are_counted_by_name_and_the_load_goes_on() -> None:
    bad = Reply(status=503, message="busy")
    replies = [Reply(), bad, Reply(), Reply(fault="cut"), Reply(), bad, Reply()]
    async with FakeEndpoint(replies) as server:
        result = await _run(server, Traffic(requests=10, warmup=0))
    assert result.failures == {"HTTP 503: busy": 2, "stream ended early": 1}
    assert len(result.records) == 10
    assert result.ended_by == "requests"


async def test_a_server_that_only_fails_ends_the_load_at_once() -> None:
    async with FakeEndpoint([Reply(status=500, message="broken")]) as server:
        with pytest.raises(TrafficError, match=r"4 of 4 requests failed \(4 x HTTP 500: broken\)"):
            await _run(server, Traffic(requests=1000, warmup=2))
    assert len(server.bodies) == 4


async def test_a_server_that_dies_late_ends_the_load_soon_after() -> None:
    seen: list[RequestRecord] = []
    async with FakeEndpoint([*[Reply()] * 60, Reply(status=500)]) as server:
        with pytest.raises(TrafficError, match="11 of 71 requests failed"):
            await _run(server, Traffic(requests=1000, warmup=0), seen=seen)
    assert len(seen) == 71


async def test_quick_refusals_do_not_end_a_load_whose_other_requests_still_run() -> None:
    replies = [*[Reply(hold=True)] * 8, *[Reply(status=429)] * 4, Reply()]
    settings = Traffic(requests=24, warmup=0, concurrency=12)
    async with FakeEndpoint(replies) as server:
        running = asyncio.create_task(_run(server, settings))
        await server.until(lambda: len(server.bodies) == 24 and server.open_now == 8)
        server.release.set()
        result = await running
    assert result.failures == {"HTTP 429: said by the server": 4}


async def test_fewer_than_four_requests_that_mostly_fail_are_no_measurement_either() -> None:
    async with FakeEndpoint([Reply(), Reply(status=500)]) as server:
        with pytest.raises(TrafficError, match="2 of 3 requests failed"):
            await _run(server, Traffic(requests=3, warmup=0))


async def test_what_was_measured_before_the_failure_is_kept() -> None:
    async with (
        FakeEndpoint([Reply(), Reply(), Reply(status=500)]) as server,
        Endpoint(server.url) as endpoint,
    ):
        load = Load(
            endpoint,
            PROMPTS,
            Traffic(requests=50, warmup=0),
            on_record=lambda record: None,
            stop=asyncio.Event(),
        )
        with pytest.raises(TrafficError):
            await load.run()
    assert load.result.ended_by == "failures"
    assert [record.ok for record in load.result.records] == [True, True, False, False, False]


async def test_an_error_of_the_listener_ends_the_load_as_itself() -> None:
    def on_record(record: RequestRecord) -> None:
        raise OSError("disk full")

    async with FakeEndpoint() as server, Endpoint(server.url) as endpoint:
        settings = Traffic(concurrency=3)
        load = Load(endpoint, PROMPTS, settings, on_record=on_record, stop=asyncio.Event())
        with pytest.raises(OSError, match="disk full"):
            await load.run()


async def test_before_measuring_comes_after_the_last_warm_up() -> None:
    seen: list[str] = []

    async def look() -> None:
        seen.append("look")

    def on_record(record: RequestRecord) -> None:
        seen.append("warm-up" if record.warmup else "measured")

    async with FakeEndpoint() as server, Endpoint(server.url) as endpoint:
        load = Load(
            endpoint,
            PROMPTS,
            Traffic(requests=2, warmup=2),
            on_record=on_record,
            stop=asyncio.Event(),
            before_measuring=look,
        )
        await load.run()
    assert seen == ["warm-up", "warm-up", "look", "measured", "measured"]


async def test_a_load_without_prompts_is_refused() -> None:
    async with FakeEndpoint() as server:
        with pytest.raises(ConfigurationError, match="no prompts to send"):
            await _run(server, Traffic(), prompts=())


async def test_warm_ups_are_counted_by_themselves_while_they_last() -> None:
    seen: list[TrafficSample] = []
    async with FakeEndpoint() as server, Endpoint(server.url) as endpoint:
        load = Load(
            endpoint,
            PROMPTS,
            Traffic(requests=1, concurrency=1, warmup=2),
            on_record=lambda _: seen.append(load.progress),
            stop=asyncio.Event(),
        )
        await load.run()
    assert [(one.warmups_done, one.warming_up, one.finished) for one in seen] == [
        (1, True, 0),
        (2, False, 0),
        (2, False, 1),
    ]
