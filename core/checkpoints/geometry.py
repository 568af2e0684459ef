"""What a checkpoint costs in memory: bytes of KV cache a token, bytes of weights. Pure but for file sizes.

Formulas: a GQA layer keeps K and V, ``2 * kv_heads * head_dim`` values a token, split over tensor
parallel ranks; an MLA layer keeps one latent of ``kv_lora_rank + qk_rope_head_dim`` values, whole on every
rank (vLLM 0.32.0, ``model_executor/layers/attention/mla_attention.py``); a sparse MLA layer's indexer keeps
``index_head_dim`` bytes and one float32 scale for each 128 of them (``models/deepseek_v2.py``).
"""

from pathlib import Path

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


def dtype_bytes(dtype: str | None) -> float | None:
    """Bytes of one value of vLLM's ``dtype`` or KV cache type; None for one that is not known."""
    if dtype is None:
        return None
    name = dtype.removeprefix("torch.")
    if name in _DTYPE_BYTES:
        return _DTYPE_BYTES[name]
    return 1 if name.startswith(("fp8", "int8")) else None


def kv_bytes_per_token(
    config: ModelConfig,
    *,
    dtype: str | None = None,
    kv_cache_dtype: str | None = None,
    tensor_parallel_size: int = 1,
) -> int | None:
    """Bytes that one more token takes in the KV cache of one rank; None where the config is silent.

    Args:
        config: the target or the drafter; add the two up.
        dtype: type that the weights are served in; the checkpoint's own where absent.
        kv_cache_dtype: vLLM's ``--kv-cache-dtype``; absent or "auto" means ``dtype``.
        tensor_parallel_size: ranks that a GQA layer's heads are split over.
    """
    served = config.dtype if dtype in {None, "auto"} else dtype
    kept = served if kv_cache_dtype in {None, "auto"} else kv_cache_dtype
    if config.attention_layers is None:
        return None
    per_layer = (
        _mla_bytes(config, kept)
        if config.is_mla
        else _gqa_bytes(config, kept, tensor_parallel_size)
    )
    return None if per_layer is None else round(per_layer * config.attention_layers)


def _mla_bytes(config: ModelConfig, kept: str | None) -> float | None:
    indexer = 0
    if config.is_sparse_mla and config.index_head_dim:
        indexer = config.index_head_dim + config.index_head_dim // 128 * 4
    if kept in _MLA_LATENT_BYTES:
        return _MLA_LATENT_BYTES[kept] + indexer
    size = dtype_bytes(kept)
    if config.kv_lora_rank is None or size is None:
        return None
    return (config.kv_lora_rank + (config.qk_rope_head_dim or 0)) * size + indexer


def _gqa_bytes(config: ModelConfig, kept: str | None, ranks: int) -> float | None:
    size = dtype_bytes(kept)
    if config.kv_heads is None or config.head_dim is None or size is None:
        return None
    heads = max(1, config.kv_heads // ranks)
    return 2 * heads * config.head_dim * size


def weight_bytes(folder: Path) -> int | None:
    """Bytes of the weight files in a checkpoint's folder; None where there are none."""
    for pattern in ("*.safetensors", "*.bin", "*.pt", "*.gguf"):
        sizes = [file.stat().st_size for file in folder.glob(pattern) if file.is_file()]
        if sizes:
            return sum(sizes)
    return None
