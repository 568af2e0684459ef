"""Known families, as fields of their config.json: how they attend, what a token costs, what is found."""

import json
from pathlib import Path
from typing import Any

import pytest

from specpanel.core.checkpoints.config import parse_config
from specpanel.core.checkpoints.weights import Weights
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.preflight.attention_kind import kind_of
from specpanel.core.preflight.memory_estimate import estimate
from specpanel.core.preflight.rules import check
from specpanel.core.preflight.surroundings import (
    DeviceState,
    ModelState,
    PortState,
    Surroundings,
)
from specpanel.core.settings.profile import Profile

FOLDER = Path(__file__).parents[1] / "data" / "configs"
FAMILIES = sorted(path.stem for path in FOLDER.glob("*.json"))


def state(values: dict[str, Any], tensors: dict[str, list[int]] | None, name: str) -> ModelState:
    shapes = {tensor: tuple(shape) for tensor, shape in (tensors or {}).items()}
    config = parse_config(values, Path(f"/models/{name}"))
    verifier = config.speculators.verifier if config.speculators else None
    found = None if verifier is None or not verifier.startswith("/") else False
    weights = Weights("safetensors", 1 << 30, 1, shapes=shapes)
    return ModelState(f"/models/{name}", "folder", config, weights, verifier_found=found)


def launch(golden: dict[str, Any]) -> tuple[Profile, Surroundings]:
    platform = golden["platform"]
    chosen = golden["profile"]
    profile = Profile.model_validate(
        chosen | {"target": {"model": "/models/target", **chosen["target"]}}
    )
    packages = frozenset({"torch", "vllm"} | ({"triton"} if platform == "cuda" else set()))
    facts = InterpreterFacts(
        *("/venv/bin/python", "3.12.1", "vllm", "0.32.0", platform, "serve", "/venv/bin/vllm"),
        packages,
    )
    capability = golden["capability"]
    devices = None
    if capability is not None:
        devices = tuple(DeviceState("a GPU", capability=tuple(capability)) for _ in range(8))
    drafter = golden["drafter"]
    around = Surroundings(
        interpreter=facts,
        platform=platform,
        port=PortState(8000, free=True),
        target=state(golden["target"], None, "target"),
        drafter=drafter and state(drafter, golden["drafter_tensors"], "drafter"),
        devices=devices,
    )
    return profile, around


@pytest.mark.parametrize("family", FAMILIES)
def test_a_known_family_is_judged_as_written_beside_it(family: str) -> None:
    golden = json.loads((FOLDER / f"{family}.json").read_text())
    expected = golden["expected"]
    profile, around = launch(golden)
    assert kind_of(around.target.config, profile, around) == expected["attention"]
    assert sorted(finding.code for finding in check(profile, around)) == expected["findings"]
    if expected["kv_bytes_per_token"] is not None:
        assert estimate(profile, around).bytes_per_token == expected["kv_bytes_per_token"]


def test_there_are_families_enough() -> None:
    assert len({name.split("-")[0] for name in FAMILIES}) >= 15
    assert len(FAMILIES) >= 20
