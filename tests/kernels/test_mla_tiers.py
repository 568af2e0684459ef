"""What a launch says of its sparse MLA tiers, and how a profile's settings are read for it and written."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specpanel.core.checkpoints.config import parse_config
from specpanel.core.preflight.surroundings import (
    DeviceState,
    ModelState,
    PortState,
    Surroundings,
)
from specpanel.core.session.mla_tiers import (
    MlaChoices,
    choices_of,
    difference,
    tier_sentences,
    with_choices,
)
from specpanel.core.settings.profile import Profile

V32 = {
    "architectures": ["DeepseekV32ForCausalLM"],
    "model_type": "deepseek_v32",
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "index_topk": 2048,
}
GLM5 = V32 | {
    "architectures": ["GlmMoeDsaForCausalLM"],
    "model_type": "glm_moe_dsa",
    "num_attention_heads": 64,
    "qk_nope_head_dim": 192,
    "v_head_dim": 256,
}
B200 = DeviceState("NVIDIA B200", capability=(10, 0))
H200 = DeviceState("NVIDIA H200 NVL", capability=(9, 0))
MI300X = DeviceState("AMD Instinct MI300X OAM")


def profile(model: str = "/models/t", *, tp: int = 8, **mla: Any) -> Profile:
    table = {"name": "p", "target": {"model": model}, "drafter": {"method": "none"}}
    return Profile.model_validate({**table, "engine": {"tensor_parallel_size": tp}, "mla": mla})


def around(target: ModelState, *devices: DeviceState, platform: Any = "cuda") -> Surroundings:
    return Surroundings(None, platform, PortState(8000, True), target, devices=devices)


def folder(tmp_path: Path, config: dict[str, Any]) -> ModelState:
    (tmp_path / "config.json").write_text(json.dumps(config))
    return ModelState(str(tmp_path), "folder", parse_config(config, tmp_path))


def test_on_b200_all_three_can_fire_and_a_quantised_cache_takes_one_away(tmp_path: Path) -> None:
    place = around(folder(tmp_path, V32), B200)
    (sentence,) = tier_sentences(profile(), place)
    assert "prompts can take dense MHA, masked MHA and sparse MQA (B200, TP8" in sentence
    assert "chunks of 16,384 tokens" in sentence
    first, why = tier_sentences(profile(kv_cache_dtype="fp8"), place)
    assert "dense MHA and sparse MQA (B200" in first
    assert why == "never masked MHA: KV cache dtype fp8 is quantised"


@pytest.mark.parametrize(
    ("device", "platform", "name"), [(H200, "cuda", "H200"), (MI300X, "rocm", "MI300X")]
)
def test_elsewhere_two_tiers_can_fire(
    device: DeviceState, platform: str, name: str, tmp_path: Path
) -> None:
    first, why = tier_sentences(profile(), around(folder(tmp_path, V32), device, platform=platform))
    assert f"dense MHA and sparse MQA ({name}" in first
    assert "SM100 family alone" in why


def test_glm5_has_no_masked_tier_by_default_on_b200_and_says_why(tmp_path: Path) -> None:
    place = around(folder(tmp_path, GLM5), B200)
    _, why = tier_sentences(profile(), place)
    assert why == "never masked MHA: KV cache dtype fp8_e4m3 is quantised"
    (sentence,) = tier_sentences(profile(kv_cache_dtype="bfloat16"), place)
    assert "masked MHA" in sentence


def test_a_chunk_that_no_row_of_the_table_admits_is_the_reason(tmp_path: Path) -> None:
    table = profile(tp=1).model_dump(mode="json", exclude_unset=True)
    table["engine"]["arguments"] = ["--max-num-batched-tokens=2048"]
    small = Profile.model_validate(table)
    first, why = tier_sentences(small, around(folder(tmp_path, V32), B200))
    assert "chunks of 2,048 tokens" in first
    assert why == (
        "never masked MHA: for sequences up to 4,096 vLLM masks from 4,096 new tokens on: 2,048 < 4,096"
    )


def test_a_known_hub_id_is_told_by_its_name_and_an_unknown_gpu_as_such() -> None:
    target = ModelState("deepseek-ai/DeepSeek-V3.2", "hub")
    sentences = tier_sentences(profile(target.name), around(target, B200))
    assert "by the model's name" in sentences[0]
    unknown = DeviceState("Tesla T4", capability=(7, 5))
    (sentence,) = tier_sentences(profile(target.name), around(target, unknown))
    assert "GPU, which is not known here" in sentence


def test_what_vllm_would_refuse_is_told(tmp_path: Path) -> None:
    target = folder(tmp_path, V32)
    (sentence,) = tier_sentences(profile(tp=3), around(target, B200))
    assert "128 heads cannot be divided among 3 ranks" in sentence


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_models_that_do_not_attend_sparsely_and_cpus_have_nothing_to_say(
    platform: str, tmp_path: Path
) -> None:
    dense = {key: value for key, value in V32.items() if key != "index_topk"} | {
        "model_type": "deepseek_v3"
    }
    config = V32 if platform == "cpu" else dense
    place = around(folder(tmp_path, config), B200, platform=platform)
    assert tier_sentences(profile(), place) == ()
    assert tier_sentences(profile(), around(ModelState("x/unknown", "hub"), B200)) == ()


def test_choices_that_are_written_are_read_back_and_nothing_else_changes() -> None:
    before = Profile.model_validate(
        {
            "name": "p",
            "target": {"model": "m/x"},
            "engine": {"arguments": ["--max_num_batched_tokens", "4096", "--seed", "1"]},
            "drafter": {"method": "mtp", "k": 2},
            "mla": {"backend_per_kind": {"mla_attention": "FLASHMLA_SPARSE"}},
        }
    )
    own = choices_of(before)
    assert own == MlaChoices(chunk_tokens=4096, backend="FLASHMLA_SPARSE", draft_tokens=2)
    assert with_choices(before, own) == before
    tried = MlaChoices(4, "bfloat16", "FLASHINFER_MLA_SPARSE", 8192, 2, True, 2)
    after = with_choices(before, tried)
    assert choices_of(after) == tried
    assert after.engine.arguments == ("--seed", "1", "--max-num-batched-tokens", "8192")
    assert (after.target, after.drafter) == (before.target, before.drafter)
    assert choices_of(with_choices(after, own)) == own
    assert "engine.tensor_parallel_size: vLLM's default → 4" in difference(before, after)
    assert len(difference(before, after)) == 7
    assert difference(before, before) == ()


def test_without_a_chunk_the_argument_goes() -> None:
    before = Profile.model_validate(
        {
            "name": "p",
            "target": {"model": "m/x"},
            "drafter": {"method": "none"},
            "engine": {"arguments": ["--max-num-batched-tokens=4096"]},
        }
    )
    after = with_choices(before, replace(choices_of(before), chunk_tokens=None))
    assert after.engine.arguments == ()
