"""The published figures of sparse MLA come out of the formulas, and estimates keep their order."""

import pytest

from specpanel.kernels import cost
from specpanel.kernels.dims import PRESETS
from specpanel.kernels.gpus import GPUS, Constant, gpu

DEEPSEEK = PRESETS["deepseek-v3.2"].dims
GLM = PRESETS["glm-5"].dims


def test_absorbed_attention_takes_3_4_times_the_operations_for_a_pair() -> None:
    assert cost.attention_ratio(DEEPSEEK) == pytest.approx(1088 / 320)
    assert cost.attention_ratio(GLM) == pytest.approx(2.125)


def test_the_cache_is_57_times_smaller_than_plain_multi_head_attention() -> None:
    assert cost.cache_ratio(DEEPSEEK) == pytest.approx(56.9, abs=0.05)
    assert cost.cache_ratio(DEEPSEEK, built_keys=True) == pytest.approx(71.1, abs=0.05)


def test_the_published_crossing_of_7740_tokens_comes_out_at_a_rate_of_0_64() -> None:
    assert cost.crossing_tokens(DEEPSEEK) == pytest.approx(7740, rel=0.002)
    assert cost.crossing_tokens(DEEPSEEK, rate=1.0) == pytest.approx(12_813, abs=1)


@pytest.mark.parametrize(
    ("tensor_parallel", "tokens"), [(1, 7_733), (2, 7_733), (4, 16_700), (8, 34_600)]
)
def test_padding_of_heads_to_64_moves_the_crossing_up_with_fewer_heads(
    tensor_parallel: int, tokens: int
) -> None:
    rank = DEEPSEEK.on_rank(tensor_parallel)
    assert cost.crossing_tokens(rank, head_tile=64) == pytest.approx(tokens, rel=0.01)


def test_the_crossing_is_where_both_sides_do_work_in_equal_time() -> None:
    tokens = int(cost.crossing_tokens(DEEPSEEK, rate=1.0))
    mha = (DEEPSEEK.qk + DEEPSEEK.v) * cost.causal_pairs(tokens, 0)
    mqa = (2 * DEEPSEEK.lora + DEEPSEEK.rope) * cost.selected_pairs(tokens, 0, 2048)
    assert mha / mqa == pytest.approx(1.0, rel=1e-3)


def test_mqa_that_is_much_faster_never_loses() -> None:
    assert cost.crossing_tokens(DEEPSEEK, rate=0.2) == 0.0


def test_without_an_indexer_there_is_no_crossing() -> None:
    assert cost.crossing_tokens(PRESETS["deepseek-v3"].dims) == float("inf")


@pytest.mark.parametrize(("query", "context"), [(1, 0), (7, 0), (30, 5), (5, 30), (0, 9), (20, 12)])
def test_pairs_are_counted_as_one_would_by_hand(query: int, context: int) -> None:
    by_hand = [context + i for i in range(1, query + 1)]
    assert cost.causal_pairs(query, context) == sum(by_hand)
    assert cost.selected_pairs(query, context, 16) == sum(min(keys, 16) for keys in by_hand)


# S, decompress = absorb, attention of MHA and MQA: TFLOP a layer, 128 heads.
@pytest.mark.parametrize(
    ("tokens", "project", "mha", "mqa"),
    [(2048, 0.07, 0.17, 0.58), (8192, 0.27, 2.75, 4.09), (32768, 1.10, 44.0, 18.1)],
)
def test_operations_of_a_prefill(tokens: int, project: float, mha: float, mqa: float) -> None:
    masked = cost.work(DEEPSEEK, "masked_mha", tokens, 0).flop / 1e12
    sparse = cost.work(DEEPSEEK, "sparse_mqa", tokens, 0).flop / 1e12
    assert masked == pytest.approx(project + mha, rel=0.03)
    assert sparse == pytest.approx(project + mqa, rel=0.03)


def test_a_mask_takes_one_bit_a_pair() -> None:
    assert cost.mask_bytes(8192, 0) == 8192 * 8192 // 8
    assert cost.mask_bytes(1, 31) == 4


@pytest.mark.parametrize(
    ("name", "crossings"),
    [
        ("h100", (7800, 7800, 16_000, 66_000)),
        ("h200", (7600, 7600, 16_000, 46_000)),
        ("b200", (7900, 7900, 17_000, 34_000)),
    ],
)
def test_estimated_crossings_of_deepseek(name: str, crossings: tuple[int, ...]) -> None:
    found = [cost.estimated_crossing(DEEPSEEK.on_rank(tp), gpu(name)) for tp in (1, 2, 4, 8)]
    for value, wanted in zip(found, crossings, strict=True):
        assert value == pytest.approx(wanted, rel=0.03)


@pytest.mark.parametrize("name", sorted(GPUS))
def test_estimates_grow_with_the_prompt_and_dense_is_never_dearer_than_masked(name: str) -> None:
    rank, device = DEEPSEEK.on_rank(8), gpu(name)
    for tier in ("dense_mha", "masked_mha", "sparse_mqa"):
        times = [
            cost.estimate_s(rank, device, tier, tokens, 0) for tokens in (128, 1024, 8192, 65536)
        ]
        assert times == sorted(times)
    for tokens in (128, 1024, 2048):
        dense = cost.estimate_s(rank, device, "dense_mha", tokens, 0)
        assert dense <= cost.estimate_s(rank, device, "masked_mha", tokens, 0)


def test_beyond_top_k_dense_is_no_answer_and_has_no_estimate() -> None:
    assert cost.estimates_ms(DEEPSEEK, gpu("b200"), 2048, 0)["dense_mha"] is not None
    assert cost.estimates_ms(DEEPSEEK, gpu("b200"), 2048, 1)["dense_mha"] is None


def test_sixteen_heads_gather_below_the_ridge_and_128_heads_reach_it() -> None:
    few = cost.work(DEEPSEEK.on_rank(8), "sparse_mqa", 8192, 0)
    many = cost.work(DEEPSEEK, "sparse_mqa", 8192, 0)
    ridge = cost.ridge(gpu("b200"))
    assert few.intensity < 0.2 * ridge
    assert many.intensity > 0.5 * ridge


def test_every_constant_says_where_it_comes_from() -> None:
    for device in GPUS.values():
        constants = [
            value
            for value in (getattr(device, name) for name in device.__slots__)
            if isinstance(value, Constant)
        ]
        assert len(constants) == 9
        for constant in constants:
            assert constant.provenance in ("measured", "published", "assumed")
            assert constant.source
