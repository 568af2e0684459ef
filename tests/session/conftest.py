"""Fixtures for tests that start the misbehaving server."""

import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.engine.workbench import FAKE_PYTHON, Workbench

from specpanel.core.engine.interpreter import probe_interpreter
from specpanel.core.engine.interpreter_facts import InterpreterFacts

_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 256,
    "max_position_embeddings": 2048,
    "dtype": "float32",
}


@pytest.fixture(scope="session")
def fake_facts() -> InterpreterFacts:
    """What the real probe finds in the environment of the misbehaving server."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("FAKE_VLLM_PYTHON", sys.executable)
        return probe_interpreter(str(FAKE_PYTHON))


@pytest.fixture
def bench(tmp_path: Path, own_folders: Path) -> Iterator[Workbench]:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(_CONFIG))
    bench = Workbench(tmp_path, model, uuid.uuid4().hex)
    try:
        yield bench
    finally:
        bench.clear()
