"""A tiny target and drafters for it, written as Speculators 0.9 writes them: names, types, shapes, config.

The weights are random but for one direction, which decides everything: the target always answers with
the token ``ANSWER``, and each drafter's weights say how many of its K tokens are that token. So what vLLM
must accept is known before it runs:

- EAGLE-3 proposes it at every position: acceptance length K + 1.
- P-EAGLE has a vector for masked positions that turns the direction round: position 0 only, length 2.
- DFlash reads the target's own embedding at every position: length K + 1.

Random weights of the same shapes would load as well; these tell whether they arrived.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, MLP = 64, 4, 2, 1, 32, 96
AUX_LAYERS = (1, 2, 3)
POSITIONS = 2048
BYTES = 256
BOS, EOS = BYTES, BYTES + 1
VOCABULARY = 320
MASK = VOCABULARY - 1
ANSWER = ord("a")
# EAGLE-3 drafts from the first letters and signs only; ANSWER is its token 3.
DRAFT_VOCABULARY, OFFSET = 64, ANSWER - 3

Tensors = dict[str, np.ndarray[Any, Any]]


def write_target(folder: Path) -> Path:
    """A Llama of four layers over bytes that answers every prompt with ``aaaa…``."""
    random = np.random.default_rng(0)
    tensors: Tensors = {
        "model.embed_tokens.weight": _with_direction(random, VOCABULARY),
        "model.norm.weight": np.ones(HIDDEN, np.float32),
        "lm_head.weight": _head(random, VOCABULARY, ANSWER),
    }
    for layer in range(LAYERS):
        place = f"model.layers.{layer}."
        tensors |= _layer(random, place, HIDDEN)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "bos_token_id": BOS,
        "dtype": "bfloat16",
        "eos_token_id": EOS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "max_position_embeddings": POSITIONS,
        "model_type": "llama",
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS,
        "rms_norm_eps": 1e-05,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "tie_word_embeddings": False,
        "vocab_size": VOCABULARY,
    }
    _write(folder, config, tensors)
    _write_tokenizer(folder)
    return folder


def write_eagle3(folder: Path, target: Path) -> Path:
    """One layer of EAGLE-3 with a draft vocabulary of its own."""
    random = np.random.default_rng(1)
    tensors = {
        "embed_tokens.weight": _with_direction(random, VOCABULARY),
        "input_norm.weight": np.ones(3 * HIDDEN, np.float32),
        **_eagle(random, DRAFT_VOCABULARY, ANSWER - OFFSET),
        "d2t": np.full(DRAFT_VOCABULARY, OFFSET, np.int64),
        "t2d": np.isin(np.arange(VOCABULARY), OFFSET + np.arange(DRAFT_VOCABULARY)),
    }
    config = _config("eagle3", "Eagle3DraftModel", "Eagle3SpeculatorConfig", target, 3)
    config |= {
        "draft_vocab_size": DRAFT_VOCABULARY,
        "eagle_aux_hidden_state_layer_ids": list(AUX_LAYERS),
        "embed_requires_grad": False,
        "fc_norm": False,
        "norm_before_fc": True,
        "norm_before_residual": True,
        "norm_output": True,
        "target_hidden_size": None,
        "transformer_layer_config": _layer_config("llama"),
    }
    return _write(folder, config, tensors)


def write_p_eagle(folder: Path, target: Path) -> Path:
    """One layer of P-EAGLE whose masked positions point the other way."""
    random = np.random.default_rng(2)
    mask = np.zeros((1, 1, 3 * HIDDEN), np.float32)
    mask[..., 0] = mask[..., HIDDEN] = mask[..., 2 * HIDDEN] = -1.0
    tensors = {
        "embed_tokens.weight": _with_direction(random, VOCABULARY),
        **_eagle(random, VOCABULARY, ANSWER),
        "layers.0.self_attn.q_norm.weight": np.ones(HEAD_DIM, np.float32),
        "layers.0.self_attn.k_norm.weight": np.ones(HEAD_DIM, np.float32),
        "mask_hidden": mask,
    }
    config = _config("peagle", "PEagleDraftModel", "PEagleSpeculatorConfig", target, 8)
    config |= {
        "draft_vocab_size": VOCABULARY,
        "eagle_aux_hidden_state_layer_ids": list(AUX_LAYERS),
        "embed_requires_grad": True,
        "fc_norm": False,
        "mask_token_id": MASK,
        "norm_before_fc": False,
        "norm_before_residual": True,
        "norm_output": False,
        "target_hidden_size": None,
        "transformer_layer_config": _layer_config("qwen3"),
    }
    return _write(folder, config, tensors)


def write_dflash(folder: Path, target: Path, block_size: int = 8) -> Path:
    """One layer of DFlash, which shares the target's embedding and head."""
    random = np.random.default_rng(3)
    tensors = {
        "fc.weight": _combine(random),
        "hidden_norm.weight": np.ones(HIDDEN, np.float32),
        **_layer(random, "layers.0.", HIDDEN),
        "layers.0.self_attn.q_norm.weight": np.ones(HEAD_DIM, np.float32),
        "layers.0.self_attn.k_norm.weight": np.ones(HEAD_DIM, np.float32),
        "norm.weight": np.ones(HIDDEN, np.float32),
    }
    config = _config("dflash", "DFlashDraftModel", "DFlashSpeculatorConfig", target, block_size - 1)
    config |= {
        "aux_hidden_state_layer_ids": list(AUX_LAYERS),
        "block_size": block_size,
        "draft_vocab_size": VOCABULARY,
        "mask_token_id": MASK,
        "sample_from_anchor": False,
        "sliding_window_non_causal": False,
        "target_hidden_size": None,
        "transformer_layer_config": _layer_config("qwen3"),
    }
    return _write(folder, config, tensors)


