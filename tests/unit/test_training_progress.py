"""The trainer's metrics become events: positions, predictions, and what should not go on."""

import math

import pytest

from specpanel.core.training.events import LoaderKnown, StepDone, ValidationDone
from specpanel.core.training.progress import Saved, Watch, prediction, read_metrics

# One step and one validation as Speculators 0.9.0 logged them.
EAGLE = {
    "loss": 9.05,
    "full_acc_0": 0.497,
    "cond_acc_0": 0.497,
    "full_acc_1": 0.266,
    "cond_acc_1": 0.535,
    "full_acc_2": 0.161,
    "cond_acc_2": 0.605,
}


def test_eagles_length_is_one_and_the_sum_of_the_accuracies_from_the_start() -> None:
    found = prediction(EAGLE)
    assert found.acceptance_length == pytest.approx(1.924)
    assert [one.position for one in found.positions] == [0, 1, 2]
    assert found.positions[1].conditional == 0.535


def test_p_eagles_accuracies_stand_alone_and_are_chained() -> None:
    found = prediction({"position_0_acc": 0.5, "position_1_acc": 0.4, "full_acc": 0.3})
    assert found.acceptance_length == pytest.approx(1 + 0.5 + 0.2)
    assert found.positions[1].unconditional == pytest.approx(0.2)
    assert found.positions[1].conditional == 0.4


def test_block_drafters_bring_their_own_estimate_and_begin_after_the_anchor() -> None:
    found = prediction({"position_1_acc": 0.2, "position_2_acc": 0.1, "eal": 1.077})
    assert found.acceptance_length == 1.077
    assert found.positions[0].position == 0
    assert found.formula == "the trainer's eal"


def test_an_algorithm_without_accuracies_predicts_nothing() -> None:
    assert prediction({"loss": 3.0, "loss_step_0": 1.0}).acceptance_length is None


def test_a_step_is_read_with_its_times_and_counted_from_one() -> None:
    step = read_metrics(
        {
            "kind": "step",
            "unix": 103.0,
            "train": {**EAGLE, "error_records": 0.0},
            "profile": {"fetch_ms": 30.0, "step_ms": 60.0, "fetch_frac": 0.5, "tokens_per_s": 9},
            "epoch": 1,
            "lr": {"Muon": 0.02, "AdamW": 0.001},
            "global_step": 56,
        },
        100.0,
    )
    assert isinstance(step, StepDone)
    assert (step.step, step.epoch, step.elapsed_s) == (57, 1, 3.0)
    assert (step.learning_rate, step.waiting_share, step.tokens_per_s) == (0.02, 0.5, 9.0)
    assert step.backward_ms is None


def test_a_validation_is_read_without_the_trainers_endings() -> None:
    done = read_metrics(
        {
            "kind": "validation",
            "unix": 9.0,
            "at_step": 57,
            "epoch": 0,
            "val": {f"{name}_epoch": value for name, value in EAGLE.items()},
        },
        0.0,
    )
    assert isinstance(done, ValidationDone)
    assert done.loss == 9.05
    assert done.prediction == prediction(EAGLE)


def test_what_the_runner_tells_of_itself_is_read() -> None:
    assert read_metrics(
        {"kind": "loader", "steps_per_epoch": 5, "validation_packs": 1, "last_step": 30}, 0.0
    ) == LoaderKnown(5, 1, 30)
    saved = read_metrics(
        {"kind": "saved", "global_step": 5, "epoch": 0, "interrupted": False, "kept": "/x"}, 0.0
    )
    assert saved == Saved(5, 0, False, "/x")
    assert read_metrics({"kind": "of a later version"}, 0.0) is None


def step(number: int, loss: float | None, waiting: float = 0.0, dropped: float = 0.0) -> StepDone:
    found = read_metrics(
        {
            "kind": "step",
            "train": {"loss": math.nan if loss is None else loss, "error_records": dropped},
            "profile": {"fetch_frac": waiting},
            "global_step": number,
        },
        0.0,
    )
    assert isinstance(found, StepDone)
    return found


def troubles(steps: list[StepDone]) -> list[str]:
    watch = Watch()
    return [found[0] for one in steps if (found := watch.look(one)) is not None]


def test_a_loss_that_is_no_number_is_told_at_once() -> None:
    assert troubles([step(0, 3.0), step(1, None), step(2, None)]) == ["nan"]


def test_waiting_for_states_is_told_once_it_lasts() -> None:
    assert troubles([step(n, 5.0 - n / 100, waiting=0.7) for n in range(60)]) == ["starved"]
    assert troubles([step(n, 5.0 - n / 100, waiting=0.3) for n in range(60)]) == []


def test_dropped_samples_are_told() -> None:
    assert troubles([step(0, 3.0), step(1, 2.9, dropped=0.25)]) == ["dropped"]


def test_e14_a_loss_that_stays_high_and_flat_is_told() -> None:
    assert troubles([step(n, 20.0 + (n % 2) / 10) for n in range(260)]) == ["plateau"]
    assert troubles([step(n, 20.0 - n / 20) for n in range(260)]) == []
