"""A mend that a finding offers is one that a form can set, and ends the finding."""

import json
from pathlib import Path
from typing import Any

import pytest

from specpanel.core.checkpoints.config import parse_config
from specpanel.core.checkpoints.weights import Weights
from specpanel.core.engine.interpreter_facts import InterpreterFacts, Platform
from specpanel.core.preflight.finding import as_table, first_mendable
from specpanel.core.preflight.rules import RULES, check
from specpanel.core.preflight.surroundings import (
    DeviceState,
    ModelState,
    PortState,
    Surroundings,
)
from specpanel.core.settings.profile import Profile
from specpanel.core.settings.rows import table_of, validated, with_value

GIB = 1024**3
TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 49152,
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "num_nextn_predict_layers": 2,
    "dtype": "bfloat16",
    "auto_map": {},
}
MLA = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
SPARSE = MLA | {
    "architectures": ["GlmMoeDsaForCausalLM"],
    "model_type": "glm_moe_dsa",
    "index_topk": 2048,
    "index_head_dim": 128,
}
BLACKWELL = DeviceState("NVIDIA B200", 180 * GIB, 100 * GIB, (10, 0))
SHORT = TARGET | {"max_position_embeddings": 512}

# What to launch, on what, over which target and drafter: each case breaks at least one rule with a mend.
CASES: dict[str, tuple[dict[str, Any], Platform, dict[str, Any], dict[str, Any] | None]] = {
    "a GPU method on a CPU": ({"drafter": {"method": "ngram_gpu", "k": 4}}, "cpu", TARGET, None),
    "a long context": ({"target": {"max_model_len": 9000}}, "cuda", TARGET, None),
    "a long context on a CPU": (
        {"target": {"max_model_len": 8192}},
        "cpu",
        MLA | {"max_position_embeddings": 8192},
        None,
    ),
    "an extreme window": (
        {"drafter": {"method": "ngram", "prompt_lookup_min": 1, "prompt_lookup_max": 50}},
        "cuda",
        TARGET,
        None,
    ),
    "K beyond MTP": ({"drafter": {"method": "mtp", "k": 4}}, "cuda", TARGET, None),
    "K beside MTP": ({"drafter": {"method": "mtp", "k": 3}}, "cuda", TARGET, None),
    "an old name": ({"drafter": {"method": "deepseek_mtp", "k": 2}}, "cuda", TARGET, None),
    "a short drafter": (
        {"drafter": {"method": "draft_model", "model": "/models/d"}},
        "cuda",
        TARGET,
        SHORT,
    ),
    "a drafter split otherwise": (
        {
            "drafter": {
                "method": "draft_model",
                "model": "/models/d",
                "draft_tensor_parallel_size": 2,
            }
        },
        "cuda",
        TARGET,
        TARGET,
    ),
    "made up acceptance": (
        {
            "drafter": {
                "method": "draft_model",
                "model": "/models/d",
                "rejection_sample_method": "synthetic",
                "synthetic_acceptance_length": 2.0,
            }
        },
        "cpu",
        TARGET,
        TARGET,
    ),
    "block rejection on V1": (
        {
            "drafter": {
                "method": "draft_model",
                "model": "/models/d",
                "rejection_sample_method": "block",
            }
        },
        "cpu",
        TARGET,
        TARGET,
    ),
    "adaptive on a CPU": (
        {"drafter": {"method": "mtp", "k": 2, "enable_adaptive_verification": True}},
        "cpu",
        TARGET,
        None,
    ),
    "a forced runner": (
        {"engine": {"environment": {"VLLM_USE_V2_MODEL_RUNNER": "1"}}},
        "cpu",
        TARGET,
        None,
    ),
    "open to all": (
        {"engine": {"host": "0.0.0.0", "environment": {"VLLM_SERVER_DEV_MODE": "1"}}},
        "cuda",
        TARGET,
        None,
    ),
    "a wrong backend and cache": (
        {"mla": {"attention_backend": "FLASH_ATTN_MLA", "block_size": 24, "kv_cache_dtype": "fp8"}},
        "cuda",
        MLA,
        None,
    ),
    "no backend at all": ({"mla": {"block_size": 24}}, "cuda", MLA, None),
    "plain rope on a CPU": ({}, "cpu", MLA, None),
    "a quantised latent on a CPU": (
        {"mla": {"kv_cache_dtype": "fp8", "block_size": 64}},
        "cpu",
        MLA,
        None,
    ),
    "another latent on a CPU": ({}, "cpu", MLA | {"kv_lora_rank": 256}, None),
    "masked MHA": ({}, "cuda", SPARSE, None),
    "context parallelism": ({"mla": {"decode_context_parallel_size": 3}}, "cuda", MLA, None),
    "MLA without MLA": ({"mla": {"force_sparse_mqa": True}}, "cuda", TARGET, None),
    "MLA switched off": ({"mla": {"disable_mla": True}}, "cuda", MLA, None),
    "AITER is off": ({}, "rocm", SPARSE, None),
    "too many ranks": ({"engine": {"tensor_parallel_size": 4}}, "cuda", TARGET, None),
    "heads that do not divide": ({"engine": {"tensor_parallel_size": 8}}, "cpu", TARGET, None),
    "KV heads that do not divide": (
        {
            "engine": {"tensor_parallel_size": 3},
            "drafter": {"method": "draft_model", "model": "/models/d"},
        },
        "cpu",
        TARGET,
        TARGET | {"num_attention_heads": 12, "num_key_value_heads": 2},
    ),
    "another platform": ({"engine": {"platform": "rocm"}}, "cuda", TARGET, None),
    "code of its own": ({"target": {"trust_remote_code": True}}, "cuda", TARGET, None),
}


