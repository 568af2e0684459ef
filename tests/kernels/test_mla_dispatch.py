"""The dispatcher answers always, only loosens with longer queries, fits its mask and does not flutter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpanel.kernels.dispatch import HeadRows, choose
from specpanel.kernels.errors import MLAError
from specpanel.kernels.vllm_rules import Step, mask_bytes

ROWS = {16: HeadRows(pure=((2048, 128), (8192, 1024)), context=((4096, 2048),))}
HEADS = st.sampled_from([8, 16])
LENGTH = st.integers(1, 70_000)


def tier(query: int, context: int = 0, heads: int = 16, **more: object) -> str:
    step = Step(query, query + context, context_chunk=context)
    return choose(ROWS, heads, step, 2048, **more).tier  # type: ignore[arg-type]


def test_it_is_dense_within_top_k_and_masked_beyond() -> None:
    assert tier(2048) == "dense_mha"
    assert tier(2049) == "masked_mha"
    assert tier(8193) == "sparse_mqa"
    assert tier(127) == "sparse_mqa"


def test_cached_context_has_thresholds_of_its_own() -> None:
    assert tier(2048, 2048) == "masked_mha"
    assert tier(2047, 2049) == "sparse_mqa"


def test_what_was_not_measured_is_sparse_and_says_so() -> None:
    choice = choose(ROWS, 8, Step(4096, 4096), 2048)
    assert choice.tier == "sparse_mqa"
    assert choice.reason == "nothing was measured for 8 heads"


def test_without_an_indexer_everything_is_dense() -> None:
    assert choose({}, 16, Step(9000, 9000), None).tier == "dense_mha"


@given(query=LENGTH, context=LENGTH, heads=HEADS, topk=st.integers(1, 4096))
def test_property_every_step_has_one_answer(
    query: int, context: int, heads: int, topk: int
) -> None:
    step = Step(query, query + context, context_chunk=context)
    choice = choose(ROWS, heads, step, topk)
    assert choice.tier in ("dense_mha", "masked_mha", "sparse_mqa")
    assert choice.reason
    if choice.tier == "dense_mha":
        assert step.seq_len <= topk


@given(query=LENGTH, longer=LENGTH, length=LENGTH)
def test_property_a_longer_query_in_the_same_sequence_never_loses_its_mha_form(
    query: int, longer: int, length: int
) -> None:
    query, longer = sorted((query, longer))
    length += longer
    short, long = (
        choose(ROWS, 16, Step(q, length, context_chunk=1), 2048).tier for q in (query, longer)
    )
    assert not (short != "sparse_mqa" and long == "sparse_mqa") or mask_bytes(
        Step(longer, length)
    ) > mask_bytes(Step(query, length))


@given(query=LENGTH, context=LENGTH, less=st.floats(0, 1), more=st.integers(0, 60_000))
def test_property_a_table_that_admits_more_never_takes_an_mha_form_away(
    query: int, context: int, less: float, more: int
) -> None:
    strict = ROWS[16]
    wide = HeadRows(
        tuple((longest, int(shortest * less)) for longest, shortest in strict.pure),
        ((strict.context[0][0] + more, int(strict.context[0][1] * less)),),
    )
    for step in (Step(query, query), Step(query, query + context, context_chunk=context)):
        before, after = (choose({16: rows}, 16, step, 2048).tier for rows in (strict, wide))
        assert before == "sparse_mqa" or after == before


@given(query=LENGTH, budget=st.integers(0, 10_000_000))
def test_property_masked_is_never_chosen_when_its_mask_does_not_fit(
    query: int, budget: int
) -> None:
    step = Step(query, query)
    choice = choose(ROWS, 16, step, 2048, mask_budget_bytes=budget)
    assert choice.tier != "masked_mha" or mask_bytes(step) <= budget


@given(query=st.integers(7500, 8900))
def test_property_near_a_threshold_the_last_answer_stays(query: int) -> None:
    after_mha, after_mqa = tier(query, previous="masked_mha"), tier(query, previous="sparse_mqa")
    if 8192 / 1.05 < query <= 8192 * 1.05:
        assert (after_mha, after_mqa) == ("masked_mha", "sparse_mqa")
    else:
        assert after_mha == after_mqa == tier(query)


def test_lengths_that_vary_around_a_threshold_do_not_switch() -> None:
    last = tier(7000)
    seen = []
    for query in (8100, 8300, 8150, 8250, 8192, 8400):
        last = tier(query, previous=last)
        seen.append(last)
    assert set(seen) == {"masked_mha"}


@pytest.mark.parametrize("pure", [((4096, 0), (2048, 0)), ((2048, 0), (2048, 1)), ((2048, -1),)])
def test_thresholds_that_contradict_themselves_are_refused(
    pure: tuple[tuple[int, int], ...],
) -> None:
    with pytest.raises(MLAError, match="ascending"):
        HeadRows(pure, ())