# -- weights ---------------------------------------------------------------------------------


def _random(random: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    return (0.02 * random.standard_normal(shape)).astype(np.float32)


def _with_direction(random: np.random.Generator, rows: int) -> np.ndarray[Any, Any]:
    """An embedding in which every token points the same way along the first dimension."""
    table = _random(random, rows, HIDDEN)
    table[:, 0] = 1.0
    return table


def _head(random: np.random.Generator, rows: int, answer: int) -> np.ndarray[Any, Any]:
    """An output head that turns that direction into ``answer``, and its opposite into anything else."""
    table = _random(random, rows, HIDDEN)
    table[:, 0] = 0.0
    table[answer, 0] = 1.0
    return table


def _combine(random: np.random.Generator) -> np.ndarray[Any, Any]:
    """What joins three hidden states to one: the direction is their mean."""
    matrix = _random(random, HIDDEN, 3 * HIDDEN)
    matrix[0] = 0.0
    matrix[0, [0, HIDDEN, 2 * HIDDEN]] = 1 / 3
    return matrix


def _layer(random: np.random.Generator, place: str, width: int) -> Tensors:
    """A decoder layer whose attention reads ``width`` values; small, so that the direction stays."""
    return {
        f"{place}input_layernorm.weight": np.ones(HIDDEN, np.float32),
        f"{place}post_attention_layernorm.weight": np.ones(HIDDEN, np.float32),
        f"{place}self_attn.q_proj.weight": _random(random, HEADS * HEAD_DIM, width),
        f"{place}self_attn.k_proj.weight": _random(random, KV_HEADS * HEAD_DIM, width),
        f"{place}self_attn.v_proj.weight": _random(random, KV_HEADS * HEAD_DIM, width),
        f"{place}self_attn.o_proj.weight": _random(random, HIDDEN, HEADS * HEAD_DIM),
        f"{place}mlp.gate_proj.weight": _random(random, MLP, HIDDEN),
        f"{place}mlp.up_proj.weight": _random(random, MLP, HIDDEN),
        f"{place}mlp.down_proj.weight": _random(random, HIDDEN, MLP),
    }


def _eagle(random: np.random.Generator, vocabulary: int, answer: int) -> Tensors:
    return {
        "fc.weight": _combine(random),
        **_layer(random, "layers.0.", 2 * HIDDEN),
        "layers.0.hidden_norm.weight": np.ones(HIDDEN, np.float32),
        "lm_head.weight": _head(random, vocabulary, answer),
        "norm.weight": np.ones(HIDDEN, np.float32),
    }


# -- configuration ---------------------------------------------------------------------------


def _config(
    algorithm: str, architecture: str, config_class: str, target: Path, tokens: int
) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "auto_map": {"": f"config.{config_class}"},
        "dtype": "bfloat16",
        "speculators_config": {
            "algorithm": algorithm,
            "default_proposal_method": "greedy",
            "proposal_methods": [
                {
                    "accept_tolerance": 0.0,
                    "proposal_type": "greedy",
                    "speculative_tokens": tokens,
                    "verifier_accept_k": 1,
                }
            ],
            "verifier": {"architectures": ["LlamaForCausalLM"], "name_or_path": str(target)},
        },
        "speculators_model_type": algorithm,
        "speculators_version": "0.9.0",
        "tie_word_embeddings": False,
        "transformers_version": "5.19.0",
    }


