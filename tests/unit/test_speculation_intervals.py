"""Intervals and quantiles: known values, order, honesty at small counts, speed."""

import math
import random
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pace import cheapest_s

from specpanel.core.engine.metrics import parse_exposition
from specpanel.core.monitor.frame import Quantile
from specpanel.core.speculation.buckets import Buckets, merged
from specpanel.core.speculation.intervals import bootstrap, percentile, wilson
from specpanel.core.speculation.quantiles import (
    bucket_quantile,
    bucket_quantiles,
    sample_quantile,
)

DATA = Path(__file__).parents[1] / "data"


def ratio(sums: tuple[float, ...]) -> float | None:
    return sums[0] / sums[1] if sums[1] else None


def test_wilson_gives_the_published_values():
    # Newcombe, Statistics in Medicine 17 (1998), table I: 81/263, 15/148, 0/20, 1/29.
    for successes, trials, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        interval = wilson(successes, trials)
        assert interval is not None
        assert interval.low == pytest.approx(low, abs=5e-5)
        assert interval.high == pytest.approx(high, abs=5e-5)


@settings(deadline=None)
@given(trials=st.integers(0, 10**9), share=st.floats(0, 1))
def test_wilson_holds_the_rate_and_stays_a_rate(trials: int, share: float):
    successes = round(trials * share)
    interval = wilson(successes, trials)
    if trials == 0:
        assert interval is None
        return
    assert interval is not None
    assert 0 <= interval.low <= interval.estimate <= interval.high <= 1
    assert interval.low < interval.high


@pytest.mark.parametrize(("successes", "trials"), [(-1, 5), (6, 5)])
def test_wilson_refuses_what_is_no_proportion(successes: int, trials: int):
    with pytest.raises(ValueError, match="no proportion"):
        wilson(successes, trials)


def test_the_bootstrap_interval_holds_the_truth_about_as_often_as_it_says():
    draw = random.Random(4)
    truth, held, rounds = 0.7, 0, 120
    for seed in range(rounds):
        tokens = [float(draw.randint(20, 60)) for _ in range(40)]
        times = [sum(draw.expovariate(1 / truth) for _ in range(int(n))) for n in tokens]
        interval = bootstrap((times, tokens), ratio, resamples=200, seed=seed)
        assert interval is not None
        held += interval.low <= truth <= interval.high
    assert 0.86 <= held / rounds <= 1.0


def test_the_bootstrap_repeats_itself_and_needs_two_units():
    draw = random.Random(2)
    columns = ([draw.random() for _ in range(30)], [draw.random() for _ in range(30)])
    assert bootstrap(columns, ratio, seed=3) == bootstrap(columns, ratio, seed=3)
    assert bootstrap(columns, ratio, seed=3) != bootstrap(columns, ratio, seed=4)
    assert bootstrap(([3.0], [1.0]), ratio) is None
    assert bootstrap(([], []), ratio) is None
    assert bootstrap(([1.0, 2.0], [0.0, 0.0]), ratio) is None


def test_two_thousand_resamples_of_a_hundred_prompts_take_a_fraction_of_a_second():
    draw = random.Random(0)
    columns = [[draw.random() for _ in range(100)] for _ in range(4)]

    def resample() -> None:
        bootstrap(columns, lambda sums: (sums[0] / sums[1]) / (sums[2] / sums[3]), resamples=2000)

    assert cheapest_s(resample, 0.3) < 0.3


def test_percentile_interpolates():
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.5
    assert percentile([7.0], 0.99) == 7.0


def itl() -> Buckets:
    text = (DATA / "metrics_latency.txt").read_text()
    buckets = parse_exposition(text).counters.total.itl
    assert buckets is not None
    return buckets


def test_quantiles_are_interpolated_inside_their_bucket():
    buckets = itl()
    for share, value_ms in ((0.5, 30.0), (0.95, 75.0), (0.99, 95.0)):
        quantile = bucket_quantile(buckets, share)
        assert quantile is not None
        assert quantile.value_ms == pytest.approx(value_ms)
        assert not quantile.beyond
    assert buckets.sum_s is not None
    assert buckets.sum_s / buckets.count == pytest.approx(0.031)


def test_the_top_bucket_says_beyond_and_never_infinity():
    buckets = Buckets((0.01, 0.1, math.inf), (0, 0, 3))
    assert bucket_quantile(buckets, 0.5) == Quantile(100.0, beyond=True)
    assert bucket_quantile(Buckets((math.inf,), (3,)), 0.5) == Quantile(0.0, beyond=True)


