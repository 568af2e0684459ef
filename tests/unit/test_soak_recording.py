"""A quarter of an hour of Frames at once: what is recorded is what was shown, and memory stays."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


def test_what_was_recorded_is_what_was_shown_and_memory_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    spec = importlib.util.spec_from_file_location("soak", SCRIPTS / "soak.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, script)
    spec.loader.exec_module(script)
    found = script.soak(900, tmp_path)
    assert found.frames == 900
    assert found.differing == 0
    assert found.growth_mb < script.LIMIT_MB
    assert 1e6 < found.bytes_an_hour < 40e6
