"""Bit words, tile lists and gathered rows say what the selection says."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the kernels need torch")

from specpanel.kernels import masks, reference  # noqa: E402
from specpanel.kernels.dims import MLADims  # noqa: E402
from specpanel.kernels.problem import PATTERNS, Problem, random_problem, random_topk  # noqa: E402

DIMS = MLADims(2, 2, 16, 8, 16, 32, topk=12)


def allowed(problem: Problem) -> list[torch.Tensor]:
    return [
        reference.allowed(problem.selected()[queries], queries.stop - queries.start, length)
        for (queries, _), length in zip(problem.spans(), problem.key_lens, strict=True)
    ]


@pytest.mark.parametrize("keys", [31, 32, 33, 63, 64, 65, 127, 128, 129])
def test_words_hold_the_selection_and_causality_bit_by_bit(keys: int) -> None:
    problem = random_problem(DIMS, (9, keys), (keys - 9, 0))
    words = masks.bit_words(problem)
    assert words.dtype == torch.int32
    assert words.shape[1] % 4 == 0
    for (queries, _), wanted in zip(problem.spans(), allowed(problem), strict=True):
        assert torch.equal(masks.unpack(words[queries], wanted.shape[1]), wanted)


def test_the_highest_bit_of_a_word_is_a_key_like_any_other() -> None:
    topk = torch.full((1, 12), -1, dtype=torch.int32)
    topk[0, 0] = 31
    problem = replace(random_problem(DIMS, (1,), (40,)), topk=topk)
    words = masks.bit_words(problem)
    assert words[0].tolist() == [-(2**31), 0, 0, 0]
    assert masks.unpack(words, 41)[0].nonzero().flatten().tolist() == [31]


@given(seed=st.integers(0, 10_000), keys=st.integers(1, 200))
@settings(max_examples=30, deadline=None)
def test_property_packing_and_unpacking_is_the_identity(seed: int, keys: int) -> None:
    width = masks.word_count(keys) * 32
    seen = torch.rand(3, width, generator=torch.Generator().manual_seed(seed)) > 0.5
    assert torch.equal(masks.unpack(masks.pack(seen), width), seen)


@pytest.mark.parametrize("tiles", [(16, 32), (8, 64), (128, 128)])
def test_a_tile_is_listed_if_and_only_if_a_pair_of_it_is_selected(tiles: tuple[int, int]) -> None:
    query_tile, key_tile = tiles
    problem = random_problem(DIMS, (40, 1, 25), (30, 100, 0), pattern="recency")
    lists = masks.block_lists(problem, masks.bit_words(problem), query_tile, key_tile)
    seen = allowed(problem)
    for at in range(lists.count.numel()):
        request, first = int(lists.request[at]), int(lists.first[at])
        begin = first - problem.query_starts[request]
        part = seen[request][begin : begin + query_tile]
        wanted = [
            number for number, block in enumerate(part.split(key_tile, dim=1)) if bool(block.any())
        ]
        assert lists.index[at, : int(lists.count[at])].tolist() == wanted


def test_query_tiles_never_span_two_requests() -> None:
    problem = random_problem(DIMS, (20, 0, 5), (0, 0, 3))
    assert masks.query_tiles(problem, 16) == ([0, 0, 2], [0, 16, 20])


def test_gathered_rows_are_distinct_ascending_and_those_of_the_request() -> None:
    problem = random_problem(DIMS, (6, 9), (10, 2))
    topk = problem.selected()
    topk[:, 1] = topk[:, 0]  # a repetition in every row
    topk[3, 5] = 999  # and an id of no key
    rows, length = masks.gather_rows(problem)
    for request, (queries, keys) in enumerate(problem.spans()):
        for at, row in enumerate(range(queries.start, queries.stop)):
            chosen = allowed(problem)[request][at].nonzero().flatten() + keys.start
            assert rows[row, : int(length[row])].tolist() == chosen.tolist()
            assert (rows[row, int(length[row]) :] == -1).all()


def test_occupancy_of_a_window_is_small_and_of_a_spread_selection_is_the_whole_past() -> None:
    dims = replace(DIMS, topk=32)
    spread = masks.occupancy(random_problem(dims, (512,), (0,)), 128, 128)
    window = random_problem(dims, (512,), (0,))
    recent = torch.arange(512)[:, None] - torch.arange(32)[None]
    near = masks.occupancy(replace(window, topk=recent.clamp(min=-1).to(torch.int32)), 128, 128)
    assert spread.tiles == 1.0
    assert near.tiles == pytest.approx(7 / 10)
    assert spread.pairs is not None
    assert 0.1 < spread.pairs < 0.2


def test_occupancy_of_nothing_is_absent() -> None:
    assert masks.occupancy(random_problem(DIMS, (0,), (0,))) == masks.Occupancy(None, None)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_made_up_selections_fill_a_row_with_distinct_keys_of_its_past(pattern: str) -> None:
    topk = random_topk(12, (30, 7), (0, 40), pattern=pattern)
    past = [*range(1, 31), *range(41, 48)]
    for row, keys in zip(topk.tolist(), past, strict=True):
        chosen = [token for token in row if token >= 0]
        assert len(chosen) == len(set(chosen)) == min(12, keys)
        assert max(chosen) < keys
