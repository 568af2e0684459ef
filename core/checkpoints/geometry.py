"""What a token costs in the KV cache, layer by layer. Pure.

A GQA layer keeps K and V, ``2 * kv_heads * head_dim`` values a token, its heads split over tensor parallel
ranks; an MLA layer keeps one latent of ``kv_lora_rank + qk_rope_head_dim`` values, whole on every rank
(vLLM 0.32.0, ``model_executor/layers/attention/mla_attention.py``); a sparse MLA layer with an indexer
keeps ``index_head_dim`` bytes and a float32 scale for each 128 of them (``models/deepseek_v2.py``).
Decode context parallelism splits the tokens themselves over ranks.
"""

from dataclasses import dataclass

from specpanel.core.checkpoints.config import ModelConfig

_DTYPE_BYTES: dict[str, float] = {
    "float32": 4,
    "float": 4,
    "float16": 2,
    "half": 2,
    "bfloat16": 2,
    "nvfp4": 0.5625,  # four bits a value and a one-byte scale for each 16
}
# Whole latents with their scales, in bytes a token and layer (vLLM 0.32.0).
_MLA_LATENT_BYTES: dict[str, int] = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}


@dataclass(frozen=True, slots=True)
class CacheLayers:
    """Layers of one kind on one rank: ``bytes_per_token`` is one layer's.

    ``window`` is the number of tokens that such a layer keeps; None: all of them.
    """

    kind: str
    layers: int
    bytes_per_token: float
    window: int | None = None

    @property
    def total_bytes_per_token(self) -> float:
        return self.layers * self.bytes_per_token


def dtype_bytes(dtype: str | None) -> float | None:
    """Bytes of one value of vLLM's ``dtype`` or KV cache type; None for one that is not known."""
    if dtype is None:
        return None
    name = dtype.removeprefix("torch.")
    if name in _DTYPE_BYTES:
        return _DTYPE_BYTES[name]
    return 1 if name.startswith(("fp8", "int8")) else None


def cache_layers(
    config: ModelConfig,
    *,
    dtype: str | None = None,
    kv_cache_dtype: str | None = None,
    tensor_parallel_size: int = 1,
    context_parallel_size: int = 1,
    without_mla: bool = False,
) -> tuple[CacheLayers, ...] | None:
    """What each kind of layer keeps of a token on one rank; None where the config is silent.

    Args:
        config: the target or the drafter.
        dtype: type that the weights are served in; the checkpoint's own where absent.
        kv_cache_dtype: vLLM's ``--kv-cache-dtype``; absent or "auto" means ``dtype``.
        tensor_parallel_size: ranks that a GQA layer's heads are split over.
        context_parallel_size: ranks that tokens are split over (``--decode-context-parallel-size``).
        without_mla: an MLA model is served with decompressed heads (``VLLM_MLA_DISABLE``).
    """
    served = config.dtype if dtype in {None, "auto"} else dtype
    kept = served if kv_cache_dtype in {None, "auto"} else kv_cache_dtype
    kinds = config.layer_kinds
    if kinds is None:
        return None
    if config.is_mla and not without_mla:
        latent = _latent_bytes(config, kept)
        if latent is None:
            return None
        found = [CacheLayers("MLA latent", kinds.growing, latent / context_parallel_size)]
        if config.is_sparse_mla and config.index_head_dim:
            row = config.index_head_dim + config.index_head_dim // 128 * 4
            count = kinds.growing if config.indexer_layers is None else config.indexer_layers
            found.append(CacheLayers("indexer", count, row / context_parallel_size))
        return tuple(found)
    row_bytes = _gqa_bytes(config, kept, tensor_parallel_size)
    if row_bytes is None:
        return None
    found = [CacheLayers("K and V", kinds.growing, row_bytes / context_parallel_size)]
    if kinds.sliding:
        found.append(CacheLayers("sliding window", kinds.sliding, row_bytes, kinds.window))
    return tuple(found)


def kv_bytes_per_token(
    config: ModelConfig,
    *,
    dtype: str | None = None,
    kv_cache_dtype: str | None = None,
    tensor_parallel_size: int = 1,
    context_parallel_size: int = 1,
) -> int | None:
    """Bytes that one more token takes in the KV cache of one rank; None where the config is silent.

    Layers that keep a window are left out: a long text does not grow them. Arguments as `cache_layers`.
    """
    found = cache_layers(
        config,
        dtype=dtype,
        kv_cache_dtype=kv_cache_dtype,
        tensor_parallel_size=tensor_parallel_size,
        context_parallel_size=context_parallel_size,
    )
    if found is None:
        return None
    return round(sum(each.total_bytes_per_token for each in found if each.window is None))


def _latent_bytes(config: ModelConfig, kept: str | None) -> float | None:
    if config.kv_lora_rank is None:
        return None
    if kept in _MLA_LATENT_BYTES:
        return _MLA_LATENT_BYTES[kept]
    size = dtype_bytes(kept)
    return None if size is None else (config.kv_lora_rank + (config.qk_rope_head_dim or 0)) * size


def _gqa_bytes(config: ModelConfig, kept: str | None, ranks: int) -> float | None:
    size = dtype_bytes(kept)
    if config.kv_heads is None or config.head_dim is None or size is None:
        return None
    heads = max(1, config.kv_heads // ranks)
    if config.kv_lora_rank is not None and config.qk_nope_head_dim:
        # An MLA model served without MLA keeps decompressed heads, values padded to the keys' width.
        values = 2 * (config.qk_nope_head_dim + (config.qk_rope_head_dim or 0))
    else:
        values = config.head_dim + (config.v_head_dim or config.head_dim)
    return heads * values * size
