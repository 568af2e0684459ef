"""Load: requests sent at a chosen concurrency or rate, and what became of them.

Closed loop: ``concurrency`` requests are in flight at all times. Open loop (``rate_per_s``): requests
are due at moments of a Poisson process that the seed fixes before the first is sent, whatever the server
does; ``concurrency`` caps how many are in flight. One that waits for a free slot is neither moved nor
dropped: its wait is part of its latency and is told apart as ``waited_ms``, so a server that falls
behind cannot hide it (coordinated omission).
"""

import asyncio
import itertools
import random
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from specpanel.core.errors import ConfigurationError, TrafficError
from specpanel.core.monitor.frame import TrafficSample
from specpanel.core.settings.profile import Traffic
from specpanel.core.together import together
from specpanel.core.traffic.capture import Capture
from specpanel.core.traffic.endpoint import Endpoint
from specpanel.core.traffic.records import Prompt, RequestRecord

EndedBy = Literal["requests", "duration", "stop", "failures"]

FAILED_SHARE_LIMIT = 0.5
FEWEST_TO_JUDGE = 4
RECENT_REQUESTS = 20


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a load did, warm-up left out of all but ``warmups``.

    ``records`` are in the order in which requests ended. ``failures`` counts them by name. ``elapsed_s``
    runs from the first measured request to the end. ``unsent`` (open loop) were due within the duration
    and found no free slot in it: above 0 the server did not keep up with the rate.
    """

    records: tuple[RequestRecord, ...]
    warmups: tuple[RequestRecord, ...]
    failures: Mapping[str, int]
    elapsed_s: float
    ended_by: EndedBy
    unsent: int = 0


@dataclass(frozen=True, slots=True)
class _Job:
    index: int
    prompt: Prompt
    due_s: float | None = None  # of time.monotonic(); None: as soon as there is a slot


class Load:
    """One load against an entered endpoint: ``run`` it once; ``progress`` can be read meanwhile.

    Warm-up requests come first and end before the measured ones begin. They take the last prompts, which
    are not measured where there are more prompts than ``requests``. The load ends with ``requests`` sent,
    after ``duration_s`` (both: no new requests, those in flight end), or by ``stop`` (those in flight are
    cancelled and count neither as finished nor as failed).

    Args:
        prompts: in the order in which they are sent, over and over.
        on_record: called with every record, warm-ups included, as soon as it is there.
        before_measuring: awaited between the last warm-up and the first measured request; its time is in
            neither.

    Raises:
        ConfigurationError: there are no prompts.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        prompts: Sequence[Prompt],
        settings: Traffic,
        *,
        on_record: Callable[[RequestRecord], None],
        stop: asyncio.Event,
        before_measuring: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        if not prompts:
            raise ConfigurationError(
                "there are no prompts to send", "Name a class or a file that has."
            )
        self._endpoint = endpoint
        self._prompts = tuple(prompts)
        self._settings = settings
        self._on_record = on_record
        self._stop = stop
        self._before_measuring = before_measuring
        self._capture: Capture | None = None
        self._too_many_failed = asyncio.Event()
        self._records: list[RequestRecord] = []
        self._warmups: list[RequestRecord] = []
        self._failures: Counter[str] = Counter()
        # Oldest first; enough that one hiccup of all slots at once does not end a long load.
        self._recent: deque[bool] = deque(maxlen=max(RECENT_REQUESTS, 4 * settings.concurrency))
        self._ended_of_all = 0  # warm-ups included
        self._failed_of_all = 0
        self._sent = 0
        self._warmups_sent = 0
        self._unsent = 0
        self._began_s = time.monotonic()
        self._measuring_s: float | None = None
        self._ended_s: float | None = None
        self._ended_by: EndedBy = "requests"

    @property
    def warming_up(self) -> bool:
        return self._measuring_s is None

    @property
    def progress(self) -> TrafficSample:
        """The measured requests so far; ``finished`` are those that ended well."""
        failed = self._failures.total()
        ended = len(self._records)
        return TrafficSample(
            sent=self._sent,
            finished=ended - failed,
            failed=failed,
            in_flight=self._in_flight,
            planned=self._settings.requests,
            warmups_done=len(self._warmups),
            warmups_planned=self._settings.warmup,
        )

    @property
    def _in_flight(self) -> int:
        if self._ended_s is not None:
            return 0
        return self._sent + self._warmups_sent - len(self._records) - len(self._warmups)

    @property
    def result(self) -> LoadResult:
        """What has been done so far; the whole once ``run`` has ended, also when it raised."""
        until_s = time.monotonic() if self._ended_s is None else self._ended_s
        return LoadResult(
            records=tuple(self._records),
            warmups=tuple(self._warmups),
            failures=dict(self._failures),
            elapsed_s=0.0 if self._measuring_s is None else until_s - self._measuring_s,
            ended_by=self._ended_by,
            unsent=self._unsent,
        )

    async def run(self) -> LoadResult:
        """Send the load.

        Raises:
            TrafficError: more than half of the requests failed: of all, once as many as there are slots
                (four at least) have ended, or of the last 20 (with more than five slots, of the last four
                times the slots). ``result`` has what was measured.
            RecordingError: ``traffic.capture`` names a file that cannot be written.
        """
        self._began_s = time.monotonic()
        if self._settings.capture is not None:
            limit_bytes = int(self._settings.capture_mib * (1 << 20))
            self._capture = Capture(self._settings.capture, limit_bytes)
        sending = asyncio.create_task(self._send())
        ends = [asyncio.create_task(event.wait()) for event in (self._stop, self._too_many_failed)]
        tasks = (sending, *ends)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._ended_s = time.monotonic()
            if self._capture is not None:
                self._capture.close()
        if not sending.cancelled():
            sending.result()  # raises what on_record raised
        stopped = sending.cancelled() or self._stop.is_set()
        if self._too_many_failed.is_set() or (not stopped and self._mostly_failed):
            self._ended_by = "failures"
            raise self._failure()
        if self._sent == self._settings.requests and not sending.cancelled():
            self._ended_by = "requests"
        else:
            self._ended_by = "stop" if stopped else "duration"
        return self.result

    @property
    def _mostly_failed(self) -> bool:
        return self._failed_of_all > FAILED_SHARE_LIMIT * self._ended_of_all

    async def _send(self) -> None:
        if self._stop.is_set():
            await asyncio.Event().wait()  # until cancelled
        await self._share_out(self._warmup_jobs(), self._settings.warmup, warmup=True)
        if self._before_measuring is not None:
            await self._before_measuring()
        began_s = self._measuring_s = time.monotonic()
        duration_s = self._settings.duration_s
        deadline_s = None if duration_s is None else began_s + duration_s
        await self._share_out(
            self._measured_jobs(began_s, deadline_s), self._settings.requests, deadline_s=deadline_s
        )

    def _warmup_jobs(self) -> Iterator[_Job]:
        backwards = itertools.cycle(reversed(self._prompts))
        for index, prompt in enumerate(itertools.islice(backwards, self._settings.warmup)):
            yield _Job(index, prompt)

    def _measured_jobs(self, began_s: float, deadline_s: float | None) -> Iterator[_Job]:
        arrivals, due_s = random.Random(self._settings.seed), began_s
        planned = itertools.islice(itertools.cycle(self._prompts), self._settings.requests)
        for index, prompt in enumerate(planned):
            if self._settings.rate_per_s is None:
                yield _Job(index, prompt)
                continue
            due_s += arrivals.expovariate(self._settings.rate_per_s)
            if deadline_s is not None and due_s >= deadline_s:
                return
            yield _Job(index, prompt, due_s)

    async def _share_out(
        self,
        jobs: Iterator[_Job],
        planned: int | None,
        *,
        warmup: bool = False,
        deadline_s: float | None = None,
    ) -> None:
        """Do all jobs, ``concurrency`` at a time. Each slot takes the next job when it is free."""
        slots = self._settings.concurrency
        count = slots if planned is None else min(slots, planned)
        await together(self._work(jobs, deadline_s, warmup=warmup) for _ in range(count))

    async def _work(self, jobs: Iterator[_Job], deadline_s: float | None, *, warmup: bool) -> None:
        for job in jobs:
            if self._stop.is_set() or self._too_many_failed.is_set():
                return
            if job.due_s is not None:
                await asyncio.sleep(max(0.0, job.due_s - time.monotonic()))
            if deadline_s is not None and time.monotonic() >= deadline_s:
                if job.due_s is None:
                    return
                self._unsent += 1
                continue
            self._sent += not warmup
            self._warmups_sent += warmup
            record = await self._endpoint.ask(
                job.prompt,
                self._settings,
                job.index,
                began_s=self._began_s,
                due_s=job.due_s,
                warmup=warmup,
            )
            self._take(record)
            if self._capture is not None:
                self._capture.take(job.prompt, record)

    def _take(self, record: RequestRecord) -> None:
        if record.warmup:
            self._warmups.append(record)
        else:
            self._records.append(record)
            if record.error is not None:
                self._failures[record.error] += 1
        self._ended_of_all += 1
        self._failed_of_all += not record.ok
        self._recent.append(record.ok)
        self._on_record(record)
        judged = self._ended_of_all >= max(FEWEST_TO_JUDGE, self._settings.concurrency)
        if judged and (
            self._mostly_failed
            or (
                len(self._recent) == self._recent.maxlen
                and self._recent.count(False) > FAILED_SHARE_LIMIT * len(self._recent)
            )
        ):
            self._too_many_failed.set()

    def _failure(self) -> TrafficError:
        named = Counter(record.error for record in (*self._warmups, *self._records) if record.error)
        often = "; ".join(f"{count} x {reason}" for reason, count in named.most_common(3))
        return TrafficError(
            f"{self._failed_of_all} of {self._ended_of_all} requests failed ({often})",
            "Look at the server's log.",
        )
