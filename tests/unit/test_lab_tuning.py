"""K by batch size: what the search chooses, what it keeps out, and the profile that carries it."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from specpanel.core.errors import ConfigurationError
from specpanel.core.lab.tuning import tuned, with_k, with_schedule
from specpanel.core.monitor.frame import Interval
from specpanel.core.settings.profile import Profile
from specpanel.core.speculation.breakeven import Required
from specpanel.core.speculation.schedule_search import (
    Candidate,
    candidates,
    choose_schedule,
    length_at,
    single_best,
    spoken,
    words_of,
)

CONDITIONAL = (0.8, 0.7, 0.6, 0.5)


def point(load: int, k: int, required: float, width: float = 0.05) -> Required:
    return Required(load, k, required, Interval(required, required - width, required + width))


def machine(load: int, k: int) -> float:
    """Step time over plain: free while few run, linear in the tokens to verify beyond."""
    return max(1.0, 0.5 + 0.04 * load * (1 + k))


POINTS = [point(load, k, machine(load, k)) for load in (1, 4, 16) for k in (1, 2, 4)]


def test_length_adds_up_conditional_acceptance() -> None:
    assert length_at(CONDITIONAL, 0) == 1
    assert length_at(CONDITIONAL, 2) == pytest.approx(1 + 0.8 + 0.56)
    with pytest.raises(ValueError, match="position 5"):
        length_at(CONDITIONAL, 5)


def test_k_falls_with_the_load_and_each_is_the_best_that_was_measured() -> None:
    found = candidates(POINTS, CONDITIONAL)
    chosen = choose_schedule(found, 4)
    assert [choice.concurrency for choice in chosen] == [1, 4, 16]
    assert chosen[0].k == 4
    assert all(later.k <= earlier.k for earlier, later in pairwise(chosen))
    for choice in chosen:
        best = min(one.ratio for one in found if one.concurrency == choice.concurrency)
        assert choice.ratio <= best * 1.02
        assert choice.fixed_ratio is not None
        assert choice.ratio <= choice.fixed_ratio


def test_where_no_k_gains_plain_decoding_is_chosen() -> None:
    found = candidates([point(32, 1, 2.5), point(32, 2, 3.5)], CONDITIONAL)
    [choice] = choose_schedule(found, 2)
    assert (choice.k, choice.ratio) == (0, 1.0)


def noisy(load: int, k: int, ratio: float, width: float) -> Candidate:
    return Candidate(load, k, 2.0, ratio, Interval(ratio, ratio - width, ratio + width))


@pytest.mark.parametrize(("width", "expected"), [(0.2, 2), (0.02, 4)])
def test_a_rising_k_is_kept_out_unless_the_interval_supports_it(
    width: float, expected: int
) -> None:
    found = [
        *(noisy(1, 2, 0.50, width), noisy(1, 4, 0.55, width)),
        *(noisy(4, 2, 0.70, width), noisy(4, 4, 0.60, width)),
    ]
    assert [choice.k for choice in choose_schedule(found, 2)] == [2, expected]


def test_a_change_that_gains_less_than_two_percent_is_left() -> None:
    found = [*(noisy(1, 4, 0.50, 0.0), noisy(1, 2, 0.6, 0.0))]
    found += [noisy(4, 4, 0.705, 0.0), noisy(4, 2, 0.70, 0.0)]
    assert [choice.k for choice in choose_schedule(found, 4)] == [4, 4]


def test_drafting_that_costs_time_makes_long_drafts_dearer() -> None:
    free = choose_schedule(candidates(POINTS, CONDITIONAL), 4)
    dear = choose_schedule(candidates(POINTS, CONDITIONAL, {1: 0.4, 4: 0.4, 16: 0.4}), 4)
    assert dear[0].k < free[0].k


def test_the_single_best_weighs_every_load_alike() -> None:
    found = [noisy(1, 1, 0.9, 0), noisy(1, 4, 0.4, 0), noisy(16, 1, 0.95, 0), noisy(16, 4, 1.2, 0)]
    assert single_best(found) == 4


def test_ranges_cover_every_load_without_gap_and_join_equal_ones() -> None:
    words = words_of(choose_schedule(candidates(POINTS, CONDITIONAL), 4))
    bounds = [[int(end) for end in word.split(":")[0].split("-")] for word in words]
    assert bounds[0][0] == 1
    assert all(later[0] == earlier[1] + 1 for earlier, later in pairwise(bounds))
    assert bounds[-1][1] >= 4096
    ks = [word.split(":")[1] for word in words]
    assert all(one != other for one, other in pairwise(ks))


def profile(method: str = "ngram", arguments: tuple[str, ...] = ()) -> Profile:
    return Profile.model_validate(
        {
            "name": "p",
            "target": {"model": "/m"},
            "engine": {"arguments": arguments},
            "drafter": {"method": method, "k": 3},
        }
    )


def result() -> dict[str, Any]:
    points = [
        {
            "concurrency": one.concurrency,
            "k": one.k,
            "required_length": one.length,
            "required_interval": {
                "estimate": one.length,
                "low": one.length - 0.05,
                "high": one.length + 0.05,
            },
        }
        for one in POINTS
    ]
    real = [
        {
            "concurrency": load,
            "k": 4,
            "conditional": CONDITIONAL,
            "drafter_ms": 1.0,
            "plain_step_ms": 100.0,
        }
        for load in (1, 4, 16)
    ]
    return {"points": points, "real": real}


def test_the_tuned_profile_is_valid_and_names_its_evidence() -> None:
    found = tuned("breakeven-1", result(), profile())
    after = with_schedule(profile(), found, "p-tuned")
    assert after.name == "p-tuned"
    assert "breakeven-1" in after.description
    config = after.drafter.speculative_config()
    assert config is not None
    assert config["num_speculative_tokens"] == max(choice.k for choice in found.choices)
    assert config["num_speculative_tokens_per_batch_size"][0][0] == 1
    assert with_k(after, 0, "plain").drafter.method == "none"
    assert with_k(after, 2, "two").drafter.draft_tokens == 2


def test_data_parallelism_is_told_for_vllm_ignores_the_schedule_then() -> None:
    found = tuned("b", result(), profile(arguments=("--data-parallel-size", "2")))
    assert any("data parallelism" in note for note in found.notes)


def test_a_curve_without_the_drafter_and_a_method_without_schedule_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="did not measure"):
        tuned("b", {**result(), "real": []}, profile())
    with pytest.raises(ConfigurationError, match="no K by batch size"):
        tuned("b", result(), profile("suffix"))


def test_what_is_foretold_of_the_own_k_lies_within_what_the_same_real_run_measured() -> None:
    """A break-even of the n-gram drafter on two cores, which drafted in some of the steps only."""
    text = (Path(__file__).parents[1] / "data" / "lab_results.json").read_text(encoding="utf-8")
    [kept] = [one for one in json.loads(text) if one["kind"] == "breakeven"]
    profile = Profile.model_validate(
        {"name": "p", "target": {"model": "/m"}, "drafter": {"method": "ngram", "k": 4}}
    )
    found = tuned(kept["id"], kept["result"], profile)
    assert "of the steps had a draft" in found.notes[0]
    foretold = {(one.concurrency, one.k): one.ratio for one in found.candidates}
    for real in kept["result"]["real"]:
        between = real["tpot_ratio_interval"]
        assert between["low"] <= foretold[real["concurrency"], 4] <= between["high"]


def test_a_schedule_is_said_for_a_person() -> None:
    assert spoken(["1-999999:4"]) == "K=4 at every load"
    assert spoken(["1-1:5", "2-6:3", "7-999999:0"]) == "K=5 for 1, K=3 for 2 to 6, K=0 from 7 on"