def _layer_config(model_type: str) -> dict[str, Any]:
    shared = {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "initializer_range": 0.02,
        "intermediate_size": MLP,
        "layer_types": ["full_attention"],
        "max_position_embeddings": POSITIONS,
        "model_type": model_type,
        "num_attention_heads": HEADS,
        "num_hidden_layers": 1,
        "num_key_value_heads": KV_HEADS,
        "pad_token_id": None,
        "rms_norm_eps": 1e-05,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "tie_word_embeddings": False,
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": VOCABULARY,
    }
    if model_type == "llama":
        return shared | {
            "bos_token_id": 1,
            "eos_token_id": 2,
            "mlp_bias": False,
            "pretraining_tp": 1,
            "sliding_window": 2048,
        }
    return shared | {
        "bos_token_id": None,
        "eos_token_id": None,
        "max_window_layers": 28,
        "sliding_window": None,
    }


# -- files -----------------------------------------------------------------------------------


def _write(folder: Path, config: dict[str, Any], tensors: Tensors) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(config, indent=2, sort_keys=True)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")
    (folder / "model.safetensors").write_bytes(_safetensors(tensors))
    return folder


def _safetensors(tensors: Tensors) -> bytes:
    """The file: length of the header, the header as JSON, the data (bfloat16 for what is float)."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name, tensor in tensors.items():
        kind, raw = _raw(tensor)
        place = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": place}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + bytes(data)


def _raw(tensor: np.ndarray[Any, Any]) -> tuple[str, bytes]:
    if tensor.dtype == np.bool_:
        return "BOOL", tensor.tobytes()
    if tensor.dtype == np.int64:
        return "I64", tensor.astype("<i8").tobytes()
    bits = np.ascontiguousarray(tensor, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return "BF16", rounded.astype("<u2").tobytes()


def _write_tokenizer(folder: Path) -> None:
    """A token a byte, in the alphabet that byte-level tokenizers write bytes with."""
    vocabulary = {letter: number for number, letter in enumerate(_byte_letters())}
    special = [
        {
            "id": number,
            "content": name,
            "special": True,
            **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
        }
        for number, name in ((BOS, "<s>"), (EOS, "</s>"), (MASK, "<mask>"))
    ]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": False,
        },
        "post_processor": None,
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": [],
        },
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "mask_token": "<mask>",
        "model_max_length": POSITIONS,
        "chat_template": "{% for message in messages %}{{ message['content'] }}\n{% endfor %}",
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def _byte_letters() -> list[str]:
    """The printable letter that stands for each byte in a byte-level tokenizer, by the byte's value."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [byte for byte in range(BYTES) if byte not in plain]
    return [chr(byte if byte in plain else BYTES + hidden.index(byte)) for byte in range(BYTES)]
