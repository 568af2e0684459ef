"""What could be changed about one way to serve a model, and what that would do to its prompts. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from specpanel.kernels.errors import MLAError
from specpanel.kernels.prompt_steps import Prompt, prompt_of, step_of
from specpanel.kernels.vllm_backends import BACKENDS, Serving, choose, kv_bytes_per_token
from specpanel.kernels.vllm_rules import (
    TIER_TITLES,
    Deployment,
    Thresholds,
    decide,
    quantized,
    ranges_of,
)

_MOST_NAMED = 3  # lengths in one sentence


@dataclass(frozen=True, slots=True)
class Advice:
    """Something that the user can change, and what it would do. ``setting``: vLLM's own, if any."""

    code: str
    text: str
    setting: str | None = None


def advice(
    serving: Serving,
    deployment: Deployment,
    prompts: Sequence[Prompt],
    chunk: int,
    table: Thresholds,
) -> list[Advice]:
    """What there is to say; ``deployment`` is what vLLM makes of ``serving``, ``chunk`` is in tokens."""
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
    there = (prompt_of(other, prompt.tokens, chunk, table) for prompt in prompts)
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
    if ranges_of(deployment, table, False) is not None:
        return []
    for backend in BACKENDS:
        try:
            other, _ = choose(replace(serving, backend=backend))
        except MLAError:
            continue
        if ranges_of(other, table, False) is not None:
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
    served = (prompt_of(deployment, prompt.tokens, chunk, table) for prompt in prompts)
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
