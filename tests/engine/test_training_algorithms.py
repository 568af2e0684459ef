"""One real training step of every algorithm on the CPU: flags, metrics and checkpoint are as we read them."""

import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fakes.tiny_llama import HIDDEN, LAYERS, write_tiny_llama

from specpanel.core.inside import INSIDE
from specpanel.core.training.algorithms import KINDS
from specpanel.core.training.child import QUIET
from specpanel.core.training.events import StepDone
from specpanel.core.training.extraction_plan import layers_for
from specpanel.core.training.folder import RunFolder
from specpanel.core.training.progress import Saved, read_metrics
from specpanel.core.training.recipe import Recipe
from specpanel.core.training.trainer_command import trainer_flags

PROGRAM = Path(__file__).parents[1] / "fakes/training/programs/train_each.py"
TRAINABLE = tuple(name for name in KINDS if name != "mtp")  # FastMTP needs a target with MTP layers
SETTINGS: dict[str, dict[str, Any]] = {
    "eagle3": {"ttt_steps": 2, "draft_vocab_size": None},
    "peagle": {"num_depths": 3, "draft_arch": "llama"},
    **{
        name: {"block_size": 4, "max_anchors": 8}
        for name in ("dflash", "dflash2", "dspark", "xpress")
    },
}

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("speculators") is None,
        reason="Speculators is not installed (make train-demo installs it)",
    ),
    pytest.mark.timeout(900),
]


@dataclass(frozen=True)
class Trained:
    """What came of every algorithm, trained by one program."""

    folder: Path
    ends: dict[str, int]
    recipes: dict[str, Recipe]

    def events(self, name: str) -> list[Any]:
        lines = (self.folder / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [read_metrics(json.loads(line), 0.0) for line in lines]

    def log(self, name: str) -> str:
        return (self.folder / name / "log.txt").read_text(encoding="utf-8", errors="replace")


@pytest.fixture(scope="module")
def trained(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("algorithms")
    target = write_tiny_llama(folder / "target", demo_model)
    recipes = {name: recipe(name, target) for name in TRAINABLE}
    runs = {name: flags(one, folder, target) for name, one in recipes.items()}
    given = {
        "runner": str(INSIDE / "train_drafter.py"),
        "folder": str(folder),
        "target": str(target),
        "hidden": HIDDEN,
        "layers": 3,
        "vocabulary": 49000,
        "runs": runs,
    }
    done = subprocess.run(
        [sys.executable, PROGRAM],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=850,
        env={**_environment(), **QUIET, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return Trained(folder, json.loads(done.stdout.splitlines()[-1]), recipes)


def _environment() -> dict[str, str]:
    import os

    return dict(os.environ)


def recipe(name: str, target: Path) -> Recipe:
    algorithm = {"num_layers": 1, "full_attention_indices": [0], "mask_token_id": 0}
    return Recipe.model_validate(
        {
            "target": {"model": str(target)},
            "algorithm": {"type": name, **algorithm, **SETTINGS[name]},
            "data": {"seq_length": 40},
            "extraction": {"mode": "offline"},
            "trainer": {"steps": 1, "total_seq_len": 40},
        }
    )


def flags(found: Recipe, folder: Path, target: Path) -> list[str]:
    """Our own flags, with data and states where the program puts them."""
    words = list(
        trainer_flags(
            found,
            str(target),
            layers_for(None, LAYERS),
            RunFolder(folder / found.algorithm.type),
            "http://127.0.0.1:9/v1",
            cpu=True,
        )
    )
    words[words.index("--data-path") + 1] = str(folder / "data")
    words[words.index("--hidden-states-path") + 1] = str(folder / "states")
    return words


@pytest.mark.parametrize("name", TRAINABLE)
def test_one_step_is_done_told_and_kept(trained: Trained, name: str) -> None:
    assert trained.ends[name] == 0, trained.log(name)[-3000:]
    (step,) = [one for one in trained.events(name) if isinstance(one, StepDone)]
    assert step.step == 1
    assert step.loss is not None
    assert step.loss > 0
    assert step.dropped == 0
    (saved,) = [one for one in trained.events(name) if isinstance(one, Saved)]
    assert saved.kept is not None
    config = json.loads((Path(saved.kept) / "config.json").read_text(encoding="utf-8"))
    assert config["speculators_model_type"] == name
    stored = config["speculators_config"]["proposal_methods"][0]["speculative_tokens"]
    assert stored == trained.recipes[name].algorithm.draft_tokens


@pytest.mark.parametrize("name", [name for name in TRAINABLE if name != "xpress"])
def test_the_accuracies_of_the_step_become_a_prediction(trained: Trained, name: str) -> None:
    (step,) = [one for one in trained.events(name) if isinstance(one, StepDone)]
    found = step.prediction
    assert found.acceptance_length is not None
    assert found.acceptance_length >= 1.0
    assert len(found.positions) >= 2
