"""What the random models of a few layers share: their size, their tensors, and SmolLM2's tokenizer."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, MLP = 64, 2, 1, 32, 128
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


@dataclass(frozen=True, slots=True)
class Weights:
    """Random tensors, the same ones for the same calls in the same order."""

    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(5))

    def matrix(self, rows: int, columns: int, scale: float = 1.0) -> np.ndarray:
        values = self.random.standard_normal((rows, columns)) * scale / np.sqrt(columns)
        return values.astype(np.float32)

    def layer(self, place: str) -> dict[str, np.ndarray]:
        """The tensors of a decoder layer, their names behind ``place``."""
        return {
            f"{place}input_layernorm.weight": ones(HIDDEN),
            f"{place}post_attention_layernorm.weight": ones(HIDDEN),
            f"{place}self_attn.q_proj.weight": self.matrix(HEADS * HEAD_DIM, HIDDEN),
            f"{place}self_attn.k_proj.weight": self.matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{place}self_attn.v_proj.weight": self.matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{place}self_attn.o_proj.weight": self.matrix(HIDDEN, HEADS * HEAD_DIM),
            f"{place}mlp.gate_proj.weight": self.matrix(MLP, HIDDEN),
            f"{place}mlp.up_proj.weight": self.matrix(MLP, HIDDEN),
            f"{place}mlp.down_proj.weight": self.matrix(HIDDEN, MLP),
        }


def ones(size: int) -> np.ndarray:
    return np.ones(size, np.float32)


def vocabulary_of(tokenizer: Path) -> int:
    """How many tokens the model in the folder ``tokenizer`` knows."""
    return int(_config_of(tokenizer)["vocab_size"])


def write_model(
    folder: Path,
    tokenizer: Path,
    tensors: Mapping[str, np.ndarray],
    config: Mapping[str, Any],
) -> Path:
    """Write a model with the tokenizer of another; ``config`` is what it has of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(dict(tensors), folder / "model.safetensors", metadata={"format": "pt"})
    original = _config_of(tokenizer)
    whole = {
        "attention_bias": False,
        "bos_token_id": original["bos_token_id"],
        "dtype": "float32",
        "eos_token_id": original["eos_token_id"],
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "max_position_embeddings": 1024,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": int(original["vocab_size"]),
        **config,
    }
    (folder / "config.json").write_text(json.dumps(whole), encoding="utf-8")
    for name in _TOKENIZER_FILES:
        if (tokenizer / name).exists():
            shutil.copy(tokenizer / name, folder / name)
    return folder


def _config_of(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return read
