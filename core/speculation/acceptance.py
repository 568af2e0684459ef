"""How many draft tokens the target accepts: pooled counts to rates, and one request's steps to rates.

Formulas as vLLM's own (``vllm/v1/spec_decode/metrics.py``, read in 0.32.0): acceptance length is
1 + accepted / drafts, the draft acceptance rate is accepted / drafted, and the rate at a position is
accepted there / drafts. All are ratios of sums, never means of ratios.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from specpanel.core.monitor.frame import Interval, PositionRate
from specpanel.core.speculation.intervals import RESAMPLES, bootstrap, wilson
from specpanel.core.traffic.records import RequestRecord

# Counters of one scrape may be a step apart; positions that miss the sum by more than this share differ.
POSITION_SUM_TOLERANCE = 0.01

VARIABLE_LENGTH = (
    "some steps drafted fewer than {k} tokens, so rates after position 1 are biased low"
)
POSITIONS_DISAGREE = "accepted tokens by position do not add up to the accepted tokens"


def acceptance_length(drafts: int, accepted_tokens: int) -> float | None:
    """Tokens that one step of the target yields, at least 1; ``None`` for no drafts.

    An upper bound for short answers: tokens accepted after the end of the answer count as well.
    """
    return 1 + accepted_tokens / drafts if drafts else None


def draft_acceptance_rate(draft_tokens: int, accepted_tokens: int) -> float | None:
    """Share of drafted tokens that were accepted, 0..1; ``None`` when nothing was drafted."""
    return accepted_tokens / draft_tokens if draft_tokens else None


def position_rates(drafts: int, accepted_by_position: Sequence[int]) -> tuple[PositionRate, ...]:
    """The rate at each position with Wilson's intervals; empty for no drafts.

    Wilson's interval takes steps as independent. Steps of one request are not quite, so where requests
    report their steps the intervals of :func:`step_acceptance` are the better ones.
    """
    rates: list[PositionRate] = []
    before = drafts
    for position, accepted in enumerate(accepted_by_position, start=1):
        # Counters that are read while they move can be a step ahead of each other.
        rate = wilson(min(accepted, drafts), drafts)
        if rate is None:
            return ()
        conditional = wilson(min(accepted, before), before)
        rates.append(PositionRate(position, accepted, rate, conditional))
        before = accepted
    return tuple(rates)


def counter_notes(
    drafts: int, draft_tokens: int | None, accepted_tokens: int | None, by_position: Sequence[int]
) -> tuple[str, ...]:
    """Known biases of rates that were made from these counts, each as one sentence."""
    notes: list[str] = []
    k = len(by_position)
    if k > 1 and draft_tokens is not None and draft_tokens < drafts * k:
        notes.append(VARIABLE_LENGTH.format(k=k))
    if k and accepted_tokens is not None:
        missing = abs(sum(by_position) - accepted_tokens)
        if missing > POSITION_SUM_TOLERANCE * accepted_tokens:
            notes.append(POSITIONS_DISAGREE)
    return tuple(notes)


@dataclass(frozen=True, slots=True)
class StepAcceptance:
    """Acceptance from the steps that requests report, with intervals from resampled requests.

    ``steps`` are steps with a draft. ``accepted_a_step[n]`` is how many of them accepted n tokens.
    ``draft_tokens`` and ``draft_acceptance_rate`` are ``None`` where requests do not say what was
    drafted. An interval is ``None`` below two requests.
    """

    requests: int
    steps: int
    draft_tokens: int | None
    accepted_tokens: int
    acceptance_length: float | None
    acceptance_length_interval: Interval | None
    draft_acceptance_rate: float | None
    draft_acceptance_rate_interval: Interval | None
    positions: tuple[PositionRate, ...]
    accepted_a_step: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepYield:
    """Tokens that a step of the target yielded, steps without a draft included.

    A drafter that finds nothing to propose (n-gram, suffix) leaves steps of one token, which acceptance
    length does not see. ``steps`` are the drafted ones and those.
    """

    tokens: int
    steps: int
    drafted_steps: int

    @property
    def tokens_a_step(self) -> float:
        return self.tokens / self.steps

    @property
    def drafted_share(self) -> float:
        return self.drafted_steps / self.steps


def step_yield(records: Iterable[RequestRecord]) -> StepYield | None:
    """How far the drafts went, from requests that report their steps; ``None`` without any.

    The first token comes from the prefill and belongs to no step. Of the others, what drafted steps did
    not yield came one a step. A last step may be reported longer than the answer, which then has no such
    steps rather than a negative number of them.
    """
    tokens = plain = drafted = 0
    for record in records:
        steps = _steps_of(record)
        if steps is None or not record.output_tokens:
            continue
        decoded = record.output_tokens - 1
        yielded = min(decoded, sum(steps.accepted) + len(steps.accepted))
        tokens += decoded
        drafted += len(steps.accepted)
        plain += decoded - yielded
    return StepYield(tokens, drafted + plain, drafted) if drafted + plain else None


@dataclass(frozen=True, slots=True)
class _Steps:
    """One request: tokens drafted (``None``: not reported) and accepted in each step with a draft."""

    drafted: tuple[int, ...] | None
    accepted: tuple[int, ...]

    def reaching(self, position: int) -> int:
        """Steps that accepted a token at ``position``."""
        return sum(accepted >= position for accepted in self.accepted)

    def offered(self, position: int) -> int:
        """Steps that drafted a token at ``position`` and accepted the one before."""
        if self.drafted is None:
            return self.reaching(position - 1)
        pairs = zip(self.drafted, self.accepted, strict=True)
        return sum(drafted >= position and got >= position - 1 for drafted, got in pairs)


def step_acceptance(
    records: Iterable[RequestRecord], *, resamples: int = RESAMPLES, seed: int = 0
) -> StepAcceptance | None:
    """Acceptance from requests' own steps; ``None`` when no good request reports them.

    Warm-up and failed requests are left out. The conditional rate counts only steps that drafted a
    token at the position, so it holds for drafters of variable length too; the unconditional one is
    per draft, like vLLM's.
    """
    requests = [one for record in records if (one := _steps_of(record)) is not None]
    if not requests:
        return None
    histogram = _histogram(requests)
    known = [sum(steps.drafted) for steps in requests if steps.drafted is not None]
    drafted = [float(tokens) for tokens in known] if len(known) == len(requests) else None
    steps_each = [float(len(steps.accepted)) for steps in requests]
    accepted_each = [float(sum(steps.accepted)) for steps in requests]
    steps, accepted = sum(histogram), int(sum(accepted_each))
    draft_tokens = None if drafted is None else int(sum(drafted))

    def interval(
        columns: Sequence[Sequence[float]], figure: Callable[[tuple[float, ...]], float | None]
    ) -> Interval | None:
        return bootstrap(columns, figure, resamples=resamples, seed=seed)

    return StepAcceptance(
        requests=len(requests),
        steps=steps,
        draft_tokens=draft_tokens,
        accepted_tokens=accepted,
        acceptance_length=acceptance_length(steps, accepted),
        acceptance_length_interval=interval(
            (accepted_each, steps_each), lambda sums: 1 + sums[0] / sums[1] if sums[1] else None
        ),
        draft_acceptance_rate=(
            None if draft_tokens is None else draft_acceptance_rate(draft_tokens, accepted)
        ),
        draft_acceptance_rate_interval=(
            None if drafted is None else interval((accepted_each, drafted), _ratio)
        ),
        positions=_resampled_positions(requests, steps_each, len(histogram) - 1, interval),
        accepted_a_step=histogram,
    )


def _steps_of(record: RequestRecord) -> _Steps | None:
    if not record.ok or record.warmup or record.accepted is None:
        return None
    if record.drafted is None:
        return _Steps(None, record.accepted)
    if len(record.drafted) != len(record.accepted):
        return None
    pairs = [pair for pair in zip(record.drafted, record.accepted, strict=True) if pair[0] > 0]
    return _Steps(tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs))


def _histogram(requests: Sequence[_Steps]) -> tuple[int, ...]:
    """Steps that accepted 0, 1, … tokens, as far as any step drafted (or accepted) tokens."""
    longest = max(
        (max(steps.drafted or steps.accepted, default=0) for steps in requests), default=0
    )
    longest = max([longest, *(max(steps.accepted, default=0) for steps in requests)])
    counts = [0] * (longest + 1)
    for steps in requests:
        for accepted in steps.accepted:
            counts[accepted] += 1
    return tuple(counts)


def _ratio(sums: tuple[float, ...]) -> float | None:
    return sums[0] / sums[1] if sums[1] else None


def _resampled_positions(
    requests: Sequence[_Steps],
    steps_each: Sequence[float],
    k: int,
    interval: Callable[..., Interval | None],
) -> tuple[PositionRate, ...]:
    rates: list[PositionRate] = []
    for position in range(1, k + 1):
        reached = [float(steps.reaching(position)) for steps in requests]
        offered = [float(steps.offered(position)) for steps in requests]
        total = int(sum(reached))
        rate = interval((reached, steps_each), _ratio) or wilson(total, int(sum(steps_each)))
        if rate is None:
            return ()
        conditional = interval((reached, offered), _ratio) or wilson(total, int(sum(offered)))
        rates.append(PositionRate(position, total, rate, conditional))
    return tuple(rates)
