"""Our Triton kernels against the reference: run by ``test_triton_kernels`` in a process of its own.

With ``TRITON_INTERPRET=1`` in the environment before Triton is imported they are interpreted on the CPU,
without it they run on the GPU, with real widths, too; one process cannot do both. pytest collects this file
only when it is named.
"""

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
triton = pytest.importorskip("triton", reason="Triton is not installed")

from specpanel.kernels import reference, triton_mha, triton_mqa  # noqa: E402
from specpanel.kernels.dims import MLADims  # noqa: E402
from specpanel.kernels.masks import bit_words, gather_rows  # noqa: E402
from specpanel.kernels.problem import Problem, random_problem  # noqa: E402
from specpanel.kernels.triton_config import Tile  # noqa: E402

FLOAT32, FLOAT16, BFLOAT16 = torch.float32, torch.float16, torch.bfloat16
# Largest error against float64 over the same rounded inputs: of out and of its log-sum-exp.
ONE = {FLOAT32: (2e-6, 2e-6), FLOAT16: (2e-3, 1e-3), BFLOAT16: (1.5e-2, 8e-3)}
DEVICE = "cpu" if triton_mha.INTERPRETED else "cuda"
MHA_TILE, MQA_TILE = Tile(16, 32, 4, 1), Tile(16, 16, 4, 1)


def dims(heads: int = 2, head: tuple[int, int, int] = (32, 16, 32), **more: int) -> MLADims:
    return MLADims(heads, heads, *head, more.get("lora", 64), topk=more.get("topk", 24))


EVEN = dims()
CASES: dict[str, tuple[MLADims, tuple[int, ...], tuple[int, ...]]] = {
    "ragged": (EVEN, (20, 1, 17), (0, 0, 0)),
    "cached context": (EVEN, (9, 5), (50, 7)),
    "below top-k": (EVEN, (8, 5), (0, 3)),
    "an empty neighbour": (EVEN, (6, 0, 4), (2, 0, 31)),
    "no rotary part": (dims(3, (48, 0, 32), topk=16), (19,), (0,)),
    "odd widths": (dims(5, (24, 8, 40), lora=48, topk=10), (7, 3), (0, 40)),
}
if not triton_mha.INTERPRETED:
    CASES["DeepSeek"] = (dims(16, (128, 64, 128), lora=512, topk=2048), (2049, 127), (0, 4096))
    CASES["GLM"] = (dims(8, (192, 64, 256), lora=512, topk=2048), (2047, 1), (1000, 8192))


def within(found: tuple[Any, Any], wanted: reference.Result, dtype: torch.dtype) -> None:
    found = (found[0].cpu(), found[1].cpu())
    empty = torch.isneginf(wanted[1])
    assert torch.equal(torch.isneginf(found[1]), empty)
    assert (found[0].double() - wanted[0]).abs().max() <= ONE[dtype][0]
    assert (found[1].double() - wanted[1])[~empty].abs().max() <= ONE[dtype][1]


def mqa(problem: Problem, *, swapped: bool, cache: Any = None) -> tuple[Any, Any]:
    dtype, wide = problem.q.dtype, problem.to(torch.float64, DEVICE)
    here = problem.to(dtype, DEVICE)
    rows, length = gather_rows(here)
    value, lse = triton_mqa.attend(
        here,
        triton_mqa.absorb(wide).to(dtype),
        torch.cat([here.latent, here.k_pe], dim=-1) if cache is None else cache,
        rows,
        length,
        swapped=swapped,
        tile=MQA_TILE if triton_mha.INTERPRETED else None,
        out_dtype=FLOAT32,
    )
    return triton_mqa.expand(wide, value.double()), lse


def mha(problem: Problem, *, words: Any = None, listed: bool = False) -> tuple[Any, Any]:
    dtype, built = problem.q.dtype, triton_mha.decompress(problem.to(torch.float64, DEVICE))
    return triton_mha.attend(
        replace(problem.to(dtype, DEVICE), q=problem.q.to(DEVICE)),
        triton_mha.Decompressed(built.k_nope.to(dtype), built.v.to(dtype)),
        words=None if words is None else words.to(DEVICE),
        listed=listed,
        tile=MHA_TILE if triton_mha.INTERPRETED else None,
        out_dtype=FLOAT32,
    )


def test_this_process_interprets_on_the_cpu_or_runs_on_a_gpu() -> None:
    assert triton_mha.INTERPRETED or torch.cuda.is_available()


