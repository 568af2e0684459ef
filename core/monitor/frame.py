"""The Frame: what is known at one moment, and the only thing that screens, streams and recordings show.

Absent is ``None`` and is drawn as a gap, never as zero. Where a value is absent for a reason that helps
the reader, a ``…_absent`` text stands beside it. Every figure has its unit in its name.
"""

from dataclasses import dataclass
from typing import Literal

from specpanel.core.devices.records import DeviceSample

ServerState = Literal["stopped", "starting", "serving", "degraded", "exited", "unreachable"]
ScrapeState = Literal["ok", "failing", "not yet"]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95 % interval; all three in the same unit."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PositionRate:
    """How often the draft token at one position was accepted, in the window.

    ``rate`` is unconditional (accepted at this position per draft) and never increases with the
    position; ``conditional`` is given that the position before was accepted.
    """

    position: int  # 1 is the first draft token
    accepted: int
    rate: Interval
    conditional: Interval | None


@dataclass(frozen=True, slots=True)
class SpeculationSample:
    """Acceptance over the last ``window_s`` seconds, pooled over requests and engines, and since the start.

    ``acceptance_length`` is 1 + accepted / drafts: tokens that one step of the target yields. ``None``
    with ``absent`` says why: "no drafter", "no drafts yet", "no drafts in the last 10 s".
    """

    window_s: float
    drafts: int
    draft_tokens: int
    accepted_tokens: int
    acceptance_length: float | None
    draft_acceptance_rate: float | None
    positions: tuple[PositionRate, ...]
    lifetime_drafts: int
    lifetime_acceptance_length: float | None
    absent: str | None = None
    note: str | None = None  # a known bias, said where the number is shown


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile read from histogram buckets. ``beyond`` means the true value is above ``value_ms``."""

    value_ms: float
    beyond: bool = False


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Quantiles of one latency over a window; ``count`` observations stand behind them."""

    count: int
    p50: Quantile
    p90: Quantile
    p99: Quantile


BucketCounts = tuple[tuple[float, float | None, int], ...]
"""Buckets of a histogram that touch each other: from and to in ms (None: no bound), and observations."""


@dataclass(frozen=True, slots=True)
class LatencySample:
    """Latency over the last ``window_s`` seconds, from merged bucket deltas of all engines.

    ``tpot`` is time per output token of finished requests, the headline. ``live_tpot_ms`` divides the
    time between output events by the tokens made, so it is there before a request ends.
    """

    window_s: float
    ttft: Quantiles | None
    tpot: Quantiles | None
    end_to_end: Quantiles | None
    live_tpot_ms: float | None
    ttft_buckets: BucketCounts = ()  # what was observed in the window; empty ones at the ends left out
    tpot_buckets: BucketCounts = ()


@dataclass(frozen=True, slots=True)
class EngineSample:
    """The scheduler and the cache, summed over engines (``kv_cache_usage`` is the fullest engine's)."""

    engines: int
    running: int | None
    waiting: int | None
    kv_cache_usage: float | None  # 0..1
    prompt_tokens_per_s: float | None
    generation_tokens_per_s: float | None
    preemptions: int | None  # since the server started
    prefix_cache_hit_rate: float | None  # in the window, 0..1
    requests_finished: int | None  # since the server started
    kv_cache_usage_absent: str | None = None  # why it is absent, where the server exports nonsense
    kv_cache_usages: tuple[float | None, ...] = ()  # of each engine, where there are several


@dataclass(frozen=True, slots=True)
class Totals:
    """Counters added up over the whole session, across restarts of the server (epochs)."""

    drafts: int | None
    draft_tokens: int | None
    accepted_tokens: int | None
    accepted_by_position: tuple[int, ...]
    prompt_tokens: int | None
    generation_tokens: int | None


@dataclass(frozen=True, slots=True)
class HostSample:
    """The machine that the panel runs on, and the server's processes when it is ours."""

    cpu_percent: float | None  # of all cores, 0..100
    cores: int | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    server_cpu_percent: float | None  # of one core; 200 is two cores
    server_memory_bytes: int | None
    swap_used_bytes: int | None = None
    swap_total_bytes: int | None = None
    disk_free_bytes: int | None = None  # of the disk that holds the home folder
    disk_total_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class TrafficSample:
    """Requests that specpanel itself sends; ``None`` in a Frame when it sends none.

    Warm-up requests are counted by themselves, and ``in_flight`` has them, too.
    """

    sent: int
    finished: int
    failed: int
    in_flight: int
    planned: int | None
    warmups_done: int = 0
    warmups_planned: int = 0

    @property
    def warming_up(self) -> bool:
        return self.sent == 0 and self.warmups_done < self.warmups_planned


@dataclass(frozen=True, slots=True)
class ServerSample:
    """What is known of the server as a process and as something that answers."""

    state: ServerState
    name: str | None  # the profile, where it is known
    url: str
    model: str | None
    drafter: str | None
    draft_tokens: int | None  # K, where it is known
    phase: str | None  # while starting
    phase_s: float | None
    pid: int | None
    exit_code: int | None
    version: str | None
    detail: str | None  # last log line while starting, the reason when degraded or exited
    up_s: float | None = None  # since the process was started, where that is known


@dataclass(frozen=True, slots=True)
class ScrapeSample:
    """The state of reading ``/metrics``, which can fail while the server is well."""

    state: ScrapeState
    age_s: float | None  # of the newest good scrape
    took_ms: float | None
    error: str | None  # with "ok": what could not be read beside what could


@dataclass(frozen=True, slots=True)
class Frame:
    """One moment, once a second. ``epoch`` grows when the server's counters start over: draw a gap there."""

    time_unix: float
    elapsed_s: float  # monotonic, since the monitor started
    epoch: int
    server: ServerSample
    scrape: ScrapeSample
    engine: EngineSample | None
    speculation: SpeculationSample | None
    latency: LatencySample | None
    totals: Totals | None
    host: HostSample | None
    traffic: TrafficSample | None
    mark: str | None = None
    devices: DeviceSample | None = None  # None in recordings older than the device reader
