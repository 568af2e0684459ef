"""Once a second: scrape, look at the host, and publish one Frame.

A slow or hanging scrape never delays a Frame: at most one is on its way, and Frames go on with the age
of the newest good one.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from specpanel.core.devices.host import HostReader
from specpanel.core.devices.records import DeviceSample
from specpanel.core.devices.serving import ServerDevices
from specpanel.core.devices.watch import DeviceWatch
from specpanel.core.engine.client import Health
from specpanel.core.engine.metrics import EngineCounters
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import (
    Frame,
    ScrapeSample,
    ScrapeState,
    ServerSample,
    ServerState,
    TrafficSample,
)
from specpanel.core.monitor.scraping import Scraper
from specpanel.core.monitor.window import Window

PERIOD_S = 1.0
_HEALTH_EVERY_S = 2.0
_PROCESSES_EVERY_S = 5.0
# An answer that takes longer has failed for the figures shown, though it is still waited for.
_OVERDUE_S = 3.0
# After a scrape that failed: a rest of so many times what it took, at most so long.
_REST_TIMES = 8.0
_LONGEST_REST_S = 10.0


@dataclass(slots=True)
class ServerFacts:
    """What the one who started (or found) the server knows of it; the monitor reads it each second.

    ``ended`` is set once ``exit_code`` is known.
    """

    url: str
    metrics_urls: tuple[str, ...] = ()  # where its engines expose theirs; empty: at ``url``
    name: str | None = None
    model: str | None = None
    drafter: str | None = None
    draft_tokens: int | None = None
    version: str | None = None
    pid: int | None = None
    started_unix: float | None = None
    starting: bool = False
    phase: str | None = None
    phase_s: float | None = None
    exit_code: int | None = None
    stopped: bool = False
    detail: str | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Monitor:
    """Makes Frames of one server until its ``run`` is cancelled.

    Args:
        facts: called once a Frame.
        traffic: what our own load is doing, None where there is none.
        processes: pids of the server's processes on this machine; asked every few seconds.
        on_frame: told each Frame after it was published.
        first_epoch: number of the first epoch, where Frames of another server came before in the feed.
        devices: reads this machine's devices while ``run`` runs; a reader of its own where absent.
    """

    def __init__(
        self,
        feed: Feed,
        facts: Callable[[], ServerFacts],
        *,
        traffic: Callable[[], TrafficSample | None] = lambda: None,
        processes: Callable[[], Sequence[int]] = tuple,
        on_frame: Callable[[Frame], None] = lambda _: None,
        window: Window | None = None,
        began_s: float | None = None,
        first_epoch: int = 0,
        devices: DeviceWatch | None = None,
    ) -> None:
        self._feed = feed
        self._first_epoch = first_epoch
        self._facts = facts
        self._traffic = traffic
        self._processes = processes
        self._on_frame = on_frame
        self._window = window or Window()
        self._host = HostReader()
        self.devices = devices or DeviceWatch()
        self._server_devices = ServerDevices()
        self._began_s = time.monotonic() if began_s is None else began_s
        self._health: Health | None = None
        self._health_asked_s = -1e9
        self._pids: Sequence[int] = ()
        self._pids_asked_s = -1e9
        self._scraping: asyncio.Task[None] | None = None
        self._asked_s = 0.0
        self._rest_until_s = 0.0
        self._scraped_s: float | None = None
        self._scrape_ms: float | None = None
        self._scrape_error: str | None = None
        self._scrape_warning: str | None = None  # of several addresses one could not be read
        self._mark: str | None = None
        self._server_sample: ServerSample | None = None
        self.counters: EngineCounters | None = None

    def mark(self, text: str) -> None:
        """Put a mark on the next Frame, beside one that is there already."""
        self._mark = text if self._mark is None else f"{self._mark}, {text}"

    async def run(self) -> None:
        """Publish a Frame a second, on a grid that does not drift."""
        reading = asyncio.create_task(self.devices.run())
        facts = self._facts()
        async with Scraper(facts.url, facts.metrics_urls) as client:
            due_s = time.monotonic()
            try:
                while True:
                    self._poll(client)
                    await asyncio.sleep(max(0.0, min(PERIOD_S, due_s + 0.3 - time.monotonic())))
                    self.publish()
                    due_s += PERIOD_S
                    due_s = max(due_s, time.monotonic() - PERIOD_S)
                    await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            finally:
                others = [reading] if self._scraping is None else [reading, self._scraping]
                for task in others:
                    task.cancel()
                await asyncio.gather(*others, return_exceptions=True)

    async def scrape_now(self) -> EngineCounters | None:
        """Fresh counters outside the rhythm, for the ends of a measurement; None where they fail."""
        facts = self._facts()
        async with Scraper(facts.url, facts.metrics_urls) as client:
            try:
                return (await asyncio.wait_for(client.scrape(), _OVERDUE_S)).counters
            except TimeoutError:
                return None

    def _poll(self, client: Scraper) -> None:
        facts = self._facts()
        if facts.starting or facts.exit_code is not None or facts.stopped:
            self._health = None
            return
        if self._scraping is None or self._scraping.done():
            if time.monotonic() < self._rest_until_s:
                return
            self._asked_s = time.monotonic()
            self._scraping = asyncio.create_task(self._scrape(client))

    async def _scrape(self, client: Scraper) -> None:
        now = time.monotonic()
        if now - self._health_asked_s >= _HEALTH_EVERY_S:
            self._health_asked_s = now
            self._health = await client.health()
        found = await client.scrape()
        self._scrape_ms = found.took_ms
        if found.counters is None:
            self._failed(found.error or "no answer")
            return
        self.counters = found.counters
        self._scraped_s = time.monotonic()
        self._scrape_error, self._scrape_warning = None, found.error
        self._window.add(self._scraped_s, found.counters)

    def _failed(self, reason: str) -> None:
        self._scrape_error = reason
        # What fails only after much work, an endless body for instance, is not tried every second.
        work_s = (self._scrape_ms or 0.0) / 1000
        self._rest_until_s = time.monotonic() + min(_LONGEST_REST_S, _REST_TIMES * work_s)
        self._window.gap(time.monotonic())

    def publish(self) -> None:
        """Make and publish a Frame now; ``run`` does so once a second."""
        now = time.monotonic()
        if now - self._pids_asked_s >= _PROCESSES_EVERY_S:
            self._pids_asked_s = now
            self._pids = self._processes()
        facts = self._facts()
        scrape = self._scrape_sample(now)
        fresh = scrape.state == "ok"
        live = fresh and facts.exit_code is None and not facts.stopped
        window = self._window
        frame = Frame(
            time_unix=time.time(),
            elapsed_s=now - self._began_s,
            epoch=self._first_epoch + window.epoch,
            server=self._server(facts),
            scrape=scrape,
            engine=window.engine() if live else None,
            speculation=window.speculation() if live else None,
            latency=window.latency() if live else None,
            totals=window.totals() if self._scraped_s is not None else None,
            host=self._host.read(self._pids),
            traffic=self._traffic(),
            mark=self._mark,
            devices=self._device_sample(facts),
        )
        self._mark = None
        self._feed.publish(frame)
        self._on_frame(frame)

    def _device_sample(self, facts: ServerFacts) -> DeviceSample:
        sample = self.devices.sample()
        if facts.exit_code is not None or facts.stopped:
            return sample
        uuids = self._server_devices.uuids(sample, facts.pid, self._pids)
        return sample if uuids is None else replace(sample, server_uuids=uuids)

    def _server(self, facts: ServerFacts) -> ServerSample:
        state, detail = self._state(facts)
        names = self.counters.models if self.counters else ()
        sample = ServerSample(
            state=state,
            name=facts.name,
            url=facts.url,
            model=facts.model or (names[0] if names else None),
            drafter=facts.drafter,
            draft_tokens=facts.draft_tokens,
            phase=facts.phase if facts.starting else None,
            phase_s=facts.phase_s if facts.starting else None,
            pid=facts.pid,
            exit_code=facts.exit_code,
            version=facts.version,
            detail=detail,
            up_s=None if facts.started_unix is None else max(0.0, time.time() - facts.started_unix),
        )
        if sample != self._server_sample:
            self._server_sample = sample
        return self._server_sample or sample

    def _state(self, facts: ServerFacts) -> tuple[ServerState, str | None]:
        if facts.stopped:
            return "stopped", facts.detail
        if facts.exit_code is not None:
            return "exited", facts.detail
        if facts.starting:
            return "starting", facts.detail
        if self._health is None:
            return ("serving", None) if self._scraped_s is not None else ("starting", None)
        if self._health.well:
            return "serving", None
        return ("degraded" if self._health.alive else "unreachable"), self._health.reason

    def _scrape_sample(self, now: float) -> ScrapeSample:
        state: ScrapeState = "ok"
        error = self._scrape_error
        silent_s = now - self._asked_s
        if self._scraping is not None and not self._scraping.done() and silent_s >= _OVERDUE_S:
            error = f"no answer for {silent_s:.0f} s"
        if error is not None:
            state = "failing"
        elif self._scraped_s is None:
            state = "not yet"
        age = None if self._scraped_s is None else now - self._scraped_s
        return ScrapeSample(state, age, self._scrape_ms, error or self._scrape_warning)