@pytest.mark.parametrize("name", CASES)
def test_in_float32_every_kernel_is_the_reference(name: str) -> None:
    geometry, new, old = CASES[name]
    problem = random_problem(geometry, new, old, dtype=FLOAT32)
    words = bit_words(problem)
    wanted = reference.masked(problem)
    full = mha(problem, words=words)
    within(full, wanted, FLOAT32)
    within(mha(problem), reference.dense(problem), FLOAT32)
    listed = mha(problem, words=words, listed=True)
    assert torch.equal(listed[0], full[0])
    assert torch.equal(listed[1], full[1])
    within(mqa(problem, swapped=False), wanted, FLOAT32)
    within(mqa(problem, swapped=True), wanted, FLOAT32)


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=str)
def test_in_half_precision_every_kernel_holds_its_tolerance(dtype: torch.dtype) -> None:
    problem = random_problem(EVEN, (9, 4), (30, 0)).to(dtype)
    wanted = reference.masked(problem)
    within(mha(problem, words=bit_words(problem)), wanted, dtype)
    within(mqa(problem, swapped=False), wanted, dtype)
    within(mqa(problem, swapped=True), wanted, dtype)


def test_rows_that_select_nothing_repeat_themselves_or_point_nowhere() -> None:
    problem = random_problem(EVEN, (5,), (30,), dtype=FLOAT32)
    topk = problem.selected().clone()
    topk[0] = -1
    topk[1, 1:] = topk[1, 0]
    topk[2, ::2] = 9999
    topk[3, :12] = -1
    topk[4, 5] = 34  # its own position, and not of the queries before it
    topk[3, 20] = 34
    problem = replace(problem, topk=topk)
    wanted = reference.masked(problem)
    assert torch.isneginf(wanted[1][0]).all()
    words = bit_words(problem)
    full = mha(problem, words=words)
    within(full, wanted, FLOAT32)
    assert torch.equal(mha(problem, words=words, listed=True)[0], full[0])
    within(mqa(problem, swapped=False), wanted, FLOAT32)
    within(mqa(problem, swapped=True), wanted, FLOAT32)


def test_queries_need_not_be_contiguous() -> None:
    problem = random_problem(EVEN, (9,), (3,), dtype=FLOAT32)
    turned = problem.q.transpose(0, 1).contiguous().transpose(0, 1)
    assert not turned.is_contiguous()
    within(
        mha(replace(problem, q=turned), words=bit_words(problem)),
        reference.masked(problem),
        FLOAT32,
    )


def test_rows_of_the_cache_that_nobody_selected_may_hold_anything() -> None:
    problem = random_problem(EVEN, (2,), (60,), dtype=FLOAT32)
    clean = reference.sparse(problem)
    unused = sorted(set(range(62)) - set(problem.selected().flatten().tolist()))
    problem.latent[unused] = float("nan")
    within(mqa(problem, swapped=False), clean, FLOAT32)
    within(mqa(problem, swapped=True), clean, FLOAT32)


def test_another_requests_rows_may_hold_anything() -> None:
    problem = random_problem(EVEN, (5, 3), (2, 20), dtype=FLOAT32)
    clean = reference.masked(problem)
    for rows in (problem.latent, problem.k_pe):
        rows[7:] = float("nan")
    out, lse = mha(problem, words=bit_words(problem))
    within((out[:5], lse[:5]), (clean[0][:5], clean[1][:5]), FLOAT32)
    out, lse = mha(problem)
    assert torch.isfinite(out[:5]).all()


def test_ids_beyond_2_to_15_and_rows_beyond_2_to_31_elements_are_found() -> None:
    geometry = dims(1, (16, 0, 16), lora=16, topk=8)
    problem = random_problem(geometry, (1,), (33_000,), dtype=FLOAT16)
    ids = [33_000, 32_767, 32_768, 65, -1, 32_999, 5, 32_800]
    problem = replace(problem, topk=torch.tensor([ids], dtype=torch.int32))
    wanted = reference.masked(problem)
    within(mha(problem, words=bit_words(problem), listed=True), wanted, FLOAT16)
    try:  # rows that lie far apart, as in a large paged cache: hardly any of it is ever touched
        cache = torch.empty_strided((33_001, 16), (65_536, 1), dtype=FLOAT16, device=DEVICE)
    except RuntimeError as error:
        pytest.skip(f"no room for it: {error}"[:200])
    picked = problem.selected()[problem.selected() >= 0].long()
    cache[picked.to(DEVICE)] = problem.latent[picked].to(DEVICE)
    assert 33_000 * cache.stride(0) > 2**31
    for swapped in (False, True):
        within(mqa(problem, swapped=swapped, cache=cache), wanted, FLOAT16)


def test_whole_paths_agree_with_each_other() -> None:
    problem = random_problem(dims(16), (6,), (20,), dtype=FLOAT32)
    wanted, here = reference.masked(problem), problem.to(FLOAT32, DEVICE)
    within(triton_mha.masked(here), wanted, FLOAT32)
    within(triton_mqa.sparse(here), wanted, FLOAT32)
    within(triton_mha.dense(here), reference.dense(problem), FLOAT32)
