"""A target with an MTP layer of its own: a random Qwen3 of two layers with SmolLM2's tokenizer.

No Qwen3 of the size of this one is published with such a layer; the names of its tensors are those of the
larger ones (``mtp.fc``, ``mtp.norm``, ``mtp.pre_fc_norm_*``, ``mtp.layers.0``).
"""

import json
import shutil
from pathlib import Path

import numpy as np
from fakes.tiny_llama import HEAD_DIM, HEADS, HIDDEN, KV_HEADS, MLP, TOKENIZER_FILES
from safetensors.numpy import save_file

LAYERS = 2


def write_tiny_qwen3_mtp(folder: Path, tokenizer: Path) -> Path:
    """Write the model into ``folder``; ``tokenizer`` is the folder of a model that has one."""
    folder.mkdir(parents=True, exist_ok=True)
    original = json.loads((tokenizer / "config.json").read_text(encoding="utf-8"))
    vocabulary = int(original["vocab_size"])
    random = np.random.default_rng(5)

    def weight(rows: int, columns: int) -> np.ndarray:
        values = random.standard_normal((rows, columns)) / np.sqrt(columns)
        return values.astype(np.float32)

    def layer(place: str) -> dict[str, np.ndarray]:
        return {
            f"{place}input_layernorm.weight": np.ones(HIDDEN, np.float32),
            f"{place}post_attention_layernorm.weight": np.ones(HIDDEN, np.float32),
            f"{place}self_attn.q_proj.weight": weight(HEADS * HEAD_DIM, HIDDEN),
            f"{place}self_attn.k_proj.weight": weight(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{place}self_attn.v_proj.weight": weight(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{place}self_attn.o_proj.weight": weight(HIDDEN, HEADS * HEAD_DIM),
            f"{place}self_attn.q_norm.weight": np.ones(HEAD_DIM, np.float32),
            f"{place}self_attn.k_norm.weight": np.ones(HEAD_DIM, np.float32),
            f"{place}mlp.gate_proj.weight": weight(MLP, HIDDEN),
            f"{place}mlp.up_proj.weight": weight(MLP, HIDDEN),
            f"{place}mlp.down_proj.weight": weight(HIDDEN, MLP),
        }

    tensors = {
        "model.embed_tokens.weight": weight(vocabulary, HIDDEN),
        "model.norm.weight": np.ones(HIDDEN, np.float32),
        "lm_head.weight": weight(vocabulary, HIDDEN),
        "mtp.fc.weight": weight(HIDDEN, 2 * HIDDEN),
        "mtp.norm.weight": np.ones(HIDDEN, np.float32),
        "mtp.pre_fc_norm_hidden.weight": np.ones(HIDDEN, np.float32),
        "mtp.pre_fc_norm_embedding.weight": np.ones(HIDDEN, np.float32),
        **layer("mtp.layers.0."),
    }
    for number in range(LAYERS):
        tensors |= layer(f"model.layers.{number}.")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "bos_token_id": original["bos_token_id"],
        "dtype": "float32",
        "eos_token_id": original["eos_token_id"],
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "max_position_embeddings": 1024,
        "model_type": "qwen3",
        "mtp_num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS,
        "rms_norm_eps": 1e-06,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": vocabulary,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for name in TOKENIZER_FILES:
        if (tokenizer / name).exists():
            shutil.copy(tokenizer / name, folder / name)
    return folder
