"""config.json read as data: geometry, MLA, drafters, and files that are no configuration."""

import json
from pathlib import Path
from typing import Any

import pytest

from specpanel.core.checkpoints.config import (
    ModelConfig,
    looks_like_hub_id,
    parse_config,
    read_config,
)
from specpanel.core.checkpoints.geometry import dtype_bytes, kv_bytes_per_token
from specpanel.core.checkpoints.json_file import LIMIT_BYTES
from specpanel.core.checkpoints.weights import read_weights
from specpanel.core.errors import ConfigurationError

# Written after the published configurations; only the fields that matter here.
DEEPSEEK_V3 = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "num_nextn_predict_layers": 1,
    "max_position_embeddings": 163840,
    "vocab_size": 129280,
    "torch_dtype": "bfloat16",
    "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"},
    "quantization_config": {"quant_method": "fp8"},
    "rope_scaling": {"type": "yarn", "factor": 40},
}
DEEPSEEK_V32 = DEEPSEEK_V3 | {
    "model_type": "deepseek_v32",
    "index_topk": 2048,
    "index_head_dim": 128,
}
SMOL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 49152,
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "dtype": "bfloat16",
}


def parse(values: dict[str, Any]) -> ModelConfig:
    return parse_config(values, Path("/models/x"))


def folder_with(tmp_path: Path, content: bytes) -> Path:
    (tmp_path / "config.json").write_bytes(content)
    return tmp_path


def test_a_plain_models_geometry_is_read(tmp_path):
    config = read_config(folder_with(tmp_path, json.dumps(SMOL).encode()))
    assert config.architectures == ("LlamaForCausalLM",)
    assert (config.vocab_size, config.hidden_size, config.layers) == (49152, 576, 30)
    assert (config.attention_heads, config.kv_heads, config.head_dim) == (9, 3, 64)
    assert (config.max_positions, config.dtype) == (8192, "bfloat16")
    assert not config.is_mla
    assert config.mtp_layers is None
    assert config.speculators is None
    assert not config.scaled_rope


def test_a_kv_token_of_the_demo_model_costs_what_vllm_reports():
    # vLLM 0.32.0 on a CPU: 1 GiB in float32 is 23,296 tokens, in blocks of 128.
    per_token = kv_bytes_per_token(parse(SMOL), dtype="float32")
    assert per_token == 2 * 3 * 64 * 4 * 30
    assert 1024**3 // per_token // 128 * 128 == 23_296


@pytest.mark.parametrize(
    ("kv_cache_dtype", "expected"),
    [("auto", 70_272), ("bfloat16", 70_272), ("fp8", 35_136), ("fp8_ds_mla", 61 * 656)],
)
def test_a_kv_token_of_an_mla_model_is_one_latent_a_layer(kv_cache_dtype, expected):
    config = parse(DEEPSEEK_V3)
    assert config.is_mla
    assert not config.is_sparse_mla
    assert kv_bytes_per_token(config, kv_cache_dtype=kv_cache_dtype) == expected
    whole = kv_bytes_per_token(config, kv_cache_dtype=kv_cache_dtype, tensor_parallel_size=8)
    assert whole == expected  # every rank keeps the whole latent


def test_a_sparse_mla_model_keeps_an_indexer_as_well():
    config = parse(DEEPSEEK_V32)
    assert config.is_sparse_mla
    assert kv_bytes_per_token(config) == 61 * (1152 + 132)


def test_a_gqa_models_heads_are_split_over_ranks_but_never_below_one():
    config = parse(SMOL)
    assert kv_bytes_per_token(config, tensor_parallel_size=3) == 2 * 1 * 64 * 2 * 30
    assert kv_bytes_per_token(config, tensor_parallel_size=8) == 2 * 1 * 64 * 2 * 30


def test_layers_with_a_window_do_not_grow():
    kinds = ["sliding_attention"] * 20 + ["full_attention"] * 10
    config = parse(SMOL | {"layer_types": kinds})
    assert (config.layers, config.attention_layers) == (30, 10)


def test_s12f_a_family_name_alone_is_no_mla():
    assert not parse(DEEPSEEK_V3 | {"kv_lora_rank": None}).is_mla
    assert not parse(SMOL | {"kv_lora_rank": 512}).is_mla


def test_what_a_config_does_not_say_is_unknown():
    config = parse({"model_type": "mystery"})
    assert config.layers is None
    assert config.architectures == ()
    assert kv_bytes_per_token(config) is None


def test_mtp_remote_code_quantisation_and_scaled_positions_are_seen():
    config = parse(DEEPSEEK_V3)
    assert config.mtp_layers == 1
    assert config.remote_code
    assert config.quantization == "fp8"
    assert config.scaled_rope


