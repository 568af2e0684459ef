"""The short chain with real vLLM and real Speculators: answers, states, thirty steps, served and swapped."""

import importlib.util
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from fakes.tiny_llama import HIDDEN, LAYERS, write_tiny_llama

SPECULATORS = importlib.util.find_spec("speculators") is not None
WITHOUT = "Speculators is not installed (make train-demo installs it)"

pytestmark = pytest.mark.skipif(not SPECULATORS, reason=WITHOUT)


@pytest.fixture(scope="module")
def tiny(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny") / "llama", demo_model)


def of(lines: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["kind"] == kind]


def test_a_tiny_target_is_asked_extracted_and_trained_against(
    specpanel, tiny: Path, tmp_path: Path, port: str
) -> None:
    """Online: the target's own answers, its own states, and a loss that falls."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        other = probe.getsockname()[1]
    ports = ("--set", f"engine.port={port}", "--set", f"extraction.port={other}")
    folder = tmp_path / "run"
    run = specpanel.run(
        *("train", "train-tiny", "--model", str(tiny), "--folder", str(folder), "--json"),
        *(*ports, "--set", "trainer.checkpoint_freq=0.5"),  # one on the way, one at the end
        seconds=900,
    )
    assert run.code == 0, run.err
    lines = run.lines
    summary = run.summary
    names = [one["stage"] for one in summary["stages"]]
    assert names == ["data", "extraction", "train", "evaluate"]
    data, extraction, train, evaluate = (one["facts"] for one in summary["stages"])

    # The data: rows of the target's own answers, and what was kept from training.
    assert data["rows"] == 40
    assert data["heldout"] == 8
    assert 0.1 < data["mask_share"] < 0.9

    # The probe: as many layers as were asked for, and the last.
    assert extraction["shape"][1:] == [4, HIDDEN]
    assert extraction["layers"] == [1, 2, 3, LAYERS]

    # Training: it learns, and what it logged is told.
    steps = of(lines, "step")
    assert [one["step"] for one in steps] == list(range(1, 31))
    assert steps[-1]["loss"] < 0.9 * steps[0]["loss"]
    assert steps[-1]["dropped"] == 0
    assert all(len(one["prediction"]["positions"]) == 3 for one in steps)
    assert train["steps"] == 30

    # The checkpoint: whole, of this target, and in the form that vLLM reads.
    best = Path(summary["best"]["path"])
    config = json.loads((best / "config.json").read_text(encoding="utf-8"))
    assert config["speculators_config"]["verifier"]["name_or_path"] == str(tiny)
    assert config["eagle_aux_hidden_state_layer_ids"] == [1, 2, 3]
    proposal = config["speculators_config"]["proposal_methods"][0]
    assert proposal["speculative_tokens"] == summary["best"]["draft_tokens"] == 3
    assert summary["best"]["mapping_sha256"] is not None
    assert summary["best"]["prediction"]["acceptance_length"] >= 1.0

    # Served by vLLM: the first checkpoint by a server of its own, the others swapped into it.
    evaluations = of(lines, "evaluation")
    ways = [one["way"] for one in evaluations]
    assert ways == ["started", *["swapped"] * (len(ways) - 1)]
    assert evaluate["evaluated"] == len(ways) >= 2
    served = summary["served_best"]["heldout"]
    assert served["prompts"] == 8
    assert served["drafts"] > 0
    assert served["interval"]["low"] <= served["acceptance_length"] <= served["interval"]["high"]
    assert len(served["positions"]) == 3
    assert evaluations[0]["gap"] is not None

    # Nothing is left in memory.
    left = [one for one in Path("/dev/shm").glob("specpanel-*") if one.name.endswith(folder.name)]
    assert left == []