def test_no_observations_have_no_quantiles():
    assert bucket_quantiles(Buckets((0.1, math.inf), (0, 0))) is None
    assert bucket_quantiles(None) is None
    assert sample_quantile([], 0.5) is None


bounds = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=12, unique=True).map(
    lambda found: (*sorted(found), math.inf)
)


@st.composite
def histograms(draw: st.DrawFn) -> Buckets:
    rising = draw(bounds)
    counts = draw(st.lists(st.integers(0, 500), min_size=len(rising), max_size=len(rising)))
    return Buckets(rising, tuple(accumulate(counts)))


@settings(max_examples=50, deadline=None)
@given(buckets=histograms(), shares=st.lists(st.floats(0, 1), min_size=2, max_size=6))
def test_quantiles_never_fall_as_the_share_grows(buckets: Buckets, shares: list[float]):
    found = [bucket_quantile(buckets, share) for share in sorted(shares)]
    if buckets.count == 0:
        assert set(found) == {None}
        return
    values = [quantile.value_ms for quantile in found if quantile is not None]
    assert len(values) == len(shares)
    assert all(math.isfinite(value) for value in values)
    assert all(low <= high * (1 + 1e-12) for low, high in pairwise(values))


@settings(max_examples=50, deadline=None)
@given(one=histograms(), other=histograms())
def test_merging_keeps_every_observation_and_is_undone_by_the_difference(
    one: Buckets, other: Buckets
):
    both = merged([one, other])
    assert both is not None
    assert both.count == one.count + other.count
    assert both.minus(other).count == one.count
    shared = set(one.bounds_s) & set(other.bounds_s)
    assert both.bounds_s == tuple(sorted(shared))


@pytest.mark.parametrize(
    ("rising", "counts"),
    [((), ()), ((1.0,), (1,)), ((2.0, 1.0, math.inf), (1, 2, 3)), ((1.0, math.inf), (3, 2))],
)
def test_buckets_that_are_none_are_refused(rising: tuple[float, ...], counts: tuple[int, ...]):
    with pytest.raises(ValueError, match=r"bound|counts"):
        Buckets(rising, counts)


def test_sample_quantiles_use_order_statistics():
    # n=10, median: ranks 2 and 9 leave 1.07 % on each side, 3 and 8 would leave 5.5 %.
    quantile = sample_quantile([float(n) for n in range(1, 11)], 0.5)
    assert quantile is not None
    assert (quantile.low_ms, quantile.value_ms, quantile.high_ms) == (2.0, 5.5, 9.0)


def test_the_order_statistics_of_twenty_samples_are_the_tabulated_ones():
    # Median of n=20 at 95 %: ranks 6 and 15 (2.07 % on each side; ranks 7 and 14 would leave 5.8 %).
    quantile = sample_quantile([float(n) for n in range(1, 21)], 0.5)
    assert quantile is not None
    assert (quantile.low_ms, quantile.high_ms) == (6.0, 15.0)


def test_a_bound_that_few_samples_cannot_give_is_absent():
    quantile = sample_quantile([float(n) for n in range(24)], 0.99)
    assert quantile is not None
    assert quantile.high_ms is None
    assert quantile.low_ms == 22.0  # P(at most 22 below) = 2.4 %
    alone = sample_quantile([7.0], 0.5)
    assert alone is not None
    assert (alone.low_ms, alone.value_ms, alone.high_ms) == (None, 7.0, None)


@settings(max_examples=60, deadline=None)
@given(
    samples=st.lists(st.floats(0, 1e6), min_size=1, max_size=80),
    share=st.sampled_from([0.5, 0.9, 0.95, 0.99]),
)
def test_sample_quantiles_lie_within_their_bounds(samples: list[float], share: float):
    quantile = sample_quantile(samples, share)
    assert quantile is not None
    assert min(samples) <= quantile.value_ms <= max(samples)
    if quantile.low_ms is not None:
        assert quantile.low_ms <= quantile.value_ms
    if quantile.high_ms is not None:
        assert quantile.high_ms >= quantile.value_ms


def test_the_sample_interval_holds_the_truth_at_least_as_often_as_it_says():
    draw = random.Random(1)
    truth_ms = -math.log(0.1)  # p90 of an exponential of mean 1
    held, rounds = 0, 400
    for _ in range(rounds):
        quantile = sample_quantile([draw.expovariate(1) for _ in range(80)], 0.9)
        assert quantile is not None
        assert quantile.low_ms is not None
        held += quantile.low_ms <= truth_ms <= (quantile.high_ms or math.inf)
    assert held / rounds >= 0.93
