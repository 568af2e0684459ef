"""What the events of a run tell: the curves over its steps, its stages, its alarms."""

import json
import random
from pathlib import Path
from typing import Any

from specpanel.core.training.alarms import RECENT
from specpanel.core.training.curve import Curve
from specpanel.core.training.story import Story

SAMPLE = Path(__file__).parents[1] / "data" / "training" / "train-tiny"


def lines(*names: str) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for name in names
        for line in (SAMPLE / name).read_text(encoding="utf-8").splitlines()
    ]


def told(*found: Any) -> Story:
    story = Story()
    for line in found:
        story.take(line)
    return story


def step(number: int, **values: Any) -> dict[str, Any]:
    return {"kind": "step", "step": number, "loss": 1.0, **values}


def test_a_long_curve_takes_bounded_memory_and_loses_no_peak() -> None:
    curve = Curve()
    for number in range(1, 20_001):
        curve.add(number, 900.0 if number == 11_337 else float(number % 7))
    assert len(curve) <= Curve.CAPACITY
    points = list(curve)
    assert max(point.high for point in points) == 900.0
    peak = next(point for point in points if point.high == 900.0)
    assert peak.step <= 11_337 < peak.step + 20_000 // len(curve) * 2
    assert curve.last == float(20_000 % 7)


def test_steps_that_are_done_again_take_the_place_of_the_first_ones() -> None:
    curve = Curve()
    for number in range(1, 51):
        curve.add(number, 5.0)
    for number in range(36, 41):
        curve.add(number, 2.0)
    assert [point.step for point in curve] == list(range(1, 41))
    assert (curve.at(35), curve.at(36), curve.at(99), curve.at(0)) == (5.0, 2.0, 2.0, None)


def test_a_real_run_that_was_stopped_and_gone_on_with_is_one_story() -> None:
    stopped = told(*lines("events.ndjson"))
    assert stopped.ending is not None
    assert (stopped.ending.state, stopped.ending.resumable) == ("stopped", True)
    assert [(one.name, one.state) for one in stopped.shown_stages()] == [
        ("data", "done"),
        ("extraction", "done"),
        ("train", "stopped"),
    ]
    whole = told(*lines("events.ndjson", "events-2.ndjson"))
    assert [(one.name, one.state) for one in whole.shown_stages()] == [
        ("data", "as before"),
        ("extraction", "done"),
        ("train", "done"),
    ]
    assert (whole.name, whole.algorithm, whole.wanted_steps) == ("train-tiny", "eagle3", 20)
    assert [point.step for point in whole.loss] == list(range(1, 21))
    assert [point.step for point in whole.validation_loss] == [20]
    assert [(one.step, one.best) for one in whole.checkpoints.values()] == [(15, False), (20, True)]
    assert whole.alarms() == []
    assert whole.newest is not None
    assert len(whole.newest.positions) == 3
    assert whole.ending is not None
    assert whole.ending.state == "done"


def test_nothing_that_can_stand_in_a_line_breaks_it() -> None:
    rng = random.Random(7)
    junk: list[Any] = [None, "", "[/x]", -1, 1e999, 2**80, True, [], [[1]], {}, {"a": 1}]
    kinds = {line["kind"] for line in lines("events.ndjson", "events-2.ndjson")} | {"evaluation"}
    samples = lines("events.ndjson", "events-2.ndjson")
    story = Story()
    for kind in kinds:
        story.take({"kind": kind})
    for _ in range(600):
        line = dict(rng.choice(samples))
        for key in rng.sample(sorted(line), k=min(3, len(line))):
            line[key] = rng.choice(junk) if key != "kind" else rng.choice(sorted(kinds))
        story.take(line)
        story.alarms()
        list(story.shown_stages())
    assert story.lines == 600 + len(kinds)


def test_starvation_is_an_alarm_once_enough_steps_show_it() -> None:
    starved = [step(number, waiting_share=0.7) for number in range(1, RECENT + 1)]
    assert told(*starved[:-1]).alarms() == []
    [alarm] = told(*starved).alarms()
    assert (alarm.severity, "70%" in alarm.text) == ("warning", True)
    finding = {"kind": "finding", "code": "training-starved", "severity": "warning", "text": "x"}
    assert [one.text for one in told(*starved, finding).alarms()] == ["x"]


def test_dropped_samples_are_counted_and_errors_come_first() -> None:
    nan = {"kind": "finding", "code": "training-nan", "severity": "error", "text": "not a number"}
    story = told(step(1, dropped=2.0), step(2, dropped=1.0), None, nan)
    assert [one.severity for one in story.alarms()] == ["error", "warning", "note"]
    assert story.alarms()[1].text == "3 samples could not be had"
    assert "1 line" in story.alarms()[2].text


def test_what_serving_showed_stands_beside_what_was_foretold() -> None:
    story = told(
        {
            "kind": "evaluation",
            "step": 330,
            "checkpoint": "/x",
            "heldout": {"acceptance_length": 1.71, "interval": {"low": 1.6, "high": 1.8}},
            "validation": {"acceptance_length": 1.88},
            "predicted": 1.92,
            "gap": -0.02,
            "checks": [
                {"cause": "a", "state": "differs", "text": "the template"},
                {"state": "same"},
            ],
        }
    )
    served = story.served[330]
    assert (served.heldout, served.low, served.high, served.gap) == (1.71, 1.6, 1.8, -0.02)
    assert served.causes == ("the template",)
