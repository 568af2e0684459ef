"""What each chart shows of a Frame: one record a chart, for the screen and for ``specpanel plot``. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.charts.line_plot import LinePlot, Reference, Series
from specpanel.app.tui.figures import grouped, milliseconds

if TYPE_CHECKING:
    from specpanel.app.tui.timeline import Sample
    from specpanel.core.monitor.frame import BucketCounts, Frame, Quantiles


@dataclass(frozen=True, slots=True)
class Subject:
    """One line chart. ``sample`` gives one value a series; ``reason`` says why they are absent."""

    id: str
    title: str
    unit: str
    series: tuple[Series, ...]
    sample: "Sample"
    reason: Callable[["Frame | None"], str]
    show_value: Callable[[float], str]
    log: bool = False
    low: float | None = None
    high: float | None = None
    reference: Reference | None = None

    def plot(self, *, glyphs: Glyphs = BRAILLE, patterns: bool = False) -> LinePlot:
        return LinePlot(
            self.series,
            glyphs=glyphs,
            log=self.log,
            low=self.low,
            high=self.high,
            patterns=patterns,
            reference=self.reference,
        )


def acceptance_values(frame: "Frame") -> Sequence[float | None]:
    sample = frame.speculation
    if sample is None:
        return (None, None)
    return (sample.lifetime_acceptance_length, sample.acceptance_length)


def draft_counts(frame: "Frame") -> Sequence[float | None]:
    """Drafts in the window, then accepted tokens by draft position; nothing where nothing was drafted."""
    sample = frame.speculation
    if sample is None or not sample.drafts or not sample.positions:
        return ()
    return (sample.drafts, *(position.accepted for position in sample.positions))


def latency_values(frame: "Frame") -> Sequence[float | None]:
    latency = frame.latency
    if latency is None:
        return (None, None, None, None)
    return (*_p99_and_p50(latency.ttft), *_p99_and_p50(latency.tpot))


def _p99_and_p50(quantiles: "Quantiles | None") -> tuple[float | None, float | None]:
    if quantiles is None:
        return None, None
    return quantiles.p99.value_ms, quantiles.p50.value_ms


def throughput_values(frame: "Frame") -> Sequence[float | None]:
    return (frame.engine.generation_tokens_per_s if frame.engine else None,)


def no_drafts_because(frame: "Frame | None") -> str:
    """Why nothing about drafts can be drawn."""
    if frame is None or frame.speculation is None:
        return "n/a: no metrics yet"
    return f"n/a: {frame.speculation.absent or 'no drafts'}"


def no_latency_because(frame: "Frame | None") -> str:
    if frame is None or frame.latency is None:
        return "n/a: no metrics yet"
    return f"n/a: no request finished in the last {frame.latency.window_s:.0f} s"


@dataclass(frozen=True, slots=True)
class Spread:
    """One latency as a histogram of the newest window; without buckets ``reason`` says why."""

    name: str
    heading: str
    buckets: "BucketCounts"
    quantiles: "Quantiles | None"
    reason: str


def spread_of(frame: "Frame | None", which: Literal["ttft", "tpot"]) -> Spread:
    """How the time to first token, or the time per output token, is spread in the newest window."""
    name = "Time to first token" if which == "ttft" else "Time per output token"
    latency = frame.latency if frame else None
    if latency is None:
        return Spread(name, name, (), None, "n/a: no metrics yet")
    buckets = latency.ttft_buckets if which == "ttft" else latency.tpot_buckets
    quantiles = latency.ttft if which == "ttft" else latency.tpot
    done = "began to answer" if which == "ttft" else "finished"
    reason = f"n/a: no request {done} in the last {latency.window_s:.0f} s"
    if quantiles is not None:
        reason = "n/a: this recording holds no buckets"
    count = grouped(sum(count for *_, count in buckets))
    heading = f"{name}, ms: {count} in {latency.window_s:.0f} s"
    return Spread(name, heading, buckets, quantiles, reason)


def no_throughput_because(frame: "Frame | None") -> str:
    return "n/a: no metrics yet" if frame is None or frame.engine is None else "n/a: not reported"


ACCEPTANCE = Subject(
    id="acceptance",
    title="Acceptance length",
    unit="tokens a step",
    series=(Series("lifetime", "faint", 1), Series("now", "series-1", 0)),
    sample=acceptance_values,
    reason=no_drafts_because,
    show_value=lambda value: f"{value:.2f}",
    low=1.0,
    high=2.0,
    reference=Reference(1.0, "nothing accepted"),
)
LATENCY = Subject(
    id="latency",
    title="Latency ms",
    unit="ms",
    series=(
        Series("p99", "series-4", 2, "TTFT"),
        Series("p50", "series-2", 1, "TTFT"),
        Series("p99", "series-3", 2, "TPOT"),
        Series("p50", "series-1", 0, "TPOT"),
    ),
    sample=latency_values,
    reason=no_latency_because,
    show_value=milliseconds,
    log=True,
)
TOKENS = Subject(
    id="tokens",
    title="Tokens/s",
    unit="tokens/s",
    series=(Series("output", "series-1", 0),),
    sample=throughput_values,
    reason=no_throughput_because,
    show_value=grouped,
    low=0.0,
    high=10.0,
)
SUBJECTS = (ACCEPTANCE, LATENCY, TOKENS)
POSITIONS = "positions"
TRACKS: dict[str, "Sample"] = {
    **{subject.id: subject.sample for subject in SUBJECTS},
    POSITIONS: draft_counts,
}
"""What the timeline keeps of each Frame, by chart."""
