"""A seeded generator of Frames for tests of the screen. No figure here was measured."""

import math
import random
from collections.abc import Iterator
from dataclasses import replace

from specpanel.core.monitor.frame import (
    EngineSample,
    Frame,
    HostSample,
    Interval,
    LatencySample,
    PositionRate,
    Quantile,
    Quantiles,
    ScrapeSample,
    ServerSample,
    SpeculationSample,
    Totals,
    TrafficSample,
)

START_UNIX = 1_700_000_000.0

SERVING = ServerSample(
    state="serving",
    name="synthetic",
    url="http://127.0.0.1:8250",
    model="synthetic/model",
    drafter="ngram",
    draft_tokens=4,
    phase=None,
    phase_s=None,
    pid=4242,
    exit_code=None,
    version="0.0.0",
    detail=None,
)


TTFT_BUCKETS = ((80.0, 100.0, 4), (100.0, 250.0, 24), (250.0, 500.0, 2), (500.0, 750.0, 1))
TPOT_BUCKETS = ((10.0, 25.0, 30), (25.0, 50.0, 1))


def synthetic_frames(
    count: int,
    *,
    seed: int = 7,
    start_s: int = 0,
    epoch_at: int | None = None,
    idle: range | None = None,
    mark_at: int | None = None,
) -> Iterator[Frame]:
    """One Frame a second: a server with four draft positions under wavy load.

    The server restarts its counters at ``epoch_at``; nothing is drafted in the seconds of ``idle``.
    """
    dice = random.Random(seed)
    for second in range(start_s, start_s + count):
        quiet = idle is not None and second in idle
        mark = "more traffic" if second == mark_at else None
        yield synthetic_frame(
            second,
            dice,
            epoch=int(epoch_at is not None and second >= epoch_at),
            quiet=quiet,
            mark=mark,
        )


def synthetic_frame(
    second: int,
    dice: random.Random,
    *,
    epoch: int = 0,
    quiet: bool = False,
    mark: str | None = None,
) -> Frame:
    wave = math.sin(second / 45)
    rate = min(0.95, max(0.1, 0.62 + 0.12 * wave + dice.gauss(0, 0.015)))
    positions = tuple(_position(number, rate**number) for number in range(1, 5))
    length = 1 + sum(position.rate.estimate for position in positions)
    tpot, ttft = 14 - 2 * wave + dice.gauss(0, 0.4), 120 + 30 * wave + dice.gauss(0, 8)
    spike = 4.0 if second % 97 < 3 else 1.0
    return Frame(
        time_unix=START_UNIX + second,
        elapsed_s=float(second),
        epoch=epoch,
        server=SERVING,
        scrape=ScrapeSample(state="ok", age_s=0.1, took_ms=4.0, error=None),
        engine=EngineSample(
            engines=1,
            running=0 if quiet else 4,
            waiting=0,
            kv_cache_usage=0.18 + 0.1 * wave,
            prompt_tokens_per_s=0.0 if quiet else 410.0 + 50 * wave,
            generation_tokens_per_s=0.0 if quiet else 290.0 + 60 * wave + dice.gauss(0, 9),
            preemptions=0,
            prefix_cache_hit_rate=0.31,
            requests_finished=second // 3,
        ),
        speculation=SpeculationSample(
            window_s=10.0,
            drafts=0 if quiet else 480,
            draft_tokens=0 if quiet else 1920,
            accepted_tokens=0 if quiet else sum(position.accepted for position in positions),
            acceptance_length=None if quiet else length,
            draft_acceptance_rate=None if quiet else (length - 1) / 4,
            positions=() if quiet else positions,
            lifetime_drafts=48 * (second + 1),
            lifetime_acceptance_length=2.35 + 0.1 * math.exp(-second / 60),
            absent="no drafts in the last 10 s" if quiet else None,
        ),
        latency=LatencySample(
            window_s=10.0,
            ttft=None if quiet else _quantiles(ttft, spike),
            tpot=None if quiet else _quantiles(tpot, 1.0),
            end_to_end=None,
            live_tpot_ms=None if quiet else tpot * 0.98,
            ttft_buckets=() if quiet else TTFT_BUCKETS,
            tpot_buckets=() if quiet else TPOT_BUCKETS,
        ),
        totals=Totals(
            drafts=48 * (second + 1),
            draft_tokens=192 * (second + 1),
            accepted_tokens=65 * (second + 1),
            accepted_by_position=tuple(count * (second + 1) for count in (30, 18, 11, 6)),
            prompt_tokens=410 * second,
            generation_tokens=290 * second,
        ),
        host=HostSample(
            cpu_percent=71 + 8 * wave,
            cores=2,
            memory_used_bytes=int(5.2 * 2**30),
            memory_total_bytes=int(15.6 * 2**30),
            server_cpu_percent=143 + 12 * wave,
            server_memory_bytes=int(2.3 * 2**30),
        ),
        traffic=TrafficSample(
            sent=second // 3 + 4, finished=second // 3, failed=0, in_flight=4, planned=160
        ),
        mark=mark,
    )


def _position(number: int, rate: float) -> PositionRate:
    conditional = rate ** (1 / number)
    return PositionRate(
        position=number,
        accepted=int(480 * rate),
        rate=Interval(rate, max(0.0, rate - 0.045), min(1.0, rate + 0.043)),
        conditional=Interval(
            conditional, max(0.0, conditional - 0.06), min(1.0, conditional + 0.05)
        ),
    )


def _quantiles(middle_ms: float, spike: float) -> Quantiles:
    return Quantiles(
        count=31,
        p50=Quantile(middle_ms),
        p90=Quantile(middle_ms * 1.4 * spike),
        p99=Quantile(middle_ms * 1.9 * spike),
    )


def starting_frame(second: int, phase: str, phase_s: float, detail: str | None) -> Frame:
    """A server that is not ready: no metrics yet."""
    frame = synthetic_frame(second, random.Random(second))
    server = replace(SERVING, state="starting", phase=phase, phase_s=phase_s, detail=detail)
    scrape = ScrapeSample(state="not yet", age_s=None, took_ms=None, error=None)
    return replace(frame, server=server, scrape=scrape, **BARE)


def exited_frame(second: int, code: int, detail: str) -> Frame:
    frame = synthetic_frame(second, random.Random(second))
    server = replace(SERVING, state="exited", exit_code=code, detail=detail)
    scrape = ScrapeSample(state="failing", age_s=9.0, took_ms=None, error="connection refused")
    return replace(frame, server=server, scrape=scrape, **BARE)


def scrape_failing_frame(second: int, error: str) -> Frame:
    frame = synthetic_frame(second, random.Random(second))
    scrape = ScrapeSample(state="failing", age_s=12.0, took_ms=None, error=error)
    return replace(frame, scrape=scrape, **BARE)


BARE: dict[str, None] = {
    "engine": None,
    "speculation": None,
    "latency": None,
    "totals": None,
    "traffic": None,
}
