"""A prompt alone on a GPU: its scheduler steps, the tier that each takes, what each would cost. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specpanel.kernels.cost import estimates_ms
from specpanel.kernels.vllm_rules import (
    Condition,
    Decision,
    Deployment,
    Step,
    Thresholds,
    Tier,
    decide,
)

# vLLM decompresses cached context in pieces of at most so many rows
# (determine_chunked_prefill_workspace_size).
CONTEXT_ROWS = 64 * 1024


@dataclass(frozen=True, slots=True)
class PromptStep:
    """One scheduler step of a prompt. ``estimates_ms``: a layer and rank; None where inexact."""

    query_len: int
    context_len: int
    decision: Decision
    estimates_ms: Mapping[Tier, float | None]

    @property
    def seq_len(self) -> int:
        return self.query_len + self.context_len

    def why_not(self, tier: Tier) -> tuple[Condition, ...]:
        return self.decision.failed(tier)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt alone in its steps; each takes one chunk."""

    tokens: int
    steps: tuple[PromptStep, ...]

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """The tiers that its steps take, in order, each once while it lasts."""
        found: list[Tier] = []
        for step in self.steps:
            if not found or found[-1] != step.decision.tier:
                found.append(step.decision.tier)
        return tuple(found)

    @property
    def taken_ms(self) -> float | None:
        """Estimate of what vLLM takes, chunk by chunk; None where one of them has none."""
        return total([step.estimates_ms[step.decision.tier] for step in self.steps])

    def alone_ms(self, tier: Tier) -> float | None:
        """Estimate of all its chunks on one tier; None where one has no exact answer on it."""
        return total([step.estimates_ms[tier] for step in self.steps])


def total(costs: Sequence[float | None]) -> float | None:
    """The sum; None where one of them is not known."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


def step_of(query_len: int, context_len: int) -> Step:
    """The step of one request with ``context_len`` tokens cached."""
    return Step(query_len, query_len + context_len, context_chunk=min(context_len, CONTEXT_ROWS))


def prompt_of(deployment: Deployment, tokens: int, chunk: int, table: Thresholds) -> Prompt:
    """A prompt of ``tokens`` that comes in chunks of ``chunk``, nothing of it cached."""
    rank = deployment.dims.on_rank(deployment.tensor_parallel)
    steps = []
    for done in range(0, tokens, chunk):
        query = min(chunk, tokens - done)
        steps.append(
            PromptStep(
                query_len=query,
                context_len=done,
                decision=decide(deployment, step_of(query, done), table),
                estimates_ms=estimates_ms(rank, deployment.gpu, query, done),
            )
        )
    return Prompt(tokens, tuple(steps))
