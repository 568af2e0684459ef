"""Acceptance from counters and from requests' own steps."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specpanel.core.speculation.acceptance import (
    POSITIONS_DISAGREE,
    acceptance_length,
    counter_notes,
    draft_acceptance_rate,
    position_rates,
    step_acceptance,
    step_yield,
)
from specpanel.core.traffic.records import RequestRecord

BASE = RequestRecord(
    index=0,
    prompt_id="p0",
    kind="chat",
    started_unix=0.0,
    started_s=0.0,
    ttft_ms=10.0,
    tpot_ms=20.0,
    end_to_end_ms=100.0,
    prompt_tokens=5,
    output_tokens=5,
    finish_reason="stop",
)


def request(accepted: tuple[int, ...], drafted: tuple[int, ...] | None) -> RequestRecord:
    return replace(BASE, accepted=accepted, drafted=drafted)


def test_two_engines_are_pooled_and_never_averaged():
    # 400 drafts with 620 accepted and 100 with 45: the mean of the lengths would be 2.00.
    assert acceptance_length(500, 665) == pytest.approx(2.33)
    assert draft_acceptance_rate(1500, 665) == pytest.approx(0.4433, abs=1e-4)
    rates = position_rates(500, (340, 210, 115))
    assert [rate.position for rate in rates] == [1, 2, 3]
    assert [rate.rate.estimate for rate in rates] == pytest.approx([0.68, 0.42, 0.23])
    conditional = [rate.conditional.estimate for rate in rates if rate.conditional]
    assert conditional == pytest.approx([0.68, 0.618, 0.548], abs=5e-4)


def test_nothing_over_nothing_is_absent():
    assert acceptance_length(0, 0) is None
    assert draft_acceptance_rate(0, 0) is None
    assert position_rates(0, (0, 0)) == ()


def test_a_position_after_one_that_was_never_accepted_has_no_conditional_rate():
    rates = position_rates(10, (0, 0))
    assert rates[0].conditional is not None
    assert rates[1].conditional is None
    assert rates[1].rate.estimate == 0


def test_counters_read_while_they_move_give_a_rate_all_the_same():
    rates = position_rates(10, (11, 12))
    assert [rate.rate.estimate for rate in rates] == [1.0, 1.0]


def test_known_biases_are_named():
    assert counter_notes(100, 300, 160, (80, 50, 30)) == ()
    (short,) = counter_notes(100, 220, 160, (80, 50, 30))
    assert "fewer than 3 tokens" in short
    assert counter_notes(100, 300, 160, (80, 50, 10)) == (POSITIONS_DISAGREE,)
    assert counter_notes(100, None, None, ()) == ()


def test_the_steps_of_real_requests_give_vllms_own_figures():
    # What vLLM 0.32 reported for a request: mean_acceptance_length 4.667, draft_acceptance_rate 0.9167,
    # acceptance_histogram [0, 0, 0, 1, 2].
    found = step_acceptance([request((4, 4, 3), (4, 4, 4))])
    assert found is not None
    assert found.acceptance_length == pytest.approx(4.6666667)
    assert found.draft_acceptance_rate == pytest.approx(0.9166667)
    assert found.accepted_a_step == (0, 0, 0, 1, 2)
    assert [rate.rate.estimate for rate in found.positions] == pytest.approx([1, 1, 1, 2 / 3])
    assert found.acceptance_length_interval is None  # one request says nothing of the others


def test_intervals_are_resampled_by_request():
    # Steps of one request are alike, so 40 steps in 4 requests know less than 40 independent ones.
    records = [request((3,) * 10, (3,) * 10), request((0,) * 10, (3,) * 10)] * 2
    found = step_acceptance(records)
    assert found is not None
    assert found.acceptance_length == pytest.approx(2.5)
    assert found.acceptance_length_interval is not None
    assert found.acceptance_length_interval.low == 1.0
    assert found.acceptance_length_interval.high == 4.0
    wilson_width = position_rates(40, (20,))[0].rate
    first = found.positions[0].rate
    assert first.high - first.low > wilson_width.high - wilson_width.low


def test_conditional_rates_count_only_steps_that_drafted_so_far():
    # Half of the steps drafted one token only: given a draft, position 2 was always accepted.
    found = step_acceptance([request((2, 1, 2, 1), (2, 1, 2, 1))] * 3)
    assert found is not None
    assert found.positions[1].rate.estimate == 0.5
    assert found.positions[1].conditional is not None
    assert found.positions[1].conditional.estimate == 1.0


def test_steps_without_a_draft_are_not_steps_of_the_drafter():
    found = step_acceptance([request((0, 2), (0, 2))])
    assert found is not None
    assert (found.steps, found.acceptance_length) == (1, 3.0)


def test_warm_up_failed_and_silent_requests_are_left_out():
    good = request((1,), (2,))
    others = [replace(good, warmup=True), replace(good, error="timeout"), BASE]
    found = step_acceptance([*others, good])
    assert found is not None
    assert found.requests == 1
    assert step_acceptance(others) is None


def test_draft_counts_that_are_not_reported_are_absent():
    found = step_acceptance([request((1, 0), None)])
    assert found is not None
    assert found.draft_tokens is None
    assert found.draft_acceptance_rate is None
    assert found.acceptance_length == 1.5


steps = st.lists(
    st.integers(1, 5).flatmap(lambda drafted: st.tuples(st.just(drafted), st.integers(0, drafted))),
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(requests=st.lists(steps, min_size=1, max_size=6))
def test_steps_and_counters_agree(requests: list[list[tuple[int, int]]]):
    records = [
        request(tuple(got for _, got in each), tuple(drafted for drafted, _ in each))
        for each in requests
    ]
    found = step_acceptance(records, resamples=20)
    assert found is not None
    drafts = sum(map(len, requests))
    accepted = sum(got for each in requests for _, got in each)
    assert (found.steps, found.accepted_tokens) == (drafts, accepted)
    assert found.acceptance_length == acceptance_length(drafts, accepted)
    assert sum(found.accepted_a_step) == drafts
    assert sum(rate.accepted for rate in found.positions) == accepted
    rates = [rate.rate.estimate for rate in found.positions]
    assert rates == sorted(rates, reverse=True)
    for rate in found.positions:
        assert rate.rate.low <= rate.rate.estimate <= rate.rate.high


def test_tokens_a_step_counts_the_steps_that_had_no_draft() -> None:
    """21 tokens: one from the prefill, 5 + 1 in two drafted steps, 14 in steps of their own."""
    found = step_yield([replace(request((4, 0), (4, 4)), output_tokens=21)])
    assert found is not None
    assert (found.tokens, found.drafted_steps, found.steps) == (20, 2, 16)
    assert found.tokens_a_step == 20 / 16
    assert found.drafted_share == 2 / 16


def test_a_last_step_longer_than_the_answer_leaves_no_negative_steps() -> None:
    found = step_yield([replace(request((4,), (4,)), output_tokens=4)])
    assert found is not None
    assert (found.tokens, found.steps) == (3, 1)


def test_without_reported_steps_there_is_no_yield() -> None:
    assert step_yield([replace(BASE, accepted=None, drafted=None)]) is None
