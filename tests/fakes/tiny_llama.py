"""A target to train against within minutes: a random Llama of four layers with SmolLM2's tokenizer.

Random weights answer with nonsense, but always the same nonsense for the same prompt, so that there is
something to learn.
"""

import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, MLP = 64, 4, 2, 1, 32, 128
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def write_tiny_llama(folder: Path, tokenizer: Path) -> Path:
    """Write the model into ``folder``; ``tokenizer`` is the folder of a model that has one."""
    folder.mkdir(parents=True, exist_ok=True)
    original = json.loads((tokenizer / "config.json").read_text(encoding="utf-8"))
    vocabulary = int(original["vocab_size"])
    random = np.random.default_rng(5)

    def weight(rows: int, columns: int, scale: float = 1.0) -> np.ndarray:
        values = random.standard_normal((rows, columns)) * scale / np.sqrt(columns)
        return values.astype(np.float32)

    tensors = {
        "model.embed_tokens.weight": weight(vocabulary, HIDDEN, 4.0),
        "model.norm.weight": np.ones(HIDDEN, np.float32),
        "lm_head.weight": weight(vocabulary, HIDDEN, 2.0),
    }
    for layer in range(LAYERS):
        place = f"model.layers.{layer}."
        tensors |= {
            f"{place}input_layernorm.weight": np.ones(HIDDEN, np.float32),
            f"{place}post_attention_layernorm.weight": np.ones(HIDDEN, np.float32),
            f"{place}self_attn.q_proj.weight": weight(HEADS * HEAD_DIM, HIDDEN),
            f"{place}self_attn.k_proj.weight": weight(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{place}self_attn.v_proj.weight": weight(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{place}self_attn.o_proj.weight": weight(HIDDEN, HEADS * HEAD_DIM),
            f"{place}mlp.gate_proj.weight": weight(MLP, HIDDEN),
            f"{place}mlp.up_proj.weight": weight(MLP, HIDDEN),
            f"{place}mlp.down_proj.weight": weight(HIDDEN, MLP),
        }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": original["bos_token_id"],
        "dtype": "float32",
        "eos_token_id": original["eos_token_id"],
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "initializer_range": 0.02,
        "intermediate_size": MLP,
        "max_position_embeddings": 1024,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS,
        "rms_norm_eps": 1e-05,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": vocabulary,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for name in TOKENIZER_FILES:
        if (tokenizer / name).exists():
            shutil.copy(tokenizer / name, folder / name)
    return folder
