"""Rules about the method beside other features: pipeline stages, ranks, LoRA, scheduling. Pure.

Read from vLLM 0.32.0: ``engine/arg_utils.py``, ``config/speculative.py``, ``config/vllm.py``.
"""

from collections.abc import Iterator
from typing import Any

from specpanel.core.preflight.arguments import (
    argument,
    data_parallel_size,
    pipeline_parallel_size,
    tensor_parallel_size,
    whole_argument,
)
from specpanel.core.preflight.rule import Remark, Rule, rule
from specpanel.core.preflight.runner import runner_of
from specpanel.core.preflight.surroundings import Surroundings
from specpanel.core.settings.profile import Profile

# Methods that keep asynchronous scheduling on a GPU (config/vllm.py); the others switch it off.
ASYNC_METHODS: frozenset[str] = frozenset(
    {"eagle", "eagle3", "mtp", "draft_model", "ngram_gpu", "dspark", "dflash"}
)


def _spec(profile: Profile) -> dict[str, Any]:
    return profile.drafter.speculative_config() or {}


@rule(
    "pipeline-parallel",
    "error",
    "Speculation over pipeline stages refuses to start in some versions and corrupts text in others.",
    "Use tensor parallelism, or say --force if you have checked its answers.",
)
def no_pipeline_under_speculation(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    stages = pipeline_parallel_size(profile)
    if stages > 1 and _spec(profile):
        yield Remark(
            f"speculation over {stages} pipeline stages refuses to start in some versions of vLLM "
            "and returns wrong text in others",
            "Use tensor parallelism, or say --force if you have checked its answers.",
            "engine.arguments",
            ("vllm-project/vllm issues 14117, 49355, 52069, 57755",),
        )


@rule(
    "draft-parallel-size",
    "error",
    "A drafter runs on one device or on as many as the target.",
    "Set draft_tensor_parallel_size to 1 or the target's.",
)
def draft_parallel_size_fits(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    chosen = _spec(profile).get("draft_tensor_parallel_size")
    ranks = tensor_parallel_size(profile)
    if chosen is not None and chosen not in {1, ranks}:
        yield Remark(
            f"draft_tensor_parallel_size is {chosen}, and only 1 or the target's {ranks} will do",
            f"Set it to 1{'' if ranks == 1 else f' or {ranks}'}.",
            "drafter.draft_tensor_parallel_size",
            mend=(("drafter.draft_tensor_parallel_size", None),),
        )


@rule(
    "lora-token-budget",
    "error",
    "With LoRA, a step must have room for every request's drafts.",
    "Raise --max-num-batched-tokens, or lower K or max_num_seqs.",
)
def lora_has_room(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    k, requests = profile.drafter.draft_tokens, profile.engine.max_num_seqs
    budget = whole_argument(profile, "--max-num-batched-tokens")
    if argument(profile, "--enable-lora") is None or not (k and requests and budget):
        return
    if budget < requests * (k + 1):
        fits = budget // (k + 1)
        yield Remark(
            f"with LoRA a step needs room for {requests} requests of K+1 = {k + 1} tokens, "
            f"{requests * (k + 1)} in all, and --max-num-batched-tokens is {budget}",
            f"Set max_num_seqs to {fits} or raise --max-num-batched-tokens.",
            "engine.max_num_seqs",
            mend=(("engine.max_num_seqs", fits),) if fits else (),
        )


@rule(
    "lora-without-drafter",
    "note",
    "LoRA changes the target and not the drafter: drafts fit an adapter less well.",
    "Compare acceptance with and without the adapter.",
)
def lora_is_the_targets(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    if argument(profile, "--enable-lora") is not None and _spec(profile).get("model"):
        yield Remark(
            "LoRA changes the target and not the drafter, which fits an adapter less well",
            "Compare acceptance with and without the adapter.",
            "engine.arguments",
        )


@rule(
    "dynamic-k-limits",
    "warning",
    "K by batch size is ignored under data parallelism; model runner V1 pays for it with piecewise "
    "graphs.",
    "Use one K.",
    also=("note",),
)
def dynamic_k_is_used(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    if not _spec(profile).get("num_speculative_tokens_per_batch_size"):
        return
    field = "drafter.k_by_batch_size"
    if data_parallel_size(profile) > 1:
        text = "K by batch size is switched off under data parallelism"
        yield Remark(text, "Use one K.", field, mend=((field, None),))
    elif runner_of(profile, around).name == "v1" and around.platform != "cpu":
        text = "K by batch size makes model runner V1 use piecewise CUDA graphs"
        yield Remark(text, "Compare with one K.", field, severity="note")


@rule(
    "async-scheduling-off",
    "note",
    "The method switches asynchronous scheduling off: compare with a baseline that does the same.",
    "Pass --no-async-scheduling to the baseline.",
)
def scheduling_stays_asynchronous(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    method = _spec(profile).get("method")
    if method is None or method in ASYNC_METHODS or around.platform not in ("cuda", "rocm"):
        return
    if argument(profile, "--no-async-scheduling") is None:
        yield Remark(
            f"{profile.drafter.method} switches asynchronous scheduling off, which plain decoding "
            "keeps: a comparison measures both",
            "Add --no-async-scheduling for a fair baseline.",
            "engine.arguments",
            mend=(("engine.arguments", [*profile.engine.arguments, "--no-async-scheduling"]),),
        )


RULES: tuple[Rule, ...] = (
    no_pipeline_under_speculation,
    draft_parallel_size_fits,
    lora_has_room,
    lora_is_the_targets,
    dynamic_k_is_used,
    scheduling_stays_asynchronous,
)
