"""What a run found, as one record: the last line of ``--json`` and what a person reads at the end. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from specpanel.core.engine.chosen import Choice
from specpanel.core.monitor.frame import Interval, PositionRate
from specpanel.core.speculation.acceptance import (
    acceptance_length,
    counter_notes,
    draft_acceptance_rate,
    position_rates,
    step_acceptance,
    step_yield,
)
from specpanel.core.speculation.agreement import Agreement, agreement
from specpanel.core.speculation.paired import PairedRatio, paired_ratio
from specpanel.core.speculation.pathologies import Pathology
from specpanel.core.speculation.quantiles import SampleQuantile, sample_quantile
from specpanel.core.speculation.verdict import Verdict, verdict
from specpanel.core.traffic.records import RequestRecord

SHARES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class CounterDelta:
    """What the server's counters gained during a leg; other clients' requests are in it too."""

    drafts: int
    draft_tokens: int
    accepted_tokens: int
    accepted_by_position: tuple[int, ...]
    generation_tokens: int | None


@dataclass(frozen=True, slots=True)
class Acceptance:
    """``source`` is "requests" (every step of our own requests) or "counters" (all of the server's)."""

    source: str
    requests: int | None
    drafts: int
    draft_tokens: int | None
    accepted_tokens: int
    acceptance_length: float | None
    acceptance_length_interval: Interval | None
    draft_acceptance_rate: float | None
    positions: tuple[PositionRate, ...]
    accepted_a_step: tuple[int, ...]
    counters_acceptance_length: float | None
    tokens_a_step: float | None  # steps without a draft included
    drafted_share: float | None  # of the steps, 0..1
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leg:
    """One measurement: the same traffic against one configuration. Warm-up is left out.

    ``output_tokens`` is ``None`` where an answer came without its number of tokens.
    """

    leg: str
    drafter: str
    draft_tokens: int | None
    requests: int
    failed: int
    failures: dict[str, int]
    elapsed_s: float
    output_tokens: int | None
    output_tokens_per_s: float | None
    ttft_ms: tuple[SampleQuantile, ...]
    tpot_ms: tuple[SampleQuantile, ...]
    end_to_end_ms: tuple[SampleQuantile, ...]
    acceptance: Acceptance | None
    ready_s: float | None
    ended_by: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """With the drafter against without, on the same prompts."""

    paired: PairedRatio
    agreement: Agreement | None  # None where sampling is not greedy


@dataclass(frozen=True, slots=True)
class Summary:
    """The whole run. ``interrupted`` and ``failure`` say how it ended where it did not end well.

    ``failure_code`` and ``failure_setting`` are there where the cause is a known one. ``chosen``,
    ``remarks`` and ``findings`` are of the leg with the drafter. ``forced`` are the codes of preflight's
    errors that were overridden.
    """

    profile: str
    model: str
    drafter: str
    draft_tokens: int | None
    concurrency: int
    rate_per_s: float | None
    temperature: float
    seed: int
    url: str
    log: str | None
    vllm_version: str | None
    legs: tuple[Leg, ...]
    comparison: Comparison | None
    verdict: Verdict
    interrupted: bool
    failure: str | None
    vllm_exit_code: int | None
    failure_code: str | None = None
    failure_setting: str | None = None
    chosen: tuple[Choice, ...] = ()
    remarks: tuple[str, ...] = ()
    findings: tuple[Pathology, ...] = ()
    forced: tuple[str, ...] = ()


def leg_summary(
    leg: str,
    drafter: str,
    draft_tokens: int | None,
    records: Sequence[RequestRecord],
    elapsed_s: float,
    counters: CounterDelta | None,
    ready_s: float | None,
    ended_by: str,
) -> Leg:
    """Sum up the requests of one leg; warm-up requests are passed over."""
    measured = [record for record in records if not record.warmup]
    good = [record for record in measured if record.ok]
    told = [record.output_tokens for record in good if record.output_tokens is not None]
    tokens = sum(told) if len(told) == len(good) else None
    return Leg(
        leg=leg,
        drafter=drafter,
        draft_tokens=draft_tokens,
        requests=len(measured),
        failed=len(measured) - len(good),
        failures=dict(Counter(record.error for record in measured if record.error)),
        elapsed_s=elapsed_s,
        output_tokens=tokens,
        output_tokens_per_s=tokens / elapsed_s if elapsed_s > 0 and tokens else None,
        ttft_ms=_quantiles([record.ttft_ms for record in good]),
        tpot_ms=_quantiles([record.tpot_ms for record in good]),
        end_to_end_ms=_quantiles([record.end_to_end_ms for record in good]),
        acceptance=_acceptance(good, counters) if drafter != "none" else None,
        ready_s=ready_s,
        ended_by=ended_by,
    )


def compare(legs: Sequence[tuple[Leg, Sequence[RequestRecord]]], greedy: bool) -> Comparison | None:
    """The comparison of a baseline leg with a drafter leg, None where one of them is missing."""
    by_name = {leg.leg: records for leg, records in legs}
    if "baseline" not in by_name or "drafter" not in by_name:
        return None
    treated, plain = by_name["drafter"], by_name["baseline"]
    return Comparison(
        paired=paired_ratio(treated, plain),
        agreement=agreement(treated, plain) if greedy else None,
    )


def judge(legs: Sequence[Leg], comparison: Comparison | None) -> Verdict:
    """Whether speculation pays, as far as this run can tell."""
    if legs and all(leg.drafter == "none" for leg in legs):
        return Verdict("unknown", "plain decoding: there is nothing to judge")
    measured = next((leg.acceptance for leg in legs if leg.acceptance), None)
    length = measured.acceptance_length if measured else None
    return verdict(comparison.paired if comparison else None, acceptance_length=length)


def _quantiles(samples: Sequence[float | None]) -> tuple[SampleQuantile, ...]:
    present = [sample for sample in samples if sample is not None]
    found = (sample_quantile(present, share) for share in SHARES)
    return tuple(quantile for quantile in found if quantile is not None)


def _acceptance(
    records: Sequence[RequestRecord], counters: CounterDelta | None
) -> Acceptance | None:
    from_counters = (
        acceptance_length(counters.drafts, counters.accepted_tokens) if counters else None
    )
    steps = step_acceptance(records)
    yielded = step_yield(records)
    if steps is not None and steps.steps > 0:
        return Acceptance(
            source="requests",
            requests=steps.requests,
            drafts=steps.steps,
            draft_tokens=steps.draft_tokens,
            accepted_tokens=steps.accepted_tokens,
            acceptance_length=steps.acceptance_length,
            acceptance_length_interval=steps.acceptance_length_interval,
            draft_acceptance_rate=steps.draft_acceptance_rate,
            positions=steps.positions,
            accepted_a_step=steps.accepted_a_step,
            counters_acceptance_length=from_counters,
            tokens_a_step=None if yielded is None else yielded.tokens_a_step,
            drafted_share=None if yielded is None else yielded.drafted_share,
            notes=_request_notes(records),
        )
    if counters is None:
        return None
    by_position = counters.accepted_by_position
    return Acceptance(
        source="counters",
        requests=None,
        drafts=counters.drafts,
        draft_tokens=counters.draft_tokens,
        accepted_tokens=counters.accepted_tokens,
        acceptance_length=from_counters,
        acceptance_length_interval=None,
        draft_acceptance_rate=draft_acceptance_rate(
            counters.draft_tokens, counters.accepted_tokens
        ),
        positions=position_rates(counters.drafts, by_position),
        accepted_a_step=(),
        counters_acceptance_length=from_counters,
        tokens_a_step=None,
        drafted_share=None,
        notes=counter_notes(
            counters.drafts, counters.draft_tokens, counters.accepted_tokens, by_position
        ),
    )


def _request_notes(records: Sequence[RequestRecord]) -> tuple[str, ...]:
    ended = sum(record.finish_reason == "stop" for record in records)
    if not ended:
        return ()
    return (
        f"an upper bound: {ended} of {len(records)} answers ended by themselves, and what was accepted "
        "past their end counts too",
    )
