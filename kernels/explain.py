"""Which tier a prompt takes on a GPU, why no other, what each would cost, what could be changed. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from specpanel.kernels.cost import estimates_ms
from specpanel.kernels.errors import MLAError
from specpanel.kernels.vllm_backends import (
    BACKENDS,
    Rejection,
    Serving,
    choose,
    default_chunk_tokens,
    kv_bytes_per_token,
)
from specpanel.kernels.vllm_rules import (
    MASK_BUDGET_BYTES,
    THRESHOLDS,
    TIER_TITLES,
    Condition,
    Decision,
    Deployment,
    Step,
    Thresholds,
    Tier,
    decide,
    mask_bytes,
    quantized,
    ranges_for,
)

# vLLM decompresses cached context in pieces of at most so many rows
# (determine_chunked_prefill_workspace_size).
CONTEXT_ROWS = 64 * 1024

_MOST_CHUNKS = 10_000  # of one prompt
_MOST_NAMED = 3  # lengths in one sentence


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


@dataclass(frozen=True, slots=True)
class Advice:
    """Something that the user can change, and what it would do. ``setting``: vLLM's own, if any."""

    code: str
    text: str
    setting: str | None = None


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
    prompts = tuple(_prompt(deployment, tokens, chunk, table) for tokens in prompt_tokens)
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
        advice=tuple(_advice(serving, deployment, prompts, chunk, table)),
    )


