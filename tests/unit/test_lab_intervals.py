"""Intervals of the lab are as honest as they say: simulated cases with a known truth."""

import math
import random

import pytest

from specpanel.core.speculation.contrast import TPOT, Contrast, Sums, contrast, half_width
from specpanel.core.speculation.few_units import resampled_interval, student_quantile
from specpanel.core.speculation.stopping import Stopping

RESAMPLES = 200
BLOCKS_LIMIT = 40
PROMPTS = 5


def block(draw: random.Random, base_ms: float, speed: float, prompts: list[float]) -> Sums:
    """One side's block: each prompt has its own cost, the block its own disturbance."""
    disturbed = math.exp(draw.gauss(0, 0.04))
    found = Sums(elapsed_s=1.0)
    for cost in prompts:
        tokens = draw.randint(20, 64)
        found.add(
            Sums(
                decode_ms=base_ms
                * speed
                * disturbed
                * cost
                * tokens
                * math.exp(draw.gauss(0, 0.05)),
                decode_tokens=tokens,
            )
        )
    return found


Blocks = dict[int, Sums]


def experiment(
    seed: int, truth: float, *, rounds: int = 1, luck: float = 0.0, order: float = 0.0
) -> Contrast:
    """A comparison as it is run: blocks in turn on a machine that drifts, until the rule says stop.

    ``truth`` is the ratio of pooled times per token. The drafter's gain differs by prompt, as
    acceptance does, and its mean over prompts is ``truth``. Servers are started ``rounds`` times, in
    turned order; each start has its ``luck`` (a standard deviation), and the second to be started is
    slower by ``order``, both as logarithms.
    """
    draw = random.Random(seed)
    whole = Stopping(precision=0.06, requests=BLOCKS_LIMIT * PROMPTS)
    plain: Blocks = {}
    treated: Blocks = {}
    starts: list[tuple[Blocks, Blocks]] = []
    drift = 0.0
    for number in range(BLOCKS_LIMIT):
        if not starts or (
            len(starts) < rounds
            and whole.part(len(starts) / rounds).reason(
                [half_width(plain, treated)], number, 0.0, number * PROMPTS
            )
        ):
            starts.append(({}, {}))
            turned = len(starts) % 2 == 0
            base_luck = math.exp(draw.gauss(0, luck) + order * turned)
            treated_luck = math.exp(draw.gauss(0, luck) + order * (not turned))
        drift = 0.8 * drift + draw.gauss(0, 0.10)  # hits both sides of a block alike
        base = 100 * math.exp(drift)
        costs = [math.exp(draw.gauss(0, 0.1)) for _ in range(PROMPTS)]
        gains = [math.exp(draw.gauss(-(0.15**2) / 2, 0.15)) for _ in costs]
        sides = {
            "plain": (plain, base_luck, costs),
            "treated": (
                treated,
                truth * treated_luck,
                [cost * gain for cost, gain in zip(costs, gains, strict=True)],
            ),
        }
        for side in ("plain", "treated") if number % 2 else ("treated", "plain"):
            into, speed, prompts = sides[side]
            into[number] = block(draw, base, speed, prompts)
            starts[-1][side == "treated"][number] = into[number]
        if len(starts) == rounds and whole.reason(
            [half_width(plain, treated)], number + 1, 0.0, (number + 1) * PROMPTS
        ):
            break
    told = starts if rounds > 1 else ()
    return contrast(TPOT, plain, treated, starts=told, resamples=RESAMPLES)


@pytest.fixture(scope="module")
def equal() -> list[Contrast]:
    """A thing compared with itself, many times over."""
    return [experiment(seed, 1.0) for seed in range(700)]


def test_95_percent_intervals_hold_the_truth_in_93_to_97_of_100_cases(
    equal: list[Contrast],
) -> None:
    cases = [(1.0, found) for found in equal]
    cases += [(0.8, experiment(seed, 0.8)) for seed in range(1000, 1200)]
    held = [one.interval.low <= truth <= one.interval.high for truth, one in cases if one.interval]
    assert len(held) == len(cases)
    assert 0.93 <= sum(held) / len(held) <= 0.97, sum(held) / len(held)


