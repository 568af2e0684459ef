"""Bins and axes: what the charts keep of a series, and how they scale it."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specpanel.app.tui.charts.bins import Bins
from specpanel.app.tui.charts.scale import (
    RangeKeeper,
    Scale,
    linear_ticks,
    log_ticks,
    round_out,
    tick_label,
)


def test_a_bin_keeps_first_last_lowest_and_highest() -> None:
    bins = Bins(10, 2.0)
    for time_s, value in ((4.0, 5.0), (4.5, 9.0), (5.0, 1.0), (5.9, 3.0)):
        bins.add(time_s, value)
    slot = 2 % 10
    kept = bins.first[slot], bins.last[slot], bins.lowest[slot], bins.highest[slot]
    assert kept == (5.0, 3.0, 1.0, 9.0)


def test_an_absent_sample_breaks_the_line() -> None:
    bins = Bins(10, 1.0)
    for time_s, value in ((0, 1.0), (1, 1.0), (2, None), (3, 1.0)):
        bins.add(float(time_s), value)
    assert [bins.joined[number] for number in (0, 1, 3)] == [False, True, False]
    assert not bins.has(2)


def test_silence_longer_than_the_join_breaks_the_line() -> None:
    bins = Bins(30, 1.0, join_s=3.5)
    for time_s in (0.0, 3.0, 10.0):
        bins.add(time_s, 1.0)
    assert bins.joined[3]
    assert not bins.joined[10]


def test_nan_and_infinity_are_gaps() -> None:
    bins = Bins(10, 1.0)
    bins.add(1.0, math.nan)
    bins.add(2.0, math.inf)
    assert bins.span(0) is None


samples = st.tuples(st.floats(0, 12), st.sampled_from([None, 1.0, -2.0, 5.5, 7.0]))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.lists(samples, max_size=4), st.integers(-3, 14)), max_size=12))
def test_the_span_is_that_of_the_bins_however_often_it_is_asked_for(
    steps: list[tuple[list[tuple[float, float | None]], int]],
) -> None:
    bins = Bins(6, 1.0)
    for added, oldest in steps:
        for time_s, value in added:
            bins.add(time_s, value)
        there = [number % 6 for number in range(max(0, oldest), 13) if bins.has(number)]
        expected = (
            (min(bins.lowest[slot] for slot in there), max(bins.highest[slot] for slot in there))
            if there
            else None
        )
        assert bins.span(oldest) == expected


def test_a_ring_forgets_what_left_it() -> None:
    bins = Bins(4, 1.0)
    for time_s in range(9):
        bins.add(float(time_s), float(time_s))
    assert [number for number in range(9) if bins.has(number)] == [5, 6, 7, 8]
    bins.add(2.0, 99.0)
    assert not bins.has(2)


def test_linear_ticks_are_round() -> None:
    assert linear_ticks(0, 4, 4) == (0, 1, 2, 3, 4)
    assert linear_ticks(1, 3, 4) == (1, 1.5, 2, 2.5, 3)


def test_log_ticks_are_1_2_5_and_thin_out_to_decades() -> None:
    assert log_ticks(10, 200, 8) == pytest.approx((10, 20, 50, 100, 200))
    assert log_ticks(1, 10000, 6) == pytest.approx((1, 10, 100, 1000, 10000))


def test_a_log_range_ends_on_1_2_or_5() -> None:
    assert round_out(13, 900, log=True, wanted=5) == pytest.approx((10, 1000))
    assert round_out(21, 180, log=True, wanted=5) == pytest.approx((20, 200))


def test_the_axis_grows_at_once_and_shrinks_only_after_a_while() -> None:
    keeper = RangeKeeper(low=0.0, hold_s=10.0)
    assert keeper.update((0, 9), 0.0, 5).high == 10
    assert keeper.update((0, 38), 1.0, 5).high == 40
    assert keeper.update((0, 9), 2.0, 5).high == 40
    assert keeper.update((0, 9), 11.9, 5).high == 40
    assert keeper.update((0, 9), 12.0, 5).high == 10


def test_a_value_in_the_middle_of_the_hold_starts_it_over() -> None:
    keeper = RangeKeeper(low=0.0, hold_s=10.0)
    keeper.update((0, 38), 0.0, 5)
    keeper.update((0, 9), 1.0, 5)
    keeper.update((0, 38), 9.0, 5)
    assert keeper.update((0, 9), 12.0, 5).high == 40


@settings(deadline=None, max_examples=60)
@given(
    st.floats(0, 1e9, allow_nan=False),
    st.floats(0, 1e9, allow_nan=False),
    st.booleans(),
    st.integers(1, 12),
)
def test_every_range_holds_its_values_and_has_ticks(
    one: float, other: float, log: bool, wanted: int
) -> None:
    low, high = min(one, other), max(one, other)
    bottom, top = round_out(low, high, log=log, wanted=wanted)
    assert bottom < top
    scale = Scale(bottom, top, log)
    for value in (low, high):
        assert -1e-6 <= scale.fraction(max(value, 1e-9)) <= 1 + 1e-6
        assert 0 <= scale.dot(value, 40) < 40
    assert all(len(tick_label(tick)) <= 5 for tick in scale.ticks(wanted))


@pytest.mark.parametrize(
    ("value", "label"),
    [
        (0, "0"),
        (0.05, "0.05"),
        (2.5, "2.5"),
        (40, "40"),
        (1000, "1000"),
        (20000, "20k"),
        (2e6, "2M"),
    ],
)
def test_tick_labels_are_short(value: float, label: str) -> None:
    assert tick_label(value) == label
