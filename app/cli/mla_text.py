"""What is known about sparse MLA tiers as plain text. Pure."""

from collections.abc import Iterator

from specpanel.kernels.explain import Explanation
from specpanel.kernels.prompt_steps import Prompt, PromptStep
from specpanel.kernels.vllm_rules import TIER_TITLES, VLLM_VERSION, Tier

_TIERS: tuple[Tier, ...] = ("dense_mha", "masked_mha", "sparse_mqa")
_HEADER = "prompt", "chunk", "vLLM takes", "taken", "dense", "masked", "sparse"


def explanation_text(explanation: Explanation, alarm: str | None) -> str:
    """The explanation as a person reads it, without a line end at its end."""
    return "\n".join(_lines(explanation, alarm))


def _lines(explanation: Explanation, alarm: str | None) -> Iterator[str]:
    serving, deployment = explanation.serving, explanation.deployment
    dims = serving.dims
    heads = dims.total_heads // serving.tensor_parallel
    tiers = ", ".join(TIER_TITLES[tier] for tier in explanation.can_fire)
    yield (
        f"{serving.gpu.name} ({serving.gpu.architecture}), TP{serving.tensor_parallel}: {heads} heads, "
        f"{dims.nope}+{dims.rope}/{dims.v} over a latent of {dims.lora}, top-k {dims.topk}"
    )
    yield (
        f"vLLM {VLLM_VERSION} takes {deployment.backend}, KV cache {deployment.kv_dtype} "
        f"({explanation.kv_bytes_per_token} bytes a token and layer), chunks of "
        f"{explanation.chunk_tokens:,} tokens"
    )
    for rejection in explanation.passed_over:
        yield f"  passed over {rejection.backend}: {rejection.reason}"
    yield f"Tiers that can fire: {tiers}."
    if alarm:
        yield f"! {alarm}"
    yield ""
    yield from _table(explanation.prompts)
    yield ""
    yield from _reasons(explanation.prompts)
    yield ""
    for advice in explanation.advice:
        setting = f"  [{advice.setting}]" if advice.setting else ""
        yield f"- {advice.text}{setting}"


def _table(prompts: tuple[Prompt, ...]) -> Iterator[str]:
    """Estimated milliseconds a layer beside what vLLM takes, a row a chunk and one for all of them.

    The estimate never decides.
    """
    yield _row(*_HEADER)
    for prompt in prompts:
        for step in _told(prompt):
            name = f"{prompt.tokens:,}" if step is prompt.steps[0] else ""
            span = f"{step.query_len:,}"
            if step.context_len:
                span += f" after {step.context_len:,}"
            taken = step.decision.tier
            costs = [_ms(step.estimates_ms[tier]) for tier in (taken, *_TIERS)]
            yield _row(name, span, TIER_TITLES[taken], *costs)
        left_out = len(prompt.steps) - len(_told(prompt))
        if left_out:
            yield _row("", f"… {left_out} more", TIER_TITLES[prompt.steps[-1].decision.tier])
        if len(prompt.steps) > 1:
            costs = [_ms(prompt.taken_ms), *(_ms(prompt.alone_ms(tier)) for tier in _TIERS)]
            yield _row("", f"all {len(prompt.steps)} chunks", _path(prompt), *costs)
    yield (
        "Estimates in ms a layer and rank; they explain and do not decide. taken: what vLLM takes; beside it "
        "the same chunks, all on one tier. n/a: no exact answer there."
    )


def _path(prompt: Prompt) -> str:
    """The tier of its chunks: the first one's and, where they differ, the last one's."""
    if len(prompt.tiers) == 1:
        return TIER_TITLES[prompt.tiers[0]]
    ends = (prompt.tiers[0], prompt.tiers[-1])
    return "→".join(TIER_TITLES[tier].partition(" ")[0] for tier in ends)


def _told(prompt: Prompt) -> tuple[PromptStep, ...]:
    """Its steps up to the last change of tier; a long prompt has many that are alike."""
    last = 0
    for at in range(1, len(prompt.steps)):
        if prompt.steps[at].decision.tier != prompt.steps[at - 1].decision.tier:
            last = at
    return prompt.steps[: last + 1]


def _row(prompt: str, chunk: str, tier: str, *costs: str) -> str:
    row = f"{prompt:>9}  {chunk:<24}{tier:<13}" + "".join(f"{cost:>9}" for cost in costs)
    return row.rstrip()


def _ms(value: float | None) -> str:
    if value is None:
        return "n/a"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _reasons(prompts: tuple[Prompt, ...]) -> Iterator[str]:
    """Why not another tier, said once for all prompts with the same reasons."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for prompt in prompts:
        for step in _told(prompt):
            told = []
            for tier in ("dense_mha", "masked_mha"):
                failed = step.why_not(tier)
                if failed:
                    reasons = "; ".join(condition.text for condition in failed)
                    told.append(f"not {TIER_TITLES[tier]}: {reasons}")
            where = f"{prompt.tokens:,}"
            if step.context_len:
                where += f" (after {step.context_len:,})"
            groups.setdefault(tuple(told), []).append(where)
    for reasons_told, names in groups.items():
        for reason in reasons_told:
            yield f"{', '.join(names)}: {reason}"
