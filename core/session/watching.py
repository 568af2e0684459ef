"""Frames of a server that someone else started, and Frames of a recording."""

import asyncio
from pathlib import Path

from specpanel.core.engine.client import EngineClient
from specpanel.core.errors import ServerUnreachableError
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Frame
from specpanel.core.monitor.monitor import Monitor, ServerFacts
from specpanel.core.monitor.recording import Recorder, frame_line, read_recording
from specpanel.core.session.bookends import closing_line, writer_line
from specpanel.core.session.events import FrameTaken, Listener
from specpanel.core.session.explaining import Findings
from specpanel.core.web import server_root

_LONGEST_GAP_S = 5.0


async def watch_server(
    url: str,
    feed: Feed,
    listener: Listener,
    stop: asyncio.Event,
    *,
    duration_s: float | None = None,
    record: Path | None = None,
    metrics_urls: tuple[str, ...] = (),
) -> None:
    """Publish Frames of the server at ``url`` until ``stop`` or ``duration_s``, and tell what they show.

    Args:
        metrics_urls: addresses of the engines where ``url`` is a router's, which counts no drafts.

    Raises:
        ServerUnreachableError: nothing answers there, or it is not vLLM. Once it answered, a server that
            goes away is a state in the Frames, not an error.
        RecordingError: the recording cannot be written.
    """
    async with EngineClient(url) as client:
        facts = await found_server(client, metrics_urls)
    recorder = None if record is None else Recorder(record)
    if recorder is not None:
        recorder.write(writer_line())

    findings = Findings(listener)

    def take(frame: Frame) -> None:
        if recorder is not None:
            recorder.write(frame_line(frame))
        listener(FrameTaken(frame))
        findings.take(frame)

    monitor = Monitor(feed, lambda: facts, on_frame=take)
    running = asyncio.create_task(monitor.run())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait(
            {running, stopping}, timeout=duration_s, return_when=asyncio.FIRST_COMPLETED
        )
        if running.done():
            await running
    finally:
        for task in (running, stopping):
            task.cancel()
        await asyncio.gather(running, stopping, return_exceptions=True)
        if recorder is not None:
            _close(recorder, "interrupted" if stop.is_set() else "the watch ended")


async def found_server(client: EngineClient, metrics_urls: tuple[str, ...] = ()) -> ServerFacts:
    """What is known of somebody else's server.

    Raises:
        ServerUnreachableError: nothing answers there, or no address given is vLLM's.
        ConfigurationError: one of ``metrics_urls`` is no address.
    """
    if metrics_urls:
        health = await client.health()
        if not health.alive:
            raise ServerUnreachableError(f"nothing answers at {client.url} ({health.reason})")
        version = None
    else:
        version = await client.require_vllm()
    names = await client.model_names()
    return ServerFacts(
        url=client.url,
        metrics_urls=tuple(map(server_root, metrics_urls)),
        version=version,
        model=names[0] if names else None,
    )


def _close(recorder: Recorder, reason: str) -> None:
    try:
        recorder.write(closing_line(reason))
    finally:
        recorder.close()


async def replay_recording(
    path: Path, feed: Feed, listener: Listener, stop: asyncio.Event, *, speed: float = 1.0
) -> None:
    """Publish the Frames of a recording at ``speed`` times their own pace (0: without waiting).

    What the Frames show of the acceptance is told anew, so a replay tells what watching told.
    Gaps longer than 5 s of the recording's time are shortened to that.

    Raises:
        RecordingError: the file is no recording, or holds no Frame.
    """
    before_s: float | None = None
    findings = Findings(listener)
    for frame in read_recording(path):
        if stop.is_set():
            return
        if speed > 0 and before_s is not None:
            gap_s = min(_LONGEST_GAP_S, max(0.0, frame.elapsed_s - before_s))
            try:
                async with asyncio.timeout(gap_s / speed):
                    await stop.wait()
                return
            except TimeoutError:
                pass
        before_s = frame.elapsed_s
        feed.publish(frame)
        listener(FrameTaken(frame))
        findings.take(frame)
    if before_s is None:
        from specpanel.core.session.endings import without_frames

        raise without_frames(path)
