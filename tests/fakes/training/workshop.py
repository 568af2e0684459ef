"""A training run over the interpreter of this folder, and what it told."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from ports import free_port
from safetensors.numpy import save_file

from specpanel.core.training.chain import Training, TrainingOutcome, TrainingPlan
from specpanel.core.training.events import TrainingEvent
from specpanel.core.training.folder import RunFolder
from specpanel.core.training.recipe import Recipe
from specpanel.core.training.records import StageName

FAKE_PYTHON = Path(__file__).parent / "bin" / "python"
HIDDEN, LAYERS, VOCABULARY = 64, 4, 400

Kind = TypeVar("Kind")


def write_target(folder: Path) -> Path:
    """What can be read of a target without running it."""
    folder.mkdir(parents=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 2,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 1024,
        "dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    save_file({"model.norm.weight": np.ones(HIDDEN, np.float32)}, folder / "model.safetensors")
    return folder


@dataclass
class Told:
    """Everything that a run told, in order."""

    events: list[TrainingEvent] = field(default_factory=list)
    outcome: TrainingOutcome | None = None

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self.events if isinstance(event, kind)]


class Workshop:
    """One recipe, one folder, and the environment that the children see."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.target = write_target(root / "target")
        self.folder = RunFolder(root / "run")
        self.states = root / "hand-over"
        self._monkeypatch = monkeypatch
        self._table: dict[str, Any] = {
            "name": "shop",
            "target": {"model": str(self.target)},
            "engine": {"python": str(FAKE_PYTHON), "port": free_port(), "stop_timeout_s": 5},
            "algorithm": {"type": "eagle3"},
            "data": {"limit": 30, "heldout": 6, "seq_length": 64},
            "extraction": {"port": free_port(), "folder": str(self.states), "free_share": 0.0},
            "trainer": {"steps": 12, "total_seq_len": 128, "least_free_gib": 0},
            "evaluation": {"concurrency": 2},
            "promotion": {},
            "online": {},
        }
        monkeypatch.setenv("FAKE_TRAINING_PYTHON", sys.executable)

    def set(self, section: str, **values: Any) -> None:
        self._table[section] |= values

    def behave(self, variable: str, **how: Any) -> None:
        """How the fakes shall behave: FAKE_STATES, FAKE_TRAINER or FAKE_SERVING."""
        self._monkeypatch.setenv(variable, json.dumps(how))

    def recipe(self) -> Recipe:
        return Recipe.model_validate(self._table)

    def training(
        self, told: Told, *stages: StageName, resume: bool = False, redo: bool = False
    ) -> Training:
        chosen: tuple[StageName, ...] = stages or ("data", "extraction", "train")
        plan = TrainingPlan(self.recipe(), chosen, self.folder.root, resume, redo)
        return Training(plan, told.events.append)

    async def run(self, *stages: StageName, resume: bool = False) -> Told:
        told = Told()
        told.outcome = await self.training(told, *stages, resume=resume).run()
        return told

    def children(self) -> list[str]:
        """Command lines of processes that came out of this workshop and still live."""
        return list(_lines_with(str(self.root)))

    def clear(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


def _lines_with(text: str) -> Iterator[str]:
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) == os.getpid():
            continue
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if text in line:
            yield line
