"""What a config.json says about MLA, and what is refused with a reason."""

from typing import Any

import pytest

from specpanel.kernels.dims import PRESETS, MLADims, from_config, preset
from specpanel.kernels.errors import MLAError

DEEPSEEK = {
    "model_type": "deepseek_v32",
    "num_attention_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "index_topk": 2048,
    "index_n_heads": 64,
    "index_head_dim": 128,
}


def test_a_config_gives_the_geometry_of_its_preset() -> None:
    assert from_config(DEEPSEEK) == PRESETS["deepseek-v3.2"].dims


def test_derived_widths_are_those_of_the_two_forms() -> None:
    dims = PRESETS["deepseek-v3.2"].dims
    assert (dims.qk, dims.latent) == (192, 576)
    assert dims.scale == 192**-0.5


def test_a_model_without_a_rotary_part_scales_by_the_key_of_the_mha_form_and_not_by_the_latent() -> (
    None
):
    dims = PRESETS["glm-5.3-flash"].dims
    assert dims.rope == 0
    assert dims.scale == 256**-0.5
    assert dims.latent == 512


def test_a_latent_rank_other_than_512_is_read_and_not_assumed() -> None:
    values = {**DEEPSEEK, "kv_lora_rank": 256, "model_type": "mistral4", "index_topk": None}
    assert from_config(values).lora == 256
    assert from_config(values).topk is None


@pytest.mark.parametrize("kind", ["deepseek_v4", "deepseek_v41"])
def test_a_model_without_an_mha_form_is_refused_with_the_reason(kind: str) -> None:
    with pytest.raises(MLAError, match="no MHA form"):
        from_config({"model_type": kind, "head_dim": 512, "compress_ratios": [4, 128]})


def test_a_model_without_mla_is_refused_by_its_name() -> None:
    with pytest.raises(MLAError, match="llama does not use multi-head latent attention"):
        from_config({"model_type": "llama", "num_attention_heads": 32})


@pytest.mark.parametrize("value", [None, "128", 128.5, True, -1, 0])
def test_a_damaged_field_is_named(value: Any) -> None:
    with pytest.raises(MLAError, match="v_head_dim"):
        from_config({**DEEPSEEK, "v_head_dim": value})


def test_ranks_share_the_heads_and_keep_the_latents() -> None:
    rank = PRESETS["deepseek-v3.2"].dims.on_rank(8)
    assert (rank.heads, rank.total_heads, rank.latent) == (16, 128, 576)


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(MLAError, match="cannot be divided among 3 ranks"):
        PRESETS["deepseek-v3.2"].dims.on_rank(3)


@pytest.mark.parametrize("name", ["DeepSeek-V3.2", "deepseek-ai/deepseek-v3.2"])
def test_a_preset_is_found_by_its_name_and_by_its_hub_id(name: str) -> None:
    found = preset(name)
    assert found is not None
    assert found.dims.topk == 2048


def test_an_unknown_name_is_no_preset() -> None:
    assert preset("somebody/something") is None


def test_every_preset_is_a_whole_geometry() -> None:
    for found in PRESETS.values():
        assert isinstance(found.dims, MLADims)
        assert found.dims.heads == found.dims.total_heads
        assert found.dims.lora in (256, 512)
        assert found.checked
