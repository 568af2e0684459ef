"""Which of a model's layers keep what while a text grows: everything, a window, or one fixed state. Pure.

A growing layer keeps K and V of every token; a sliding layer those of its window; a linear or Mamba layer
one state a request. Field names are those of the checkpoints' own ``config.json``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SLIDING = frozenset({"sliding_attention", "chunked_attention", "swa", "local", "sliding"})
_STATE = frozenset({"linear_attention", "mamba", "mamba2", "conv", "recurrent", "gdn", "kda"})
USUAL_WINDOW = 4096  # tokens; what the families' own classes take where the file names no window
_NONE = frozenset({"mlp", "moe"})
# Checkpoints of these families name a window and use it only where ``use_sliding_window`` says so.
_WINDOW_ON_REQUEST = ("qwen2", "qwen3")


@dataclass(frozen=True, slots=True)
class LayerKinds:
    """How many layers of each kind there are; ``window`` is in tokens."""

    growing: int
    sliding: int = 0
    state: int = 0
    window: int | None = None


def layer_kinds(text: Mapping[str, Any], layers: int | None) -> LayerKinds | None:
    """The kinds of layers in a text configuration; None where not even their number is told."""
    window = text.get("sliding_window") or text.get("attention_chunk_size")
    window = window if isinstance(window, int) and window > 0 else None
    types = _types(text, layers)
    if types is not None:
        sliding = sum(kind in _SLIDING for kind in types)
        state = sum(kind in _STATE for kind in types)
        nothing = sum(kind in _NONE for kind in types)
        if sliding and window is None:
            window = USUAL_WINDOW
        return LayerKinds(len(types) - sliding - state - nothing, sliding, state, window)
    if layers is None:
        return None
    if window is not None and _uses_window(text):
        return LayerKinds(0, layers, 0, window)
    return LayerKinds(layers)


def _types(text: Mapping[str, Any], layers: int | None) -> list[str] | None:
    types = text.get("layer_types") or text.get("layers_block_type")
    if isinstance(types, list) and types:
        return [str(kind) for kind in types]
    pattern = text.get(
        "hybrid_override_pattern"
    )  # Nemotron-H: M is Mamba, * attention, - and E none
    if isinstance(pattern, str) and pattern:
        return [{"M": "mamba", "*": "full", "-": "mlp", "E": "moe"}.get(c, "full") for c in pattern]
    linear = text.get("linear_attn_config")  # Kimi Linear: the numbers of its full layers
    full = linear.get("full_attn_layers") if isinstance(linear, Mapping) else None
    if isinstance(full, list) and layers:
        return ["full"] * len(full) + ["kda"] * (layers - len(full))
    every = text.get("sliding_window_pattern")  # Gemma 3: one full layer in so many
    if isinstance(every, int) and every > 1 and layers:
        return ["full" if (n + 1) % every == 0 else "sliding" for n in range(layers)]
    every = text.get("full_attention_interval")  # Qwen3-Next
    if isinstance(every, int) and every > 1 and layers:
        return ["full" if (n + 1) % every == 0 else "linear_attention" for n in range(layers)]
    return None


def _uses_window(text: Mapping[str, Any]) -> bool:
    asked = text.get("use_sliding_window")
    if str(text.get("model_type", "")).startswith(_WINDOW_ON_REQUEST):
        return asked is True
    return asked is not False


def indexer_layers(text: Mapping[str, Any], layers: int | None) -> int | None:
    """Layers with an indexer of their own in sparse MLA; the others use the choice of a layer before.

    vLLM 0.32.0, ``model_executor/models/deepseek_v2.py`` (``index_topk_freq``, ``index_topk_pattern``).
    """
    if text.get("index_topk") is None or layers is None:
        return None
    kinds = text.get("indexer_types")
    if isinstance(kinds, list) and kinds:
        return len([kind for kind in kinds[:layers] if kind != "shared"])
    pattern = text.get("index_topk_pattern")
    if isinstance(pattern, str | list) and pattern:
        own = [kind for kind in list(pattern)[:layers] if kind != "S"]
        return len(own) + max(0, layers - len(pattern))
    every, offset = text.get("index_topk_freq", 1), text.get("index_skip_topk_offset", 2)
    if not isinstance(every, int) or not isinstance(offset, int) or every < 1:
        return layers
    return sum(max(n - offset + 1, 0) % every == 0 for n in range(layers))
