"""The decision of vLLM 0.32.0, gate by gate and row by row of its table."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specpanel.kernels.dims import PRESETS
from specpanel.kernels.errors import MLAError
from specpanel.kernels.gpus import GPUS, gpu
from specpanel.kernels.vllm_backends import (
    FLASH_ATTN,
    FLASHINFER,
    FLASHMLA,
    Serving,
    choose,
    default_chunk_tokens,
    kv_bytes_per_token,
)
from specpanel.kernels.vllm_rules import (
    MASK_BUDGET_BYTES,
    Deployment,
    Step,
    decide,
    mask_bytes,
    mask_shape,
    quantized,
    skips_indexer,
)

DEEPSEEK = PRESETS["deepseek-v3.2"].dims
GLM = PRESETS["glm-5"].dims


def deployed(name: str, tensor_parallel: int = 1, **choice: object) -> Deployment:
    serving = replace(Serving(DEEPSEEK, gpu(name), tensor_parallel), **choice)  # type: ignore[arg-type]
    return choose(serving)[0]


def tier(deployment: Deployment, query: int, context: int = 0) -> str:
    return decide(deployment, Step(query, query + context, context_chunk=context)).tier


# The rows of vLLM 0.32.0 as they stand in its source: (query, sequence) just inside and just outside.
@pytest.mark.parametrize(
    ("tensor_parallel", "inside", "outside"),
    [
        (1, (4096, 4096), (4095, 4096)),
        (1, (4096, 4096), (4097, 4097)),
        (2, (1024, 4096), (1023, 4096)),
        (2, (4096, 8192), (4095, 8192)),
        (2, (8192, 8192), (8193, 8193)),
        (4, (1536, 8192), (1535, 8192)),
        (4, (8192, 16384), (8191, 16384)),
        (8, (512, 4096), (511, 4096)),
        (8, (1024, 8192), (1023, 8192)),
        (8, (2048, 16384), (2047, 16384)),
        (8, (16384, 32768), (16383, 32768)),
        (8, (32768, 32768), (32769, 32769)),
    ],
)
def test_deepseek_on_flashmla_masks_exactly_inside_its_rows(
    tensor_parallel: int, inside: tuple[int, int], outside: tuple[int, int]
) -> None:
    deployment = deployed("b200", tensor_parallel, backend=FLASHMLA)
    for (query, sequence), wanted in ((inside, "masked_mha"), (outside, "sparse_mqa")):
        assert tier(deployment, query, sequence - query) == wanted


@pytest.mark.parametrize(
    ("query", "sequence", "wanted"),
    [
        (1023, 4096, "sparse_mqa"),
        (1024, 4096, "masked_mha"),
        (2048, 16384, "masked_mha"),
        (16384, 32768, "sparse_mqa"),
        (32768, 32768, "masked_mha"),
    ],
)
def test_flashinfer_has_thresholds_of_its_own_at_tp8(
    query: int, sequence: int, wanted: str
) -> None:
    deployment = deployed("b200", 8)
    assert deployment.backend == FLASHINFER
    assert tier(deployment, query, sequence - query) == wanted


@pytest.mark.parametrize("tensor_parallel", [1, 2, 4])
def test_flashinfer_has_no_row_for_deepseek_below_tp8(tensor_parallel: int) -> None:
    deployment = deployed("b200", tensor_parallel, backend=FLASHINFER)
    decision = decide(deployment, Step(4096, 4096))
    assert decision.tier == "sparse_mqa"
    assert [c.name for c in decision.failed("masked_mha")] == ["table"]
    assert "no row" in decision.failed("masked_mha")[0].text


def test_glm_never_masks_with_cached_context_at_tp1_and_always_up_to_8k_without() -> None:
    deployment = choose(Serving(GLM, gpu("b200"), 1, "bfloat16"))[0]
    assert tier(deployment, 8192) == "masked_mha"
    assert tier(deployment, 8193) == "sparse_mqa"
    assert tier(deployment, 4096, 2048) == "sparse_mqa"


def test_glm_gets_a_quantised_cache_on_sm100_by_default_and_with_it_never_masks() -> None:
    deployment = choose(Serving(GLM, gpu("b200"), 2))[0]
    assert deployment.kv_dtype == "fp8_e4m3"
    assert tier(deployment, 8192) == "sparse_mqa"
    assert choose(Serving(GLM, gpu("h200"), 2))[0].kv_dtype == "auto"
    assert choose(Serving(PRESETS["glm-5.3-flash"].dims, gpu("b200")))[0].kv_dtype == "auto"


def test_glm_at_tp2_has_other_rows_with_cached_context() -> None:
    deployment = choose(Serving(GLM, gpu("b200"), 2, "bfloat16"))[0]
    assert tier(deployment, 16384, 0) == "masked_mha"
    assert tier(deployment, 4096, 2048) == "masked_mha"
    assert tier(deployment, 4095, 2049) == "sparse_mqa"


def test_glm_rows_beyond_32k_cannot_fire_because_the_mask_does_not_fit() -> None:
    deployment = choose(Serving(GLM, gpu("b200"), 4, "bfloat16", FLASHMLA))[0]
    assert tier(deployment, 32768) == "masked_mha"
    decision = decide(deployment, Step(33024, 33024))
    assert decision.tier == "sparse_mqa"
    assert [c.name for c in decision.failed("masked_mha")] == ["mask fits"]


@pytest.mark.parametrize(
    ("name", "heads", "limit"),
    [
        ("b200", 128, 1024),
        ("b200", 64, 256),
        ("b200", 16, 128),
        ("h200", 128, 256),
        ("h200", 16, 128),
    ],
)
def test_short_prompts_count_as_decoding_by_heads_and_gpu(
    name: str, heads: int, limit: int
) -> None:
    deployment = deployed(name, 128 // heads)
    assert deployment.decode_threshold == limit
    assert decide(deployment, Step(limit, limit)).decoding
    assert tier(deployment, limit) == "sparse_mqa"
    assert tier(deployment, limit + 1) == "dense_mha"


def test_a_verification_step_is_always_sparse_mqa() -> None:
    deployment = deployed("b200", 8, draft_tokens=200)
    assert deployment.decode_threshold == 201
    assert tier(deployment, 201, 1000) == "sparse_mqa"


@pytest.mark.parametrize("name", ["h100", "h200", "mi300x", "mi355x"])
@pytest.mark.parametrize("tensor_parallel", [1, 8])
def test_other_gpus_have_two_tiers(name: str, tensor_parallel: int) -> None:
    deployment = deployed(name, tensor_parallel)
    assert tier(deployment, 2048) == "dense_mha"
    for tokens in (2049, 4096, 16384):
        decision = decide(deployment, Step(tokens, tokens))
        assert decision.tier == "sparse_mqa"
        assert "SM100" in [c.name for c in decision.failed("masked_mha")]


@pytest.mark.parametrize("dtype", ["fp8", "fp8_ds_mla", "nvfp4_ds_mla"])
def test_a_quantised_cache_gives_masked_mha_up_and_keeps_dense(dtype: str) -> None:
    deployment = deployed("b200", 8, kv_dtype=dtype)
    assert tier(deployment, 2048) == "dense_mha"
    decision = decide(deployment, Step(4096, 4096))
    assert decision.tier == "sparse_mqa"
    assert [c.name for c in decision.failed("masked_mha")] == ["unquantised KV cache"]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"force_mqa": True}, "not forced"),
        ({"context_parallel": 2}, "no decode context parallelism"),
        ({"flash_attention": 2}, "FlashAttention 4"),
        ({"host_cache": True}, "cache on the GPU"),
        ({"prefill_backend": False}, "prefill kernel"),
    ],
)
def test_each_gate_closes_masked_mha_alone_and_is_named(
    change: dict[str, object], name: str
) -> None:
    deployment = replace(deployed("b200", 8), **change)  # type: ignore[arg-type]
    decision = decide(deployment, Step(4096, 4096))
    assert decision.tier == "sparse_mqa"
    assert [c.name for c in decision.failed("masked_mha")] == [name]


def test_forcing_mqa_turns_dense_off_too() -> None:
    assert tier(deployed("b200", 8, force_mqa=True), 2048) == "sparse_mqa"


def test_a_learnable_sink_forces_mqa() -> None:
    dims = replace(PRESETS["hy-v4"].dims, sink=True)
    assert tier(choose(Serving(dims, gpu("b200")))[0], 2048) == "sparse_mqa"


def test_another_geometry_has_no_masked_kernel_but_dense() -> None:
    deployment = choose(Serving(PRESETS["hy-v4"].dims, gpu("b200")))[0]
    assert tier(deployment, 2048) == "dense_mha"
    failed = decide(deployment, Step(4096, 4096)).failed("masked_mha")
    assert {"geometry"} <= {condition.name for condition in failed}


def test_the_longest_prefill_of_a_step_decides_for_all() -> None:
    deployment = deployed("b200", 8)
    assert decide(deployment, Step(4096, 4096, requests=4)).tier == "masked_mha"
    assert decide(deployment, Step(4096, 40_000, requests=4)).tier == "sparse_mqa"


def test_the_mask_of_one_32k_prefill_fills_the_budget_exactly() -> None:
    assert mask_bytes(Step(32768, 32768)) == MASK_BUDGET_BYTES
    assert mask_bytes(Step(33024, 33024)) > MASK_BUDGET_BYTES
    assert mask_shape(2, 100, 33) == (2, 128, 4)
    assert mask_shape(1, 129, 129) == (1, 256, 8)


@pytest.mark.parametrize(
    ("dtype", "is_quantised"),
    [
        ("auto", False),
        ("bfloat16", False),
        ("fp8", True),
        ("fp8_ds_mla", True),
        ("nvfp4_ds_mla", True),
    ],
)
def test_which_cache_dtypes_are_quantised(dtype: str, is_quantised: bool) -> None:
    assert quantized(dtype) == is_quantised


def test_backends_follow_vllms_priorities() -> None:
    assert deployed("b200", 4).backend == FLASHMLA
    assert deployed("b200", 8).backend == FLASHINFER
    assert deployed("b200", 1, kv_dtype="fp8").backend == FLASHINFER
    assert deployed("h200", 8).backend == FLASH_ATTN
    fallback, passed = choose(Serving(DEEPSEEK, gpu("h200"), 8, kv_dtype="fp8"))
    assert (fallback.backend, fallback.kv_dtype) == (FLASHMLA, "fp8_ds_mla")
    assert [item.backend for item in passed] == [FLASH_ATTN]


def test_a_backend_that_would_refuse_is_refused_with_its_reason() -> None:
    with pytest.raises(MLAError, match="made for compute capability 9"):
        choose(Serving(DEEPSEEK, gpu("b200"), backend=FLASH_ATTN))
    with pytest.raises(MLAError, match="no sparse MLA backend of vLLM"):
        choose(Serving(DEEPSEEK, gpu("b200"), backend="FLASH"))


def test_a_model_without_an_indexer_has_no_tier_to_choose() -> None:
    with pytest.raises(MLAError, match="no indexer"):
        choose(Serving(PRESETS["kimi-k2"].dims, gpu("b200")))


def test_default_chunks_follow_the_gpus_memory() -> None:
    assert {name: default_chunk_tokens(found) for name, found in GPUS.items()} == {
        "h100": 8192,
        "h200": 8192,
        "b200": 16384,
        "mi300x": 16384,
        "mi355x": 16384,
    }


@pytest.mark.parametrize(
    ("dtype", "backend", "size"),
    [
        ("auto", FLASHMLA, 1152),
        ("fp8", FLASHMLA, 656),
        ("fp8", FLASHINFER, 576),
        ("nvfp4_ds_mla", FLASHMLA, 352),
    ],
)
def test_bytes_of_a_cached_token(dtype: str, backend: str, size: int) -> None:
    assert kv_bytes_per_token(DEEPSEEK, dtype, backend) == size


@given(
    name=st.sampled_from(sorted(GPUS)),
    tensor_parallel=st.sampled_from([1, 2, 4, 8]),
    dtype=st.sampled_from(["auto", "fp8"]),
    query=st.integers(1, 140_000),
    context=st.integers(0, 140_000),
    requests=st.integers(1, 64),
)
@settings(max_examples=300, deadline=None)
def test_property_every_step_has_one_tier_and_every_other_a_reason(
    name: str, tensor_parallel: int, dtype: str, query: int, context: int, requests: int
) -> None:
    deployment = deployed(name, tensor_parallel, kv_dtype=dtype)
    step = Step(query, query + context, requests, min(context, 65536))
    decision = decide(deployment, step)
    for other in ("dense_mha", "masked_mha"):
        assert (other == decision.tier) == (not decision.failed(other)) or (
            other == "masked_mha" and decision.tier == "dense_mha"
        )
    if decision.tier == "masked_mha":
        assert mask_bytes(step) <= MASK_BUDGET_BYTES
        assert query > deployment.decode_threshold


@pytest.mark.parametrize("name", ["b200", "h200", "mi300x"])
@pytest.mark.parametrize("query", [64, 2048, 4096])
@pytest.mark.parametrize("decode_tokens", [0, 1])
def test_the_indexer_is_left_out_only_where_nothing_of_the_step_reads_its_selection(
    name: str, query: int, decode_tokens: int
) -> None:
    deployment, step = deployed(name, 8), Step(query, query)
    skipped = skips_indexer(deployment, step, decode_tokens)
    reads_selection = decode_tokens > 0 or decide(deployment, step).tier != "dense_mha"
    assert not (skipped and reads_selection)
    assert skipped == (query == 2048 and not decode_tokens and name != "mi300x")
