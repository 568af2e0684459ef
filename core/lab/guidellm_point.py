"""One load of a sweep through guidellm: its latencies and the acceptance of the same time. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specpanel.core.engine.metrics import EngineCounters
from specpanel.core.lab.counter_windows import windowed_length
from specpanel.core.lab.guidellm_report import Report
from specpanel.core.monitor.frame import Interval
from specpanel.core.session.measurement import counter_delta
from specpanel.core.session.summary import leg_summary

_SAME_TOKENS = 0.02  # what two counts of the same tokens may differ by


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """Latencies are guidellm's, in ms, quantiles over the answers that came; see ``guidellm_report``.

    ``acceptance_source`` is "requests" (every step of these, where vLLM reports them) or "counters";
    ``counted_length`` is that of the counters either way. Intervals are 95 %, from resampled requests or,
    with counters alone, from resampled seconds. ``drafts`` and the two after it are the counters' own gains
    from the start of this load to its end.
    """

    concurrency: int
    requests: int
    errored: int
    incomplete: int
    elapsed_s: float
    acceptance_length: float | None
    acceptance_length_interval: Interval | None
    acceptance_source: str | None
    counted_length: float | None
    counted_length_interval: Interval | None
    drafts: int | None
    draft_tokens: int | None
    accepted_tokens: int | None
    tokens_a_step: float | None
    tpot_p50_ms: float | None
    tpot_p99_ms: float | None
    itl_p50_ms: float | None
    itl_p99_ms: float | None
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    output_tokens_per_s: float | None
    counted_tokens: int | None  # output tokens by vLLM's counter


def point_of(
    concurrency: int,
    found: Report,
    before: EngineCounters | None,
    after: EngineCounters | None,
    readings: Sequence[EngineCounters],
    drafter: str,
    draft_tokens: int | None,
) -> SweepPoint:
    """Join what guidellm found with the counters at its start and end and the ``readings`` in between."""
    gained = counter_delta(before, after)
    leg = leg_summary(
        "guidellm", drafter, draft_tokens, found.records, found.elapsed_s, gained, None, "requests"
    )
    accepted = leg.acceptance
    by_counters = None if gained is None else windowed_length(readings)
    from_requests = accepted is not None and accepted.source == "requests"
    return SweepPoint(
        concurrency=concurrency,
        requests=found.successful,
        errored=found.errored,
        incomplete=found.incomplete,
        elapsed_s=found.elapsed_s,
        acceptance_length=None if accepted is None else accepted.acceptance_length,
        acceptance_length_interval=(
            accepted.acceptance_length_interval
            if accepted is not None and from_requests
            else by_counters
        ),
        acceptance_source=None if accepted is None else accepted.source,
        counted_length=None if accepted is None else accepted.counters_acceptance_length,
        counted_length_interval=by_counters,
        drafts=None if gained is None else gained.drafts,
        draft_tokens=None if gained is None else gained.draft_tokens,
        accepted_tokens=None if gained is None else gained.accepted_tokens,
        tokens_a_step=None if accepted is None else accepted.tokens_a_step,
        tpot_p50_ms=found.time_per_output_token_ms.p50,
        tpot_p99_ms=found.time_per_output_token_ms.p99,
        itl_p50_ms=found.inter_token_latency_ms.p50,
        itl_p99_ms=found.inter_token_latency_ms.p99,
        ttft_p50_ms=found.ttft_ms.p50,
        ttft_p99_ms=found.ttft_ms.p99,
        output_tokens_per_s=found.output_tokens_per_s,
        counted_tokens=_tokens(before, after),
    )


def _tokens(before: EngineCounters | None, after: EngineCounters | None) -> int | None:
    if before is None or after is None:
        return None
    then, now = before.total.generation_tokens, after.total.generation_tokens
    return None if then is None or now is None or now < then else now - then


def notes_on(point: SweepPoint, found: Report, asked: int) -> Iterator[str]:
    """What should be known of this load, of ``asked`` requests, before its figures are believed."""
    at = f"{point.concurrency} at a time"
    told_of = point.requests + point.errored
    if told_of < asked:
        yield f"{at}: guidellm tells of {told_of} of {asked} requests"
    if point.errored:
        yield f"{at}: {point.errored} requests failed, the first with: {found.first_error}"
    told = [record.output_tokens for record in found.records if record.ok]
    counted = [tokens for tokens in told if tokens is not None]
    if point.counted_tokens is None or len(counted) < len(told) or point.errored:
        return
    more = point.counted_tokens - sum(counted)
    if abs(more) > _SAME_TOKENS * max(1, sum(counted)):
        yield (
            f"{at}: vLLM counted {point.counted_tokens} output tokens, guidellm {sum(counted)}: the counters "
            "hold other requests, too, or requests that guidellm left out"
        )


def point_sentence(point: SweepPoint) -> str:
    """One load in words."""
    length, itl = point.acceptance_length, point.itl_p50_ms
    speed = point.output_tokens_per_s
    between = point.acceptance_length_interval
    known = "" if between is None else f" ({between.low:.2f} … {between.high:.2f})"
    return (
        f"{point.concurrency} at a time: AL {'n/a' if length is None else f'{length:.2f}'}{known}, "
        f"ITL p50 {'n/a' if itl is None else f'{itl:.1f} ms'}, "
        f"{'n/a' if speed is None else f'{speed:.1f}'} tok/s"
    )
