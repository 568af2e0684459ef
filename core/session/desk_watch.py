"""What makes a desk's Frames: of one server at a time, recorded, with what is wrong with them told."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from specpanel.core.devices.watch import DeviceWatch
from specpanel.core.errors import NotRunningError
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Frame, TrafficSample
from specpanel.core.monitor.monitor import Monitor
from specpanel.core.session.desk_recording import DeskRecording
from specpanel.core.session.events import Event, FrameTaken, Listener, Note
from specpanel.core.session.explaining import Findings
from specpanel.core.session.served import Served, explain_when_ready


class DeskWatch:
    """Watches one server after another into one feed; epochs and times go on from each to the next.

    Args:
        tell: told every Frame, finding and note.
        traffic: how far the desk's own requests are.
        recordings: folder for recordings; None records nothing.
    """

    def __init__(
        self,
        feed: Feed,
        tell: Listener,
        traffic: Callable[[], TrafficSample | None],
        recordings: Path | None,
    ) -> None:
        self._feed = feed
        self._tell = tell
        self._traffic = traffic
        self._recording = DeskRecording(recordings)
        self._began_s = time.monotonic()
        self._epochs = 0
        self._findings = Findings(tell)
        self._monitor: Monitor | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, served: Served) -> None:
        """Watch ``served`` from now on."""
        problem = self._recording.open(served)
        if problem is not None:
            self._tell(Note(problem))
        self._findings = Findings(self._tell)
        self._monitor = Monitor(
            self._feed,
            lambda: served.facts,
            traffic=self._traffic,
            processes=served.pids,
            on_frame=self._frame,
            began_s=self._began_s,
            first_epoch=self._epochs,
        )
        self._task = asyncio.create_task(self._follow(served, self._monitor))

    async def end(
        self, reason: str = "the panel went on to another server", *, stopped: bool = False
    ) -> None:
        """End it; its recording ends with ``reason``. Without a watch nothing happens."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._recording.close(reason, stopped=stopped)

    def record(self, event: Event) -> str | None:
        """Write an event into the recording; the reason where the recording ends with it."""
        return self._recording.write(event)

    def look_again(self) -> None:
        """Make a Frame at once, where a server is watched."""
        if self._monitor is not None and self._task is not None:
            self._monitor.publish()

    @property
    def recordings(self) -> Path | None:
        return self._recording.folder

    @property
    def devices(self) -> DeviceWatch | None:
        """What reads this machine's devices; None while nothing was watched yet."""
        return None if self._monitor is None else self._monitor.devices

    def require(self) -> Monitor:
        """What makes the Frames.

        Raises:
            NotRunningError: no server is watched.
        """
        if self._monitor is None or self._task is None:
            raise NotRunningError("there is nothing to mark: no server is watched")
        return self._monitor

    async def _follow(self, served: Served, monitor: Monitor) -> None:
        beside = (
            asyncio.create_task(monitor.run()),
            asyncio.create_task(explain_when_ready(served, self._tell)),
        )
        try:
            await served.keep_looking()
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    def _frame(self, frame: Frame) -> None:
        self._epochs = frame.epoch + 1
        self._tell(FrameTaken(frame))
        self._findings.take(frame)
