"""Drafters as Speculators writes them, served by real vLLM: what their weights say is what is measured.

The target answers with one token for ever, and the weights of each drafter say at which positions it
proposes that token (`fakes/drafter_checkpoints.py`): acceptance is known before anything runs.
"""

import json
from pathlib import Path

import pytest
from fakes import drafter_checkpoints as tiny


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_target(tmp_path_factory.mktemp("tiny") / "target")


def flight(specpanel, target: Path, port: str, method: str, drafter: Path, k: int):
    """The acceptance that one run measured."""
    run = specpanel.run(
        *("run", "--model", str(target), "--drafter", method, "--draft-model", str(drafter)),
        *("--k", str(k), "--port", port, "--requests", "4", "--json", "--no-record"),
        *("--set", "traffic.max_tokens=40", "--set", "traffic.warmup=1"),
        seconds=400,
    )
    assert run.code == 0, run.err
    (leg,) = run.summary["legs"]
    assert leg["requests"] == 4
    assert leg["failed"] == 0
    return leg["acceptance"]


@pytest.mark.long
def test_an_eagle3_head_is_accepted_at_every_position(specpanel, target: Path, port: str) -> None:
    """Aux layers, draft vocabulary (d2t) and its own step's hidden state all arrive: AL is K+1."""
    head = tiny.write_eagle3(target.parent / "eagle3", target)
    acceptance = flight(specpanel, target, port, "eagle3", head, 3)
    assert acceptance["acceptance_length"] == pytest.approx(4.0, abs=0.01)
    rates = [position["rate"]["estimate"] for position in acceptance["positions"]]
    assert rates == pytest.approx([1.0, 1.0, 1.0], abs=0.01)
    assert acceptance["counters_acceptance_length"] == pytest.approx(4.0, abs=0.05)


@pytest.mark.long
def test_a_p_eagle_head_whose_masked_positions_are_wrong_shows_a_cliff(
    specpanel, target: Path, port: str
) -> None:
    """Parallel drafting reads the masked vector of the checkpoint: position 0 stands, the rest fall."""
    head = tiny.write_p_eagle(target.parent / "p_eagle", target)
    found = specpanel.run("drafters", "for", str(target), "--scan", str(target.parent), "--json")
    matches = [json.loads(line) for line in found.out.splitlines()]
    (match,) = [one for one in matches if one["model"] == str(head)]
    assert (match["method"], match["fits"], match["k"]) == ("p_eagle", "yes", 8)

    acceptance = flight(specpanel, target, port, match["method"], head, 4)
    assert acceptance["acceptance_length"] == pytest.approx(2.0, abs=0.01)
    rates = [position["rate"]["estimate"] for position in acceptance["positions"]]
    assert rates == pytest.approx([1.0, 0.0, 0.0, 0.0], abs=0.01)
