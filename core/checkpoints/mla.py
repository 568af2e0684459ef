"""Which models have multi-head latent attention (MLA), from their configuration as data. Pure.

Read from vLLM 0.32.0, ``transformers_utils/model_arch_config_convertor.py`` (MLA) and
``model_executor/models/deepseek_v2.py`` (the sparse indexer).
"""

from collections.abc import Mapping
from typing import Any

MLA_MODEL_TYPES: frozenset[str] = frozenset(
    {
        "axk1",
        "bailing_hybrid",
        "bailing_hybrid_mtp",
        "bailing_hybrid_v3_mtp",
        "deepseek_mtp",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "deepseek_v4",
        "deepseek_v41",
        "dots3_note",
        "glm4_moe_lite",
        "glm4_moe_lite_mtp",
        "glm5_next",
        "glm5_next_text",
        "glm_moe_dsa",
        "hy_v4",
        "hy_v4_mtp",
        "k3_dspark",
        "kimi_k2",
        "kimi_linear",
        "longcat_flash",
        "pangu_ultra_moe",
        "pangu_ultra_moe_mtp",
    }
)


def has_mla(values: Mapping[str, Any]) -> bool:
    """Whether vLLM would run this text configuration with MLA. The family's name is not enough."""
    if values.get("model_type") not in MLA_MODEL_TYPES or values.get("is_causal") is False:
        return False
    if "compress_ratios" in values:
        return values.get("head_dim") is not None
    return values.get("kv_lora_rank") is not None


def has_sparse_mla(values: Mapping[str, Any]) -> bool:
    """Whether an indexer chooses the tokens that MLA attends to (DeepSeek sparse attention)."""
    return has_mla(values) and values.get("index_topk") is not None
