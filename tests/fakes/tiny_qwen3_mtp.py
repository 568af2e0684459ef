"""A target with an MTP layer of its own: a random Qwen3 of two layers with SmolLM2's tokenizer.

No Qwen3 of the size of this one is published with such a layer; the names of its tensors are those of the
larger ones (``mtp.fc``, ``mtp.norm``, ``mtp.pre_fc_norm_*``, ``mtp.layers.0``).
"""

from pathlib import Path

import numpy as np
from fakes.tiny_model import HEAD_DIM, HIDDEN, Weights, ones, vocabulary_of, write_model

LAYERS = 2


def write_tiny_qwen3_mtp(folder: Path, tokenizer: Path) -> Path:
    """Write the model into ``folder``; ``tokenizer`` is the folder of a model that has one."""
    vocabulary = vocabulary_of(tokenizer)
    weights = Weights()
    tensors = {
        "model.embed_tokens.weight": weights.matrix(vocabulary, HIDDEN),
        "model.norm.weight": ones(HIDDEN),
        "lm_head.weight": weights.matrix(vocabulary, HIDDEN),
        "mtp.fc.weight": weights.matrix(HIDDEN, 2 * HIDDEN),
        "mtp.norm.weight": ones(HIDDEN),
        "mtp.pre_fc_norm_hidden.weight": ones(HIDDEN),
        "mtp.pre_fc_norm_embedding.weight": ones(HIDDEN),
        **_layer(weights, "mtp.layers.0."),
    }
    for number in range(LAYERS):
        tensors |= _layer(weights, f"model.layers.{number}.")
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "mtp_num_hidden_layers": 1,
        "num_hidden_layers": LAYERS,
        "rms_norm_eps": 1e-06,
    }
    return write_model(folder, tokenizer, tensors, config)


def _layer(weights: Weights, place: str) -> dict[str, np.ndarray]:
    return {
        **weights.layer(place),
        f"{place}self_attn.q_norm.weight": ones(HEAD_DIM),
        f"{place}self_attn.k_norm.weight": ones(HEAD_DIM),
    }
