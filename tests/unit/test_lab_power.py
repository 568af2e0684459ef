"""Power is counted over the blocks alone, from readings that cover them, and is else said to be unknown."""

from dataclasses import replace
from pathlib import Path

import pytest
from fakes.devices.machine import read, until, watched

from specpanel.core.lab import power
from specpanel.core.lab.power import PowerLog, metered, watts_of
from specpanel.core.speculation.contrast import Sums
from specpanel.core.speculation.cost import cost_of


def log(*watts: float | None) -> PowerLog:
    found = PowerLog()
    for second, each in enumerate(watts):
        found.take(float(second), each)
    return found


def test_a_mean_is_over_the_blocks_and_not_over_what_lies_between() -> None:
    # Two seconds at 300 W, a pause at 50 W, two seconds at 500 W.
    found = log(300, 300, 50, 50, 50, 500, 500).over([(0.0, 2.0), (5.0, 7.0)])
    assert found.mean_w == pytest.approx(400)
    half = log(300, 300, 50, 50).over([(1.5, 2.5)])
    assert half.mean_w == pytest.approx(175)


def test_readings_that_miss_more_than_a_fifth_of_the_time_give_no_figure() -> None:
    assert log(300, 300, 300, 300, None).over([(0.0, 5.0)]).mean_w == pytest.approx(300)
    found = log(300, None, None, 300).over([(0.0, 4.0)])
    assert (found.mean_w, found.absent) == (
        None,
        "the devices told their power for 50% of the time only",
    )
    assert PowerLog(reason="no").over([(0.0, 1.0)]).absent == "no"
    assert PowerLog().over([]).mean_w is None


def test_joules_of_a_thousand_tokens_are_power_times_time_over_tokens() -> None:
    cost = cost_of(Sums(output_tokens=4000, elapsed_s=20.0), mean_power_w=400.0)
    assert cost.joules_per_1000_tokens == pytest.approx(2000)
    assert cost.energy_absent is None
    unknown = cost_of(Sums(output_tokens=1, elapsed_s=1.0), power_absent="not told")
    assert (unknown.joules_per_1000_tokens, unknown.energy_absent) == (None, "not told")


def test_the_power_of_eight_cards_is_that_of_those_which_are_used(tmp_path: Path) -> None:
    sample, _ = read("h200x8", tmp_path)
    uuids = [device.uuid for device in sample.devices]
    told = {reading.uuid: reading.power_w for reading in sample.readings}
    both = watts_of(sample, uuids[:2])
    assert both == pytest.approx((told[uuids[0]] or 0) + (told[uuids[1]] or 0))
    assert watts_of(sample, ()) is None
    assert watts_of(sample, None) is None
    assert watts_of(replace(sample, state="stale"), uuids) is None
    assert watts_of(sample, [*uuids, "gone"]) is None


async def test_a_reader_is_followed_while_it_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(power, "PERIOD_S", 0.01)
    async with watched("h200x8", tmp_path) as watch:
        sample = await until(watch, lambda sample: sample.state == "ok")
        first = sample.devices[0].uuid
        async with metered(lambda _: (first,), watch=watch) as found:
            await until(watch, lambda _: len(found.watts) >= 5)
        assert any(each is not None for each in found.watts)
        span = (found.times_s[0], found.times_s[-1])
        assert found.over([span]).mean_w == pytest.approx(watts_of(sample, (first,)), rel=0.5)
