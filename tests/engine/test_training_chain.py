"""The short chain with real vLLM and real Speculators: answers, states, thirty steps, served and swapped."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from fakes.tiny_llama import LAYERS, write_tiny_llama
from fakes.tiny_model import HIDDEN
from ports import free_port

SPECULATORS = importlib.util.find_spec("speculators") is not None
WITHOUT = "Speculators is not installed (make train-demo installs it)"

pytestmark = pytest.mark.skipif(not SPECULATORS, reason=WITHOUT)


@pytest.fixture(scope="module")
def tiny(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny") / "llama", demo_model)


def of(lines: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["kind"] == kind]


@pytest.fixture(scope="module")
def chained(specpanel, tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The whole chain over the tiny target, online, as the command line does it."""
    run = specpanel.run(
        *("train", "train-tiny", "--model", str(tiny), "--json"),
        *("--folder", str(tmp_path_factory.mktemp("chain") / "run")),
        *(*ports(), "--set", "trainer.checkpoint_freq=0.5"),  # one on the way, one at the end
        seconds=900,
    )
    assert run.code == 0, run.err
    return run


def ports() -> tuple[str, ...]:
    """Free ports for the two servers of a training."""
    return (
        *("--set", f"engine.port={free_port()}"),
        *("--set", f"extraction.port={free_port()}"),
    )


def test_a_tiny_target_is_asked_extracted_and_trained_against(chained, tiny: Path) -> None:
    """Online: the target's own answers, its own states, and a loss that falls."""
    run = chained
    folder = Path(run.summary["folder"])
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


@pytest.mark.long
def test_a_round_beside_a_server_is_captured_trained_and_tried(
    specpanel, chained, tiny: Path, tmp_path: Path, port: str
) -> None:
    """Continuous training: traffic, capture, training from what serves, an exchange in place."""
    serving = chained.summary["best"]["path"]
    plain = ("target.dtype=float32", "target.max_model_len=512", "engine.enforce_eager=true")
    open_to_it = ("engine.cpu_kv_cache_gib=1", "engine.swappable=true", "traffic.warmup=0")
    served = specpanel.run(
        *("run", "--model", str(tiny), "--drafter", "eagle3", "--draft-model", serving, "--k", "3"),
        *("--port", port, "--requests", "1", "--keep-running", "--no-record", "--json"),
        *(word for one in (*plain, *open_to_it) for word in ("--set", one)),
    )
    assert served.code == 0, served.err
    (name,) = (one["name"] for one in of(served.lines, "launched"))
    folder = tmp_path / "online"
    try:
        done = specpanel.run(
            *("train", "train-tiny", "--model", str(tiny), "--folder", str(folder), "--json"),
            *("--online", "--watch", port, "--steps", "5", *ports()),
            *("--set", "online.rounds=1", "--set", "online.requests=24", "--set", "data.heldout=8"),
        )
        assert done.code == 0, done.err
    finally:
        assert specpanel.run("stop", name).code == 0
    (ended,) = of(done.lines, "round_ended")
    assert (ended["conversations"], ended["steps"]) == (24, 5)
    assert ended["result"] in ("promoted", "kept the old one", "rolled back")
    assert ended["before"] >= 1.0
    assert ended["candidate"] >= 1.0
    (trainer,) = of(done.lines, "trainer")
    assert trainer["argv"][trainer["argv"].index("--from-pretrained") + 1] == serving
    captured = folder / "captured.jsonl"
    assert captured.stat().st_mode & 0o077 == 0
    assert len(captured.read_text(encoding="utf-8").splitlines()) == 24
    assert done.lines[-1]["reason"] == "1 round is done"
