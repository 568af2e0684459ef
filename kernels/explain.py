"""Which tier a prompt takes on a GPU, why no other, what each would cost, what could be changed. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from specpanel.kernels.advice import Advice, advice
from specpanel.kernels.errors import MLAError
from specpanel.kernels.prompt_steps import Prompt, prompt_of, step_of
from specpanel.kernels.vllm_backends import (
    Rejection,
    Serving,
    choose,
    default_chunk_tokens,
    kv_bytes_per_token,
)
from specpanel.kernels.vllm_rules import (
    THRESHOLDS,
    Deployment,
    Thresholds,
    Tier,
    decide,
    ranges_of,
)

_MOST_CHUNKS = 10_000  # of one prompt


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that is said about one way to serve a model."""

    serving: Serving
    deployment: Deployment
    passed_over: tuple[Rejection, ...]
    chunk_tokens: int
    kv_bytes_per_token: int
    can_fire: tuple[Tier, ...]
    prompts: tuple[Prompt, ...]
    advice: tuple[Advice, ...]


def explain(
    serving: Serving,
    prompt_tokens: Sequence[int],
    *,
    chunk_tokens: int | None = None,
    table: Thresholds = THRESHOLDS,
) -> Explanation:
    """Explain ``serving`` for prompts of the given lengths, each alone and nothing of it cached.

    Args:
        chunk_tokens: ``--max-num-batched-tokens``; None: vLLM's default for the GPU.

    Raises:
        MLAError: vLLM would refuse the deployment, or there is nothing to choose.
    """
    chunk = default_chunk_tokens(serving.gpu) if chunk_tokens is None else chunk_tokens
    if chunk < 1 or any(tokens < 1 for tokens in prompt_tokens):
        raise MLAError("a prompt and a chunk have at least one token")
    if max(prompt_tokens, default=0) > chunk * _MOST_CHUNKS:
        raise MLAError(
            f"a prompt of {max(prompt_tokens):,} tokens in chunks of {chunk:,} has too many steps to explain",
            f"Give chunks that it fills at most {_MOST_CHUNKS:,} times.",
        )
    deployment, passed = choose(serving)
    prompts = tuple(prompt_of(deployment, tokens, chunk, table) for tokens in prompt_tokens)
    return Explanation(
        serving=serving,
        deployment=deployment,
        passed_over=passed,
        chunk_tokens=chunk,
        kv_bytes_per_token=kv_bytes_per_token(
            serving.dims, deployment.kv_dtype, deployment.backend
        ),
        can_fire=tiers_that_can_fire(deployment, chunk, table),
        prompts=prompts,
        advice=tuple(advice(serving, deployment, prompts, chunk, table)),
    )


def tiers_that_can_fire(
    deployment: Deployment, chunk_tokens: int, table: Thresholds = THRESHOLDS
) -> tuple[Tier, ...]:
    """The tiers that some prefill could take under ``deployment``; sparse MQA is always among them."""
    topk = deployment.dims.topk or 0
    longest = [topk] + [
        limit
        for with_context in (False, True)
        for limit, _ in ranges_of(deployment, table, with_context) or ()
    ]
    found: list[Tier] = []
    for length in sorted(set(longest)):
        for query in {min(length, chunk_tokens), max(1, min(length, chunk_tokens) // 2)}:
            tier = decide(deployment, step_of(query, length - query), table).tier
            if tier not in found:
                found.append(tier)
    order: tuple[Tier, ...] = ("dense_mha", "masked_mha", "sparse_mqa")
    return tuple(tier for tier in order if tier in found or tier == "sparse_mqa")
