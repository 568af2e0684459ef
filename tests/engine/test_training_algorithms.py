"""Every command of docs/training.md's pages on the algorithms, run: one real training step each, on the CPU.

Target, length and anchors are those of a tiny model, data and hidden states are made up; algorithm and flags
are the page's. Flags, metrics and checkpoint are as we read them.
"""

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fakes.tiny_llama import LAYERS, write_tiny_llama
from fakes.tiny_model import HIDDEN
from fakes.tiny_qwen3_mtp import write_tiny_qwen3_mtp
from fakes.training.tutorial import Shown, lessons

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
LESSONS = lessons()
TINY = ("--set", "data.seq_length=40", "--set", "trainer.total_seq_len=40")
FEW_ANCHORS = ("--set", "algorithm.max_anchors=8")
OFFLINE = ("--set", "extraction.mode=offline")
ALONE = ("xpress", "mtp")  # what they log makes no acceptance length

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("speculators") is None,
        reason="Speculators is not installed (make train-demo installs it)",
    ),
    pytest.mark.timeout(900),
]


@dataclass(frozen=True)
class Trained:
    """What came of every command, run by one program."""

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
    llama = write_tiny_llama(folder / "llama", demo_model)
    qwen3 = write_tiny_qwen3_mtp(folder / "qwen3", demo_model)
    recipes = {
        name: recipe(one, qwen3 if name.startswith("mtp") else llama)
        for name, one in LESSONS.items()
    }
    given = {
        "runner": str(INSIDE / "train_drafter.py"),
        "folder": str(folder),
        "hidden": HIDDEN,
        "layers": 3,
        "vocabulary": 49000,
        "runs": {name: flags(name, one, folder) for name, one in recipes.items()},
    }
    done = subprocess.run(
        [sys.executable, PROGRAM],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=850,
        env={**os.environ, **QUIET, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return Trained(folder, json.loads(done.stdout.splitlines()[-1]), recipes)


def is_resumed(one: Shown) -> bool:
    return bool(one.given()["resume"])


def last_step(one: Shown) -> int:
    return 2 if is_resumed(one) else 1


def recipe(one: Shown, target: Path) -> Recipe:
    few = hasattr(one.recipe().algorithm, "max_anchors")
    size = (*TINY, *OFFLINE, *(FEW_ANCHORS if few else ()))
    return one.recipe(*size, "--model", str(target), "--steps", str(last_step(one)))


def flags(name: str, found: Recipe, folder: Path) -> list[str]:
    """Our own flags, with data and states where the program puts them; what resumes goes on."""
    kind = found.algorithm.type
    run = RunFolder(folder / (f"{kind}-1" if is_resumed(LESSONS[name]) else name))
    layers = layers_for(found.algorithm.target_layer_ids, LAYERS)
    words = list(
        trainer_flags(found, found.target.model, layers, run, "http://127.0.0.1:9/v1", cpu=True)
    )
    words[words.index("--data-path") + 1] = str(folder / "data")
    words[words.index("--hidden-states-path") + 1] = str(folder / "states")
    return words


def test_every_algorithm_has_a_command_that_is_run() -> None:
    assert {name.partition("-")[0] for name in LESSONS} == set(KINDS)


@pytest.mark.parametrize("name", LESSONS)
def test_one_step_is_done_told_and_kept(trained: Trained, name: str) -> None:
    assert trained.ends[name] == 0, trained.log(name)[-3000:]
    (step,) = [one for one in trained.events(name) if isinstance(one, StepDone)]
    assert step.step == last_step(LESSONS[name])
    assert step.loss is not None
    assert step.loss > 0
    assert step.dropped == 0
    (saved,) = [one for one in trained.events(name) if isinstance(one, Saved)]
    assert saved.kept is not None
    config = json.loads((Path(saved.kept) / "config.json").read_text(encoding="utf-8"))
    assert config["speculators_model_type"] == trained.recipes[name].algorithm.type
    stored = config["speculators_config"]["proposal_methods"][0]["speculative_tokens"]
    assert stored == trained.recipes[name].algorithm.draft_tokens


@pytest.mark.parametrize("name", [name for name in LESSONS if not name.startswith(ALONE)])
def test_the_accuracies_of_the_step_become_a_prediction(trained: Trained, name: str) -> None:
    (step,) = [one for one in trained.events(name) if isinstance(one, StepDone)]
    found = step.prediction
    assert found.acceptance_length is not None
    assert found.acceptance_length >= 1.0
    assert len(found.positions) >= 2
