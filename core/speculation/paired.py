"""Time per output token with a drafter against without, on the same prompts."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from specpanel.core.monitor.frame import Interval
from specpanel.core.speculation.intervals import RESAMPLES, bootstrap
from specpanel.core.traffic.records import RequestRecord

FEW_PAIRS = 8  # below this the percentile bootstrap is known to give intervals that are too narrow


@dataclass(frozen=True, slots=True)
class PairedRatio:
    """With the drafter divided by without; below 1 the drafter makes tokens faster.

    ``ratio`` is the ratio of pooled times per output token (total decode time / total decode tokens),
    ``geometric_mean`` weighs every prompt alike. Both intervals are 95 %, from resampled prompts;
    ``ratio`` is ``None`` without pairs and its interval ``None`` below two.
    """

    pairs: int
    unpaired: int  # prompts measured on one side only
    tpot_with_ms: float | None
    tpot_without_ms: float | None
    ratio: float | None
    ratio_interval: Interval | None
    geometric_mean: float | None
    geometric_mean_interval: Interval | None
    note: str | None = None


@dataclass(slots=True)
class _Decode:
    """Time and tokens after the first token, over all requests of one prompt."""

    time_ms: float = 0.0
    tokens: int = 0


def paired_ratio(
    with_drafter: Iterable[RequestRecord],
    without_drafter: Iterable[RequestRecord],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> PairedRatio:
    """Pair requests by prompt and compare. Warm-up, failed and one-token requests are left out.

    A prompt that was sent several times is one pair: its times and tokens are added up.
    """
    treated, plain = _by_prompt(with_drafter), _by_prompt(without_drafter)
    prompts = sorted(treated.keys() & plain.keys())
    unpaired = len(treated.keys() ^ plain.keys())
    if not prompts:
        return PairedRatio(
            0, unpaired, None, None, None, None, None, None, "no prompt was measured on both sides"
        )
    sides = [(treated[prompt], plain[prompt]) for prompt in prompts]
    columns = (
        [one.time_ms for one, _ in sides],
        [float(one.tokens) for one, _ in sides],
        [other.time_ms for _, other in sides],
        [float(other.tokens) for _, other in sides],
    )
    logs = [
        math.log((one.time_ms / one.tokens) / (other.time_ms / other.tokens))
        for one, other in sides
    ]
    log_columns = (logs, [1.0] * len(logs))
    totals = tuple(sum(column) for column in columns)
    return PairedRatio(
        pairs=len(prompts),
        unpaired=unpaired,
        tpot_with_ms=totals[0] / totals[1],
        tpot_without_ms=totals[2] / totals[3],
        ratio=_pooled_ratio(totals),
        ratio_interval=bootstrap(columns, _pooled_ratio, resamples=resamples, seed=seed),
        geometric_mean=_mean_of_logs((sum(logs), len(logs))),
        geometric_mean_interval=bootstrap(
            log_columns, _mean_of_logs, resamples=resamples, seed=seed
        ),
        note=_note(len(prompts), unpaired),
    )


def _by_prompt(records: Iterable[RequestRecord]) -> dict[str, _Decode]:
    prompts: dict[str, _Decode] = {}
    for record in records:
        # What tpot_ms was divided by: the tokens that came after the first chunk.
        tokens = (record.output_tokens or 0) - (record.first_chunk_tokens or 1)
        if not record.ok or record.warmup or not record.tpot_ms or tokens < 1:
            continue
        decode = prompts.setdefault(record.prompt_id, _Decode())
        decode.time_ms += record.tpot_ms * tokens
        decode.tokens += tokens
    return prompts


def _pooled_ratio(sums: Sequence[float]) -> float:
    time_with, tokens_with, time_without, tokens_without = sums
    return (time_with / tokens_with) / (time_without / tokens_without)


def _mean_of_logs(sums: Sequence[float]) -> float:
    return math.exp(sums[0] / sums[1])


def _note(pairs: int, unpaired: int) -> str | None:
    notes: list[str] = []
    if pairs < FEW_PAIRS:
        prompts = "prompt" if pairs == 1 else "prompts"
        notes.append(f"only {pairs} {prompts}: the interval is rough, compare {FEW_PAIRS} or more")
    if unpaired:
        prompts = "prompt was" if unpaired == 1 else "prompts were"
        notes.append(f"{unpaired} {prompts} measured on one side only and left out")
    return "; ".join(notes) or None
