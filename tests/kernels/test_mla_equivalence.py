"""The reference and the portable paths agree, for any selection, at every edge and in every dtype."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the kernels need torch")

from specpanel.kernels import portable, reference  # noqa: E402
from specpanel.kernels.dims import MLADims  # noqa: E402
from specpanel.kernels.errors import MLAError  # noqa: E402
from specpanel.kernels.portable import Chunks  # noqa: E402
from specpanel.kernels.problem import PATTERNS, Problem, random_problem  # noqa: E402

TINY = Chunks(queries=5, keys=17, gathered=3)
DIMS = MLADims(3, 3, 16, 8, 24, 32, topk=12)
# dtype: largest error of an output of size 2 to 3, and of its log-sum-exp
TOLERANCES = {
    torch.float64: (1e-12, 1e-12),
    torch.float32: (2e-6, 2e-6),  # a log-sum-exp of 4 to 8 has steps of 5e-7
    torch.float16: (2e-3, 1e-3),
    torch.bfloat16: (1.5e-2, 8e-3),
}
PORTABLE: dict[str, Callable[..., reference.Result]] = {
    "masked": portable.masked,
    "sparse": portable.sparse,
}


def error(found: reference.Result, wanted: reference.Result) -> tuple[float, float]:
    """Largest absolute error of out and of lse; rows that are empty in both count as equal."""
    out = (found[0].double() - wanted[0]).abs().max().item() if wanted[0].numel() else 0.0
    empty = torch.isinf(wanted[1])
    assert torch.equal(torch.isinf(found[1]), empty)
    lse = (found[1].double() - wanted[1])[~empty].abs()
    return out, lse.max().item() if lse.numel() else 0.0


def agree(found: reference.Result, wanted: reference.Result, dtype: torch.dtype) -> None:
    out, lse = error(found, wanted)
    assert out <= TOLERANCES[dtype][0]
    assert lse <= TOLERANCES[dtype][1]
    if wanted[0].numel() and wanted[0].abs().max() > 0:
        cosine = torch.nn.functional.cosine_similarity(
            found[0].double().flatten(), wanted[0].flatten(), dim=0
        )
        assert 1 - cosine.item() < 1e-5 * (30 if dtype == torch.bfloat16 else 1)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("lens", [((40, 1, 17), (0, 0, 0)), ((20, 33), (50, 7)), ((1,), (63,))])
def test_in_float64_masked_mha_and_sparse_mqa_are_the_same_function(
    geometry: MLADims, pattern: str, lens: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    problem = random_problem(geometry, *lens, pattern=pattern)
    agree(reference.sparse(problem), reference.masked(problem), torch.float64)


@pytest.mark.parametrize("chunks", [Chunks(), TINY], ids=["one-chunk", "many-chunks"])
@pytest.mark.parametrize("path", PORTABLE)
def test_portable_paths_in_float64_agree_with_the_reference_to_1e_12(
    geometry: MLADims, path: str, chunks: Chunks
) -> None:
    problem = random_problem(geometry, (20, 1, 33), (50, 0, 7))
    agree(PORTABLE[path](problem, chunks), reference.masked(problem), torch.float64)
    agree(portable.dense(problem, chunks), reference.dense(problem), torch.float64)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("path", PORTABLE)
def test_portable_paths_hold_the_tolerance_of_each_dtype(
    geometry: MLADims, path: str, dtype: torch.dtype
) -> None:
    problem = random_problem(geometry, (40, 9), (20, 0)).to(dtype)
    agree(PORTABLE[path](problem, TINY), reference.masked(problem), dtype)
    agree(portable.dense(problem, TINY), reference.dense(problem), dtype)


def test_portable_paths_hold_at_the_real_widths_of_deepseek() -> None:
    dims = MLADims(2, 128, 128, 64, 128, 512, topk=128)
    problem = random_problem(dims, (300,), (100,)).to(torch.float32)
    wanted = reference.masked(problem)
    agree(portable.masked(problem), wanted, torch.float32)
    agree(portable.sparse(problem), wanted, torch.float32)


def with_topk(problem: Problem, rows: list[list[int]]) -> Problem:
    return replace(problem, topk=torch.tensor(rows, dtype=torch.int32))


def one_request(queries: int, context: int, **kind: int) -> Problem:
    return random_problem(replace(DIMS, **kind), (queries,), (context,))


def everyone(problem: Problem) -> list[reference.Result]:
    """Every path's answer; the first is the reference's."""
    return [
        reference.masked(problem),
        reference.sparse(problem),
        portable.masked(problem, TINY),
        portable.sparse(problem, TINY),
        portable.masked(problem),
        portable.sparse(problem),
    ]


def all_agree(problem: Problem) -> reference.Result:
    wanted, *found = everyone(problem)
    for result in found:
        agree(result, wanted, torch.float64)
    assert torch.isfinite(wanted[0]).all()
    return wanted


def test_the_first_token_sees_itself_alone() -> None:
    problem = with_topk(one_request(1, 0), [[0] + [-1] * 11])
    out, lse = all_agree(problem)
    value = torch.einsum("l,lhv->hv", problem.latent[0], problem.w_uv)
    assert torch.allclose(out[0], value, atol=1e-12)
    assert torch.isfinite(lse).all()


@pytest.mark.parametrize("keys", [11, 12, 13], ids=["K-1", "K", "K+1"])
def test_around_top_k_keys_the_selection_is_dense_until_there_is_more(keys: int) -> None:
    problem = one_request(keys, 0)
    wanted, _ = all_agree(problem)
    dense, _ = reference.dense(problem)
    assert torch.allclose(wanted[:12], dense[:12], atol=1e-12)
    assert torch.allclose(wanted, dense, atol=1e-12) == (keys <= 12)


def test_a_row_that_selects_nothing_gives_zero_and_minus_infinity() -> None:
    problem = with_topk(one_request(3, 4), [[0, 1, 2] + [-1] * 9, [-1] * 12, [5] + [-1] * 11])
    out, lse = all_agree(problem)
    assert torch.equal(out[1], torch.zeros_like(out[1]))
    assert torch.isneginf(lse[1]).all()


@pytest.mark.parametrize("at", ["first", "middle", "last"])
def test_absent_ids_may_stand_anywhere_in_a_row(at: str) -> None:
    ids, none = [0, 3, 6], [-1] * 9
    rows = {"first": none + ids, "middle": ids[:1] + none + ids[1:], "last": ids + none}
    moved, _ = all_agree(with_topk(one_request(1, 6), [rows[at]]))
    sorted_, _ = reference.masked(with_topk(one_request(1, 6), [ids + none]))
    assert torch.equal(moved, sorted_)


def test_an_id_that_is_repeated_counts_once() -> None:
    twice, _ = all_agree(with_topk(one_request(1, 6), [[2, 5, 2, 5, 2] + [-1] * 7]))
    once, _ = reference.masked(with_topk(one_request(1, 6), [[2, 5] + [-1] * 10]))
    assert torch.allclose(twice, once, atol=1e-14)


@pytest.mark.parametrize("wrong", [7, 8, 31, 32, 33, 2**31 - 1, -5])
def test_ids_of_no_key_and_ids_of_the_future_are_ignored(wrong: int) -> None:
    problem = with_topk(one_request(2, 6), [[1, wrong] + [-1] * 10, [1] + [-1] * 11])
    out, _ = all_agree(problem)
    clean, _ = reference.masked(with_topk(one_request(2, 6), [[1] + [-1] * 11] * 2))
    assert torch.equal(out, clean)


def test_a_token_need_not_select_itself() -> None:
    all_agree(with_topk(one_request(1, 9), [[0, 1] + [-1] * 10]))


def test_a_request_may_have_no_new_token_and_its_neighbours_do_not_notice() -> None:
    problem = random_problem(DIMS, (5, 0, 9), (3, 0, 40))
    wanted, _ = all_agree(problem)
    alone, _ = reference.masked(
        replace(
            problem,
            q=problem.q[:5],
            latent=problem.latent[:8],
            k_pe=problem.k_pe[:8],
            topk=problem.selected()[:5],
            query_starts=(0, 5),
            key_starts=(0, 8),
        )
    )
    assert torch.allclose(wanted[:5], alone, atol=1e-14)


def test_an_empty_batch_has_an_empty_answer() -> None:
    problem = random_problem(DIMS, (0,), (0,))
    assert portable.masked(problem)[0].shape == (0, 3, 24)
    assert portable.sparse(problem)[0].shape == (0, 3, 24)


@pytest.mark.parametrize("context", [31, 32, 33, 127, 128, 129])
def test_context_on_and_off_the_edges_of_words_and_tiles(context: int) -> None:
    all_agree(random_problem(DIMS, (5,), (context,)))


def test_ids_beyond_2_to_15_are_keys_like_any_other() -> None:
    kind = replace(DIMS, heads=1, total_heads=1, topk=8)
    ids = [40_000, 32_767, 32_768, 65, -1, 39_999, 5, 33_000]
    problem = with_topk(random_problem(kind, (1,), (40_000,)), [ids])
    for path in (portable.masked, portable.sparse):
        agree(path(problem), reference.masked(problem), torch.float64)


def test_inputs_need_not_be_contiguous() -> None:
    problem = one_request(20, 5)
    turned = problem.q.transpose(0, 1).contiguous().transpose(0, 1)
    assert not turned.is_contiguous()
    agree(portable.masked(replace(problem, q=turned)), reference.masked(problem), torch.float64)


def test_rows_that_nobody_selected_may_hold_anything() -> None:
    problem = one_request(4, 30)
    unused = sorted(set(range(34)) - set(problem.selected().flatten().tolist()))
    assert unused
    clean, _ = reference.sparse(problem)
    problem.latent[unused] = float("nan")
    found, _ = portable.sparse(problem)
    assert torch.allclose(found, clean, atol=1e-12)


def test_a_selection_is_needed_to_mask_or_gather() -> None:
    problem = random_problem(DIMS, (4,), (0,), pattern=None)
    with pytest.raises(MLAError, match="no selection"):
        portable.masked(problem)


def test_a_request_cannot_have_more_queries_than_keys() -> None:
    problem = one_request(4, 0)
    with pytest.raises(MLAError, match="more new tokens than keys"):
        replace(problem, key_starts=(0, 3), latent=problem.latent[:3], k_pe=problem.k_pe[:3])


lengths = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 40)), min_size=1, max_size=3)


@given(lengths=lengths, seed=st.integers(0, 999), chunk=st.integers(1, 9), span=st.integers(3, 50))
@settings(max_examples=20, deadline=None)
def test_property_every_path_is_the_same_function_of_any_batch(
    lengths: list[tuple[int, int]], seed: int, chunk: int, span: int
) -> None:
    problem = random_problem(DIMS, *zip(*lengths, strict=True), seed=seed)
    make = torch.Generator().manual_seed(seed)
    noise = torch.randint(-3, 60, problem.selected().shape, generator=make, dtype=torch.int32)
    keep = torch.rand(noise.shape, generator=make) > 0.3
    problem = replace(problem, topk=torch.where(keep, problem.selected(), noise))
    wanted = reference.masked(problem)
    chunks = Chunks(chunk, span, chunk)
    for path in (reference.sparse, portable.masked, portable.sparse):
        found = path(problem) if path is reference.sparse else path(problem, chunks)
        agree(found, wanted, torch.float64)


@given(lengths=lengths, seed=st.integers(0, 999))
@settings(max_examples=10, deadline=None)
def test_property_a_batch_is_its_requests_one_by_one(
    lengths: list[tuple[int, int]], seed: int
) -> None:
    problem = random_problem(DIMS, *zip(*lengths, strict=True), seed=seed)
    for path in (portable.masked, portable.sparse, portable.dense):
        together = path(problem, TINY)
        for queries, keys in problem.spans():
            alone = replace(
                problem,
                q=problem.q[queries],
                latent=problem.latent[keys],
                k_pe=problem.k_pe[keys],
                topk=problem.selected()[queries],
                query_starts=(0, queries.stop - queries.start),
                key_starts=(0, keys.stop - keys.start),
            )
            agree(path(alone, TINY), (together[0][queries], together[1][queries]), torch.float64)


@given(seed=st.integers(0, 999))
@settings(max_examples=15, deadline=None)
def test_property_the_order_of_a_row_means_nothing(seed: int) -> None:
    problem = one_request(6, 20)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
    shuffled = replace(problem, topk=problem.selected()[:, order])
    assert torch.allclose(portable.sparse(shuffled)[0], portable.sparse(problem)[0], atol=1e-13)
    assert torch.equal(portable.masked(shuffled)[0], portable.masked(problem)[0])


@given(keys=st.integers(1, 30), extra=st.integers(0, 5))
@settings(max_examples=15, deadline=None)
def test_property_a_top_k_of_every_key_is_dense(keys: int, extra: int) -> None:
    problem = one_request(keys, 0, topk=keys + extra)
    agree(reference.sparse(problem), reference.dense(problem), torch.float64)


@given(cut=st.integers(0, 45))
@settings(max_examples=25, deadline=None)
def test_property_keys_may_be_split_anywhere_and_joined(cut: int) -> None:
    problem = one_request(7, 38)
    keys = set(range(cut))
    ids = problem.selected()
    before = replace(problem, topk=torch.where(torch.isin(ids, torch.tensor([*keys])), ids, -1))
    after = replace(problem, topk=torch.where(torch.isin(ids, torch.tensor([*keys])), -1, ids))
    joined = reference.merge(reference.masked(before), reference.masked(after))
    agree(joined, reference.masked(problem), torch.float64)


@given(at=st.integers(0, 20))
@settings(max_examples=15, deadline=None)
def test_property_a_query_that_selects_one_key_gets_its_value(at: int) -> None:
    problem = with_topk(one_request(1, 20), [[at] + [-1] * 11])
    value = torch.einsum("l,lhv->hv", problem.latent[at], problem.w_uv)
    assert torch.allclose(portable.sparse(problem)[0][0], value, atol=1e-12)
    assert torch.allclose(portable.masked(problem)[0][0], value, atol=1e-12)


def test_a_constant_added_to_all_scores_changes_nothing_but_the_lse() -> None:
    problem = one_request(6, 20)
    # One more rotary column, the same in every key, adds the query's entry there to all its scores.
    dims = replace(DIMS, rope=9)
    scale = (DIMS.scale, dims.scale)
    q = torch.cat([problem.q * scale[0] / scale[1], torch.full((6, 3, 1), 2.5)], dim=-1).double()
    k_pe = torch.cat([problem.k_pe, torch.full((26, 1), 4.0)], dim=-1).double()
    moved = replace(problem, dims=dims, q=q, k_pe=k_pe)
    out, lse = portable.masked(moved)
    wanted, before = portable.masked(problem)
    assert torch.allclose(out, wanted, atol=1e-11)
    assert torch.allclose(lse - before, torch.full_like(lse, 10.0 * scale[1]), atol=1e-11)


def test_changing_a_future_key_changes_nothing_before_it() -> None:
    problem = one_request(10, 5)
    before = portable.dense(problem)[0]
    problem.latent[-1] += 3
    after = portable.dense(problem)[0]
    assert torch.equal(before[:-1], after[:-1])
    assert not torch.equal(before[-1], after[-1])


def test_heads_are_independent_and_in_order() -> None:
    problem = one_request(6, 20)
    order = [2, 0, 1]
    turned = replace(
        problem, q=problem.q[:, order], w_uk=problem.w_uk[:, order], w_uv=problem.w_uv[:, order]
    )
    for path in (portable.masked, portable.sparse, portable.dense):
        assert torch.allclose(path(turned)[0], path(problem)[0][:, order], atol=1e-13)
