"""Fixtures for tests that start the misbehaving server."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.engine.workbench import FAKE_PYTHON, Workbench

from specpanel.core.engine.interpreter import probe_interpreter
from specpanel.core.engine.interpreter_facts import InterpreterFacts


@pytest.fixture(scope="session")
def fake_facts() -> InterpreterFacts:
    """What the real probe finds in the environment of the misbehaving server."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("FAKE_VLLM_PYTHON", sys.executable)
        return probe_interpreter(str(FAKE_PYTHON))


@pytest.fixture
def bench(tmp_path: Path, own_folders: Path) -> Iterator[Workbench]:
    bench = Workbench(tmp_path / "bench")
    try:
        yield bench
    finally:
        bench.clear()