@pytest.mark.parametrize(
    "wrap",
    [
        lambda text: {"text_config": text},
        lambda text: {"thinker_config": {"text_config": text}},
        lambda text: {"llm_config": text},
    ],
)
def test_the_language_model_in_a_multimodal_one_is_found(wrap):
    config = parse({"architectures": ["SomethingVL"], "model_type": "vl", **wrap(SMOL)})
    assert config.architectures == ("SomethingVL",)
    assert (config.hidden_size, config.layers, config.vocab_size) == (576, 30, 49152)


def test_a_drafter_in_the_speculators_format_is_understood():
    config = parse(
        {
            "architectures": ["Eagle3DraftModel"],
            "speculators_model_type": "eagle3",
            "draft_vocab_size": 8192,
            "eagle_aux_hidden_state_layer_ids": [2, 15, 27],
            "transformer_layer_config": SMOL | {"num_hidden_layers": 1},
            "speculators_config": {
                "algorithm": "eagle3",
                "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
                "verifier": {"name_or_path": "/scratch/job91/base"},
            },
        }
    )
    assert config.speculators is not None
    assert config.speculators.algorithm == "eagle3"
    assert config.speculators.draft_tokens == 3
    assert config.speculators.verifier == "/scratch/job91/base"
    assert (config.layers, config.hidden_size, config.draft_vocab_size) == (1, 576, 8192)
    assert config.aux_layers == (2, 15, 27)


@pytest.mark.parametrize("section", [[], {}, {"proposal_methods": []}, {"verifier": "x"}])
def test_a_damaged_speculators_section_does_not_stop_the_reading(section):
    config = parse(SMOL | {"speculators_config": section})
    assert config.speculators is None or config.speculators.verifier is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"<!DOCTYPE html><html></html>", "is a web page, not JSON"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b"\xff\xfe{}", "is not text in UTF-8"),
        (b'{"hidden_size": NaN}', "holds NaN"),
        (b"[]", "not an object"),
        (b'{"a": 1,}', "line 1"),
        (b"", "is not JSON"),
        (b"[" * 200_000, "nested too deeply"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "Git LFS pointer"),
        (b'{"hidden_size": "wide"}', "hidden_size is 'wide' and should be a whole number"),
        (b'{"num_hidden_layers": true}', "num_hidden_layers is 'True'"),
        (b'{"num_hidden_layers": -1}', "num_hidden_layers is '-1'"),
        (b'{"architectures": "LlamaForCausalLM"}', "a list of names"),
        (b" " * (LIMIT_BYTES + 1), "too much for a model's configuration"),
    ],
)
def test_s12h_a_file_that_is_no_configuration_gives_a_readable_error(tmp_path, content, reason):
    with pytest.raises(ConfigurationError, match=r"config\.json") as caught:
        read_config(folder_with(tmp_path, content))
    assert reason in caught.value.message
    assert caught.value.fix


def test_infinity_is_accepted_as_real_files_hold_it(tmp_path):
    content = b'{"time_step_limit": [0.0, Infinity], "hidden_size": 4096.0}'
    assert read_config(folder_with(tmp_path, content)).hidden_size == 4096


def test_missing_folders_and_files_are_told_apart(tmp_path):
    with pytest.raises(ConfigurationError, match="does not exist"):
        read_config(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match=r"holds no config\.json"):
        read_config(tmp_path)
    (tmp_path / "weights.gguf").touch()
    with pytest.raises(ConfigurationError, match="is a file, not a folder"):
        read_config(tmp_path / "weights.gguf")


def test_weights_are_counted_and_absent_ones_are_unknown(tmp_path):
    assert read_weights(tmp_path) is None
    (tmp_path / "pytorch_model.bin").write_bytes(b"x" * 100)
    assert (read_weights(tmp_path).kind, read_weights(tmp_path).total_bytes) == ("pickle", 100)
    (tmp_path / "model-00001.safetensors").write_bytes(b"x" * 10)
    (tmp_path / "model-00002.safetensors").write_bytes(b"x" * 5)
    assert (read_weights(tmp_path).kind, read_weights(tmp_path).total_bytes) == ("safetensors", 15)


@pytest.mark.parametrize("model", ["Qwen/Qwen3-8B", "meta-llama/Llama-3.1-8B-Instruct", "a/b"])
def test_hub_ids_are_recognised(model):
    assert looks_like_hub_id(model)


@pytest.mark.parametrize(
    "model",
    [
        "",
        "/models/x",
        "./x/y",
        "../x",
        "~/x",
        "x",
        "a/b/c",
        "a/b/",
        "a/..",
        "a--b/c",
        "a/b c",
        "a/b\n",
    ],
)
def test_paths_are_no_hub_ids(model):
    assert not looks_like_hub_id(model)


@pytest.mark.parametrize(
    ("dtype", "size"), [("torch.bfloat16", 2), ("fp8_e4m3", 1), ("float32", 4), ("odd", None)]
)
def test_types_have_sizes(dtype, size):
    assert dtype_bytes(dtype) == size
