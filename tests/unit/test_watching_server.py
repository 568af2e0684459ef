"""Watching a server that someone else started, and a recording."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.plain_http import PlainServer, answer, vllm_answers

from specpanel.core.errors import RecordingError, ServerUnreachableError
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Frame, ScrapeSample, ServerSample, Totals
from specpanel.core.monitor.recording import Recorder, frame_line, line, read_recording
from specpanel.core.session.events import Event, FrameTaken, PathologyFound
from specpanel.core.session.watching import replay_recording, watch_server

METRICS = (Path(__file__).parents[1] / "data" / "metrics_vllm_0_32_ngram.txt").read_bytes()
FRAME = Frame(
    1.7e9,
    0.0,
    0,
    ServerSample("serving", None, "http://h:1", *[None] * 9),
    ScrapeSample("ok", 0.1, 2.0, None),
    *[None] * 6,
)  # fmt: skip
DEADLINE_S = 30.0


class Seen:
    """Collects Frames, and calls ``at`` when there are ``count`` of them."""

    def __init__(self, count: int = 0, at: asyncio.Event | None = None) -> None:
        self.frames: list[Frame] = []
        self._count = count
        self._at = at

    def __call__(self, event: Event) -> None:
        assert isinstance(event, FrameTaken)
        self.frames.append(event.frame)
        if self._at is not None and len(self.frames) == self._count:
            self._at.set()


@pytest.fixture
async def server() -> AsyncIterator[PlainServer]:
    async with PlainServer(vllm_answers(METRICS)) as running:
        yield running


# --- a server ---------------------------------------------------------------------------------------


async def test_frames_of_a_server_are_told_published_and_recorded(
    server: PlainServer, tmp_path: Path
) -> None:
    feed, stop = Feed(), asyncio.Event()
    seen = Seen(2, stop)
    record = tmp_path / "watched.ndjson"
    async with asyncio.timeout(DEADLINE_S):
        await watch_server(f"{server.url}/metrics", feed, seen, stop, record=record)
    assert list(feed) == seen.frames == list(read_recording(record))
    last = seen.frames[-1]
    assert (last.server.state, last.server.url) == ("serving", server.url)
    assert (last.server.version, last.server.model) == ("0.32.0", "smollm2")
    assert (last.server.drafter, last.server.pid, last.traffic) == (None, None, None)
    assert last.totals is not None
    assert last.speculation is not None
    assert last.speculation.lifetime_drafts == 16
    assert last.speculation.lifetime_acceptance_length == 1 + 25 / 16


async def test_a_duration_ends_the_watch(server: PlainServer) -> None:
    began_s = time.monotonic()
    async with asyncio.timeout(DEADLINE_S):
        await watch_server(server.url, Feed(), Seen(), asyncio.Event(), duration_s=0.2)
    assert 0.2 <= time.monotonic() - began_s < DEADLINE_S / 2


async def test_c08_a_server_whose_metrics_break_is_watched_on_with_a_gap(
    server: PlainServer,
) -> None:
    stop = asyncio.Event()
    seen = Seen(2, stop)

    def take(event: Event) -> None:
        server.answers["/metrics"] = answer("500 Internal Server Error")
        seen(event)

    async with asyncio.timeout(DEADLINE_S):
        await watch_server(server.url, Feed(), take, stop)
    first, second = seen.frames
    assert first.scrape.state == "ok"
    assert (second.scrape.state, second.scrape.error) == ("failing", "/metrics answers 500")
    assert second.server.state == "serving"
    assert (second.engine, second.speculation, second.latency) == (None, None, None)


async def test_an_address_where_nothing_answers_leaves_no_recording(tmp_path: Path) -> None:
    record = tmp_path / "x.ndjson"
    with pytest.raises(ServerUnreachableError):
        await watch_server("127.0.0.1:9", Feed(), Seen(), asyncio.Event(), record=record)
    assert not record.exists()


async def test_a_full_disk_ends_the_watch_with_the_reason(server: PlainServer) -> None:
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(RecordingError, match="No space left on device"):
            await watch_server(
                server.url, Feed(), Seen(), asyncio.Event(), record=Path("/dev/full")
            )


# --- a recording ------------------------------------------------------------------------------------


def recorded(path: Path, seconds: list[float]) -> Path:
    recorder = Recorder(path)
    recorder.write(line("note", {"text": "began"}))
    for elapsed_s in seconds:
        recorder.write(frame_line(replace(FRAME, elapsed_s=elapsed_s)))
    recorder.close()
    return path


async def test_a_recording_is_replayed_in_order(tmp_path: Path) -> None:
    path = recorded(tmp_path / "x.ndjson", [0.0, 1.0, 100.0, 50.0])
    feed, seen = Feed(), Seen()
    async with asyncio.timeout(DEADLINE_S):
        await replay_recording(path, feed, seen, asyncio.Event(), speed=0)
    assert [frame.elapsed_s for frame in seen.frames] == [0.0, 1.0, 100.0, 50.0]
    assert list(feed) == seen.frames


async def test_a_replay_keeps_the_pace_and_shortens_long_gaps(tmp_path: Path) -> None:
    path = recorded(tmp_path / "x.ndjson", [0.0, 2.0, 1000.0])  # 2 s and, shortened, 5 s
    began_s = time.monotonic()
    async with asyncio.timeout(DEADLINE_S):
        await replay_recording(path, Feed(), Seen(), asyncio.Event(), speed=20)
    took_s = time.monotonic() - began_s
    assert 7 / 20 <= took_s < 5


async def test_a_replay_stops_within_a_gap(tmp_path: Path) -> None:
    path = recorded(tmp_path / "x.ndjson", [0.0, 5.0, 10.0])
    stop = asyncio.Event()
    seen = Seen(1, stop)
    async with asyncio.timeout(4):
        await replay_recording(path, Feed(), seen, stop)
    assert len(seen.frames) == 1


async def test_a_recording_without_frames_is_told(tmp_path: Path) -> None:
    path = recorded(tmp_path / "x.ndjson", [])
    with pytest.raises(RecordingError, match="holds no frames"):
        await replay_recording(path, Feed(), Seen(), asyncio.Event())


async def test_a_replay_tells_what_its_frames_show_of_the_acceptance(tmp_path: Path) -> None:
    path = tmp_path / "run.ndjson"
    recorder = Recorder(path)
    for second in range(4):
        drafts = second * 100
        counted = Totals(drafts, drafts, 0, (0,), 0, drafts)
        recorder.write(frame_line(replace(FRAME, elapsed_s=float(second), totals=counted)))
    recorder.close()
    events: list[Event] = []
    await replay_recording(path, Feed(), events.append, asyncio.Event(), speed=0)
    [found] = [event for event in events if isinstance(event, PathologyFound)]
    assert found.pathology.code == "nothing-accepted"
    assert isinstance(events[events.index(found) - 1], FrameTaken)