def state(values: dict[str, Any]) -> ModelState:
    folder = Path("/models/x")
    return ModelState(
        str(folder), "folder", parse_config(values, folder), Weights("safetensors", GIB, 1)
    )


def surroundings(case: str) -> Surroundings:
    _, platform, target, drafter = CASES[case]
    facts = InterpreterFacts(
        *("/venv/bin/python", "3.12.1", "vllm", "0.32.0", platform, "module", None),
        frozenset({"vllm", "triton"}),
    )
    return Surroundings(
        interpreter=facts,
        platform=platform,
        port=PortState(8000, False, None, 4711, "python", 8001),
        target=state(target),
        drafter=drafter and state(drafter),
        free_memory_bytes=16 * GIB,
        devices=(BLACKWELL,) if platform == "cuda" else None,
    )


@pytest.mark.parametrize("case", CASES)
def test_a_mend_ends_its_finding(case: str) -> None:
    around = surroundings(case)
    profile = Profile.model_validate(
        CASES[case][0] | {"target": {"model": "/t", **CASES[case][0].get("target", {})}}
    )
    mendable = [finding for finding in check(profile, around) if finding.mend]
    # The taken port and the busy device are in every case; each must break a rule of its own beside them.
    assert {finding.code for finding in mendable} - {"port-taken", "device-busy"}, check(
        profile, around
    )
    for finding in mendable:
        if finding.code == "port-taken":
            continue  # what is free is a matter of the machine
        table = table_of(profile)
        for dotted, value in finding.mend:
            table = with_value(table, dotted, value)
        mended = validated(table)
        assert isinstance(mended, Profile), (finding, mended)
        left = [(each.code, each.field, each.severity) for each in check(mended, around)]
        assert (finding.code, finding.field, finding.severity) not in left, finding


@pytest.mark.parametrize("case", CASES)
def test_a_finding_is_whole_and_can_be_printed_as_json(case: str) -> None:
    profile = Profile.model_validate(CASES[case][0] | {"target": {"model": "/t"}})
    for finding in check(profile, surroundings(case)):
        assert finding.text
        assert not finding.text.endswith(".")
        assert finding.severity != "error" or finding.fix
        rule = next(rule for rule in RULES if rule.id == finding.code)
        assert finding.severity in (rule.severity, *rule.also)
        assert json.loads(json.dumps(as_table(finding)))["code"] == finding.code


def test_the_first_finding_that_settings_can_end_is_the_one_that_a_key_ends() -> None:
    profile = Profile.model_validate({"target": {"model": "/t", "max_model_len": 9000}})
    findings = check(profile, surroundings("a long context"))
    first = first_mendable(findings)
    assert first is not None
    assert first == next(finding for finding in findings if finding.mend)
    assert first_mendable(()) is None