def test_a_against_a_shows_no_difference_in_94_of_100_cases(equal: list[Contrast]) -> None:
    silent = sum(found.shown == "no difference shown" for found in equal)
    assert silent / len(equal) >= 0.94, silent / len(equal)


def test_servers_that_are_started_again_in_turned_order_hide_which_was_first() -> None:
    """With one start each, a place in the order that costs 5 % is taken for a difference."""
    once = [experiment(seed, 1.0, order=0.05).shown for seed in range(150)]
    again = [experiment(seed, 1.0, rounds=2, order=0.05).shown for seed in range(150)]
    assert once.count("no difference shown") / len(once) < 0.75
    assert again.count("no difference shown") / len(again) >= 0.94


def test_the_luck_of_a_start_is_told_more_often_the_more_starts_there_are() -> None:
    silent = [
        sum(
            experiment(seed, 1.0, rounds=rounds, luck=0.03).shown == "no difference shown"
            for seed in range(150)
        )
        for rounds in (1, 2, 3)
    ]
    assert silent[0] < silent[1] <= silent[2]


def test_a_start_that_hardly_measured_widens_nothing() -> None:
    def side(ratio: float, groups: range) -> Blocks:
        return {n: Sums(decode_ms=100 * ratio + n, decode_tokens=10, steps=10) for n in groups}

    long, short = range(10), range(10, 12)
    before = side(1.0, long) | side(1.0, short)
    after = side(0.9, long) | side(2.0, short)
    alone = contrast(TPOT, before, after)
    starts = [(side(1.0, long), side(0.9, long)), (side(1.0, short), side(2.0, short))]
    assert contrast(TPOT, before, after, starts=starts).interval == alone.interval
    halves = [
        (side(1.0, range(6)), side(0.5, range(6))),
        (side(1.0, range(6, 12)), side(2.0, range(6, 12))),
    ]
    wide = contrast(TPOT, before, after, starts=halves).interval
    assert wide is not None
    assert (wide.low, wide.high) == pytest.approx((0.51, 1.92), abs=0.01)


def test_a_tenth_is_found_with_the_right_sign() -> None:
    shown = [experiment(seed, 0.9).shown for seed in range(60)]
    assert shown.count("worse") == 0
    assert shown.count("better") >= 45


@pytest.mark.parametrize(
    ("degrees", "value"),
    [(1, 12.7062), (2, 4.3027), (4, 2.7764), (7, 2.3646), (15, 2.1314), (120, 1.9799)],
)
def test_students_quantiles_are_those_of_the_tables(degrees: int, value: float) -> None:
    assert student_quantile(0.975, degrees) == pytest.approx(value, abs=2e-4)


def test_few_units_give_no_interval_rather_than_a_narrow_one() -> None:
    assert resampled_interval([[1.0] * 4, [2.0] * 4], lambda sums: sums[0] / sums[1]) is None


def test_a_part_of_the_rule_is_enough_for_the_whole_in_the_end() -> None:
    half = Stopping(precision=0.05, fewest_groups=13, budget_s=600, requests=101).part(0.5)
    assert half == Stopping(pytest.approx(0.0707, abs=1e-4), 7, 300, 51)
    assert Stopping().part(1.0) == Stopping()


def test_a_width_that_is_not_known_never_stops_an_experiment() -> None:
    rule = Stopping(precision=0.5, fewest_groups=2, budget_s=10, requests=100)
    assert rule.reason([None, 0.01], 5, 1, 10) is None
    assert rule.reason([0.6, 0.01], 5, 1, 10) is None
    assert rule.reason([0.4, 0.01], 1, 1, 10) is None
    assert rule.reason([0.4, 0.01], 5, 1, 10) == "narrow enough"
    assert rule.reason([None], 1, 11, 10) == "out of time"
    assert rule.reason([None], 1, 1, 100) == "out of requests"
