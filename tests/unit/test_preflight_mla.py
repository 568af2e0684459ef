"""Attention and MLA: backends by device, type and block size; what a CPU cannot; parallel sizes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specpanel.core.checkpoints.config import parse_config
from specpanel.core.checkpoints.weights import Weights
from specpanel.core.engine.interpreter_facts import InterpreterFacts, Platform
from specpanel.core.preflight.finding import Finding
from specpanel.core.preflight.rules import check
from specpanel.core.preflight.surroundings import (
    DeviceState,
    ModelState,
    PortState,
    Surroundings,
)
from specpanel.core.settings.attention_backends import BACKENDS
from specpanel.core.settings.profile import Profile

DENSE = {
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
    "rope_scaling": {"type": "yarn", "factor": 40},
    "torch_dtype": "bfloat16",
}
SPARSE = DENSE | {
    "architectures": ["DeepseekV32ForCausalLM"],
    "model_type": "deepseek_v32",
    "index_topk": 2048,
    "index_head_dim": 128,
}
GLM5 = SPARSE | {"architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa"}
HOPPER = DeviceState("NVIDIA H200", capability=(9, 0))
BLACKWELL = DeviceState("NVIDIA B200", capability=(10, 0))


def around(
    config: dict[str, Any], platform: Platform = "cuda", *devices: DeviceState
) -> Surroundings:
    facts = InterpreterFacts(
        *("/venv/bin/python", "3.12.1", "vllm", "0.32.0", platform, "module", None),
        frozenset({"vllm", "triton"}),
    )
    folder = Path("/models/t")
    target = ModelState(
        str(folder), "folder", parse_config(config, folder), Weights("safetensors", 1000, 1)
    )
    return Surroundings(
        interpreter=facts,
        platform=platform,
        port=PortState(8000, free=True),
        target=target,
        devices=tuple(devices) * 8 or None,
    )


def profile(**mla: Any) -> Profile:
    engine = mla.pop("engine", {})
    return Profile.model_validate({"target": {"model": "/models/t"}, "mla": mla, "engine": engine})


def told(launch: Profile, place: Surroundings) -> dict[str, Finding]:
    return {finding.code: finding for finding in check(launch, place)}


@pytest.mark.parametrize("config", [DENSE, SPARSE])
@pytest.mark.parametrize("device", [HOPPER, BLACKWELL])
def test_a_plain_launch_is_silent(config: dict[str, Any], device: DeviceState) -> None:
    assert told(profile(), around(config, "cuda", device)) == {}


@pytest.mark.parametrize("backend", [b for b in BACKENDS if b.kind != "gqa"], ids=lambda b: b.name)
def test_every_backend_is_legal_where_the_table_says_so(backend) -> None:
    device = DeviceState("a GPU", capability=((backend.capabilities or (9,))[0], 0))
    config = SPARSE if backend.kind == "sparse" else DENSE
    kept = {} if "auto" in backend.kv_types or not backend.kv_types else {"kv_cache_dtype": "fp8"}
    engine = {"cpu_kv_cache_gib": 2} if backend.platform == "cpu" else {}
    launch = profile(attention_backend=backend.name, rocm_aiter=True, engine=engine, **kept)
    place = around(config, backend.platform, *([device] if backend.platform == "cuda" else []))
    assert told(launch, place) == {}


def test_d22_a_block_size_that_the_backend_cannot_use_is_taken_out() -> None:
    launch = profile(attention_backend="FLASHMLA", block_size=16)
    finding = told(launch, around(DENSE, "cuda", HOPPER))["backend-block-size"]
    assert finding.mend == (("mla.block_size", None),)
    assert told(profile(attention_backend="FLASHMLA", block_size=128), around(DENSE)) == {}


def test_d23_a_cache_that_the_backend_cannot_read_is_told_with_what_it_reads() -> None:
    launch = profile(attention_backend="FLASH_ATTN_MLA", kv_cache_dtype="fp8")
    finding = told(launch, around(DENSE, "cuda", HOPPER))["backend-kv-type"]
    assert "auto, float16, bfloat16, not of fp8" in finding.text
    assert finding.field == "mla.kv_cache_dtype"


def test_a_type_and_a_block_size_that_no_backend_takes_together() -> None:
    launch = profile(kv_cache_dtype="fp8_e5m2", block_size=64)
    finding = told(launch, around(DENSE, "cuda", HOPPER))["no-backend-for-cache"]
    assert "NVIDIA H200" in finding.text
    assert any(line.startswith("FLASHMLA: ") for line in finding.evidence)


def test_a_backend_of_another_generation_platform_or_kind() -> None:
    hopper = around(DENSE, "cuda", HOPPER)
    finding = told(profile(attention_backend="CUTLASS_MLA"), hopper)["backend-capability"]
    assert "FLASHMLA" in finding.fix
    assert "CUTLASS_MLA" not in finding.fix
    assert "backend-not-here" in told(profile(attention_backend="ROCM_AITER_MLA"), hopper)
    assert "backend-not-here" in told(profile(attention_backend="FLASHMLA_SPARSE"), hopper)
    assert "backend-not-here" in told(profile(attention_backend="FLASH_ATTN"), hopper)
    unknown = told(profile(attention_backend="FLASHMLAA"), hopper)["backend-unknown"]
    assert unknown.severity == "warning"


def test_sparse_mla_on_a_cpu_is_refused_in_vllms_words() -> None:
    finding = told(profile(), around(SPARSE, "cpu"))["sparse-mla-on-cpu"]
    assert "Sparse Attention is not supported on CPU" in finding.text


def test_a_latent_that_is_not_compiled_for_a_cpu() -> None:
    place = around(DENSE | {"kv_lora_rank": 256}, "cpu")
    finding = told(profile(), place)["latent-size-on-cpu"]
    assert "320 values" in finding.text
    assert finding.mend == (("mla.disable_mla", True),)


def test_plain_rope_under_mla_is_an_error_on_a_cpu_only_and_has_a_way_out() -> None:
    plain = DENSE | {"rope_scaling": None}
    finding = told(profile(), around(plain, "cpu"))["plain-rope-on-cpu"]
    assert finding.severity == "error"
    assert "plain-rope-on-cpu" not in told(profile(), around(plain, "cuda", HOPPER))
    assert "plain-rope-on-cpu" not in told(profile(), around(DENSE, "cpu"))
    (dotted, arguments), *_ = finding.mend
    assert dotted == "engine.arguments"
    mended = profile(engine={"arguments": arguments})
    assert "plain-rope-on-cpu" not in told(mended, around(plain, "cpu"))


def test_a_cpu_keeps_the_latent_as_it_is_and_in_blocks_of_sixteen() -> None:
    place = around(DENSE, "cpu")
    findings = told(profile(kv_cache_dtype="fp8"), place)
    assert findings["mla-cache-on-cpu"].severity == "error"
    assert told(profile(block_size=64), place)["mla-cache-on-cpu"].severity == "note"
    assert "mla-cache-on-cpu" not in told(profile(block_size=16), place)


def test_amx_tiles_take_other_blocks_unless_cpu_mla_is_asked_for() -> None:
    place = replace(around(DENSE, "cpu"), amx=True)
    assert "mla-cache-on-cpu" not in told(profile(block_size=64), place)
    asked = profile(block_size=64, attention_backend="CPU_MLA")
    assert "mla-cache-on-cpu" in told(asked, place)


def test_deepseek_v4_has_a_path_of_its_own_on_a_cpu() -> None:
    v4 = SPARSE | {"model_type": "deepseek_v4", "compress_ratios": [4], "head_dim": 512}
    assert "sparse-mla-on-cpu" not in told(profile(), around(v4, "cpu"))


def test_glm5_gets_an_fp8_cache_by_default_on_blackwell_and_loses_masked_mha() -> None:
    place = around(GLM5, "cuda", BLACKWELL)
    finding = told(profile(), place)["masked-mha-off"]
    assert finding.severity == "note"
    assert finding.mend == (("mla.kv_cache_dtype", "bfloat16"),)
    assert "masked-mha-off" not in told(profile(kv_cache_dtype="bfloat16"), place)
    assert "masked-mha-off" not in told(profile(), around(GLM5, "cuda", HOPPER))
    deepseek = around(SPARSE, "cuda", BLACKWELL)
    assert "masked-mha-off" not in told(profile(), deepseek)
    assert "masked-mha-off" in told(profile(kv_cache_dtype="fp8"), deepseek)


@pytest.mark.parametrize(
    ("ranks", "dcp", "pcp", "legal"),
    [
        (8, 4, 1, True),
        (8, 3, 1, False),
        (1, 2, 1, False),
        (8, 2, 2, True),
        (8, 16, 2, True),
        (8, 4, 2, False),
    ],
)
def test_context_parallel_sizes_follow_vllms_rule(
    ranks: int, dcp: int, pcp: int, legal: bool
) -> None:
    launch = profile(
        decode_context_parallel_size=dcp,
        prefill_context_parallel_size=pcp,
        engine={"tensor_parallel_size": ranks},
    )
    found = told(launch, around(DENSE, "cuda", HOPPER))
    assert ("context-parallel-size" not in found) == legal


def test_sparse_mla_on_rocm_needs_aiter() -> None:
    place = around(SPARSE, "rocm")
    finding = told(profile(), place)["sparse-mla-without-aiter"]
    assert finding.mend == (("mla.rocm_aiter", True),)
    assert told(profile(rocm_aiter=True), place) == {}


def test_a_prefill_backend_of_another_platform_and_one_that_a_cpu_ignores() -> None:
    launch = profile(mla_prefill_backend="TRTLLM_RAGGED")
    assert told(launch, around(DENSE, "cpu"))["prefill-backend-not-here"].severity == "note"
    assert told(launch, around(DENSE, "rocm"))["prefill-backend-not-here"].severity == "error"
    assert (
        "Blackwell" in told(launch, around(DENSE, "cuda", HOPPER))["prefill-backend-not-here"].text
    )
    assert told(launch, around(DENSE, "cuda", BLACKWELL)) == {}


def test_mla_that_is_switched_off_says_what_it_costs() -> None:
    finding = told(profile(disable_mla=True), around(DENSE, "cuda", HOPPER))["mla-disabled"]
    assert "about 85 times as much" in finding.text  # 2 * 192 * 128 / 576


def test_settings_for_mla_mean_nothing_without_it() -> None:
    gqa = DENSE | {"kv_lora_rank": None, "model_type": "llama"}
    found = check(profile(force_sparse_mqa=True, mla_prefill_backend="FLASH_ATTN"), around(gqa))
    idle = [finding.field for finding in found if finding.code == "mla-settings-idle"]
    assert sorted(field or "" for field in idle) == [
        "mla.force_sparse_mqa",
        "mla.mla_prefill_backend",
    ]