def tiers_that_can_fire(
    deployment: Deployment, chunk_tokens: int, table: Thresholds = THRESHOLDS
) -> tuple[Tier, ...]:
    """The tiers that some prefill could take under ``deployment``; sparse MQA is always among them."""
    topk = deployment.dims.topk or 0
    longest = [topk] + [
        limit
        for with_context in (False, True)
        for limit, _ in _ranges(deployment, table, with_context) or ()
    ]
    found: list[Tier] = []
    for length in sorted(set(longest)):
        for query in {min(length, chunk_tokens), max(1, min(length, chunk_tokens) // 2)}:
            tier = decide(deployment, step_of(query, length - query), table).tier
            if tier not in found:
                found.append(tier)
    order: tuple[Tier, ...] = ("dense_mha", "masked_mha", "sparse_mqa")
    return tuple(tier for tier in order if tier in found or tier == "sparse_mqa")


def step_of(query_len: int, context_len: int) -> Step:
    """The step of one request with ``context_len`` tokens cached."""
    return Step(query_len, query_len + context_len, context_chunk=min(context_len, CONTEXT_ROWS))


def _prompt(deployment: Deployment, tokens: int, chunk: int, table: Thresholds) -> Prompt:
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


def _ranges(
    deployment: Deployment, table: Thresholds, with_context: bool
) -> tuple[tuple[int, int], ...] | None:
    dims = deployment.dims
    return ranges_for(
        deployment.backend, deployment.tensor_parallel, dims.qk, dims.v, with_context, table
    )


def _advice(
    serving: Serving,
    deployment: Deployment,
    prompts: Sequence[Prompt],
    chunk: int,
    table: Thresholds,
) -> list[Advice]:
    found: list[Advice] = []
    found += _forced(serving)
    found += _quantised_cache(serving, deployment, prompts, chunk, table)
    found += _larger_chunk(deployment, prompts, chunk, table)
    found += _missing_row(serving, deployment, table)
    found += _other_parallelism(serving, prompts, chunk, table)
    found += _short_prompts(deployment, prompts)
    found += _hardware(deployment)
    found.append(
        Advice(
            "prefill-only",
            "The tiers touch prompts alone: a step that verifies drafts has few new tokens and is always "
            "sparse MQA.",
        )
    )
    return found


def _forced(serving: Serving) -> list[Advice]:
    if serving.dims.sink:
        return [Advice("sink", "The model's learnable sink forces sparse MQA for prompts, too.")]
    if serving.force_mqa:
        text = "sparse_mla_force_mqa turns dense and masked MHA off."
        return [Advice("forced", text, "--attention-config.sparse_mla_force_mqa=false")]
    return []


def _quantised_cache(
    serving: Serving,
    deployment: Deployment,
    prompts: Sequence[Prompt],
    chunk: int,
    table: Thresholds,
) -> list[Advice]:
    if not quantized(deployment.kv_dtype):
        return []
    full = replace(serving, kv_dtype="bfloat16", backend=None)
    try:
        other, _ = choose(full)
    except MLAError:
        return []
    there = (_prompt(other, prompt.tokens, chunk, table) for prompt in prompts)
    gained = [prompt for prompt in there if "masked_mha" in prompt.tiers]
    if not gained:
        return []
    small = kv_bytes_per_token(serving.dims, deployment.kv_dtype, deployment.backend)
    large = kv_bytes_per_token(serving.dims, other.kv_dtype, other.backend)
    default = serving.kv_dtype == "auto"
    which = "vLLM's default KV cache for this model is" if default else "The KV cache is"
    text = (
        f"{which} quantised ({small} instead of {large} bytes a token and layer), which gives masked MHA up: "
        f"with an unquantised one {_prompts_taking(gained)}."
    )
    return [Advice("fp8-or-masked", text, "--kv-cache-dtype bfloat16")]


def _larger_chunk(
    deployment: Deployment, prompts: Sequence[Prompt], chunk: int, table: Thresholds
) -> list[Advice]:
    found = []
    for prompt in prompts:
        if prompt.tokens <= chunk or prompt.tiers == ("masked_mha",):
            continue
        whole = decide(deployment, step_of(prompt.tokens, 0), table)
        if whole.tier == "masked_mha":
            found.append(prompt.tokens)
    if not found:
        return []
    need = max(found)
    text = (
        f"Prompts of {_numbers(found)} tokens would take masked MHA whole if they came in one step: chunks "
        f"of {chunk:,} have too few new tokens for vLLM's table. It needs memory for the larger step."
    )
    return [Advice("chunk", text, f"--max-num-batched-tokens {need}")]


def _missing_row(serving: Serving, deployment: Deployment, table: Thresholds) -> list[Advice]:
    if deployment.gpu.capability != 10 or quantized(deployment.kv_dtype):
        return []
    if _ranges(deployment, table, False) is not None:
        return []
    for backend in BACKENDS:
        try:
            other, _ = choose(replace(serving, backend=backend))
        except MLAError:
            continue
        if _ranges(other, table, False) is not None:
            text = (
                f"vLLM's table has no row for {deployment.backend} at TP{serving.tensor_parallel}, so "
                f"masked MHA never fires; it has one for {backend}."
            )
            return [Advice("no-row", text, f"--attention-backend {backend}")]
    return []


def _other_parallelism(
    serving: Serving, prompts: Sequence[Prompt], chunk: int, table: Thresholds
) -> list[Advice]:
    """Which other tensor-parallel size would give more of these prompts an MHA form."""
    now = _mha_prompts(serving, prompts, chunk, table)
    best: tuple[int, list[Prompt]] | None = None
    for size in (1, 2, 4, 8):
        if size == serving.tensor_parallel or serving.dims.total_heads % size:
            continue
        other = _mha_prompts(
            replace(serving, tensor_parallel=size, backend=None), prompts, chunk, table
        )
        gained = [prompt for tokens, prompt in sorted(other.items()) if tokens not in now]
        if gained and now.keys() <= other.keys() and (best is None or len(gained) > len(best[1])):
            best = (size, gained)
    if best is None:
        return []
    size, gained = best
    fewer = serving.dims.total_heads // size
    text = (
        f"At TP{size} ({fewer} heads a rank) {_prompts_taking(gained, 'an MHA tier')}; "
        "with data-parallel attention every rank keeps all heads, as at TP1."
    )
    return [Advice("parallelism", text, f"--tensor-parallel-size {size}")]


def _mha_prompts(
    serving: Serving, prompts: Sequence[Prompt], chunk: int, table: Thresholds
) -> dict[int, Prompt]:
    """The prompts of which some chunk takes an MHA tier, by their lengths."""
    try:
        deployment, _ = choose(serving)
    except MLAError:
        return {}
    served = (_prompt(deployment, prompt.tokens, chunk, table) for prompt in prompts)
    return {prompt.tokens: prompt for prompt in served if prompt.tiers != ("sparse_mqa",)}


def _prompts_taking(prompts: Sequence[Prompt], what: str = "it") -> str:
    """Who would take an MHA tier: whole prompts, and those of which only some chunks do."""
    whole = [prompt.tokens for prompt in prompts if "sparse_mqa" not in prompt.tiers]
    parted = [prompt for prompt in prompts if "sparse_mqa" in prompt.tiers]
    told = [f"prompts of {_numbers(whole)} tokens would take {what}"] if whole else []
    if parted:
        which = _which_chunks(parted)
        lengths = _numbers([prompt.tokens for prompt in parted])
        verb = f"would take {what}, the other chunks sparse MQA" if not whole else "would"
        told.append(f"{which} of prompts of {lengths} {'' if whole else 'tokens '}{verb}")
    return ", and ".join(told)


def _which_chunks(prompts: Sequence[Prompt]) -> str:
    """Which chunks of these prompts take an MHA tier, where the rest takes none."""
    taken = [[step.decision.tier != "sparse_mqa" for step in prompt.steps] for prompt in prompts]
    if any(chunks != sorted(chunks, reverse=True) for chunks in taken):
        return "some chunks"
    return (
        "the first chunk alone" if all(sum(chunks) == 1 for chunks in taken) else "the first chunks"
    )


def _short_prompts(deployment: Deployment, prompts: Sequence[Prompt]) -> list[Advice]:
    limit = deployment.decode_threshold
    short = [prompt.tokens for prompt in prompts if prompt.tokens <= limit]
    if not short:
        return []
    heads = deployment.dims.total_heads // deployment.tensor_parallel
    text = (
        f"Prompts of up to {limit} new tokens count as decoding with {heads} heads a rank "
        f"({deployment.backend}), although they would fit dense MHA; there is no setting for it."
    )
    return [Advice("short-prompts", text)]


def _hardware(deployment: Deployment) -> list[Advice]:
    gpu = deployment.gpu
    if gpu.capability != 10:
        text = (
            f"{gpu.name} has two tiers in vLLM 0.32, {TIER_TITLES['dense_mha']} and "
            f"{TIER_TITLES['sparse_mqa']}: the masked kernel exists for B200 and its family alone."
        )
        return [Advice("two-tiers", text)]
    if deployment.tensor_parallel > 1 and deployment.backend == "FLASHMLA_SPARSE":
        text = (
            "vLLM's thresholds seem to be of a time when FlashMLA padded to 128 heads; 0.32 pads to 64, "
            "which should move the true crossings down. Only a measurement on this GPU can tell."
        )
        return [Advice("stale-table", text)]
    return []


def _numbers(values: Sequence[int]) -> str:
    ordered = sorted(values)
    if len(ordered) > _MOST_NAMED:
        return f"{ordered[0]:,} to {ordered[-1]:,}"
    return ", ".join(f"{value:,}" for value in ordered)


def mask_share(step: PromptStep) -> float:
    """Share of vLLM's budget that the step's mask would take."""
    return mask_bytes(step_of(step.query_len, step.context_len)) / MASK_BUDGET_BYTES
