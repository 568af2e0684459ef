"""The pictures of the documentation come from recordings, through the real app."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tui.synthetic import synthetic_frames

from specpanel.core.monitor.recording import Recorder, frame_line

pytest.importorskip("PIL", reason="pictures need Pillow")

SCRIPT = Path(__file__).parents[2] / "scripts" / "screenshot.py"


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("screenshot", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["screenshot"] = module
    spec.loader.exec_module(module)
    return module


def test_a_recording_becomes_a_picture(script: ModuleType, tmp_path: Path) -> None:
    from PIL import Image

    recording = tmp_path / "run.ndjson"
    recorder = Recorder(recording)
    for frame in synthetic_frames(60):
        recorder.write(frame_line(frame))
    recorder.close()
    out = tmp_path / "images" / "live.png"
    assert script.main([str(recording), "--out", str(out), "--size", "80x24"]) == 0
    with Image.open(out) as image:
        assert image.size == (80 * script.CELL_WIDTH, 24 * script.CELL_HEIGHT)
        colors = image.convert("RGB").getcolors(100_000)
        assert colors is not None
        assert (0x56, 0xB4, 0xE9) in {color for _, color in colors}


def test_a_recording_that_is_not_there_is_one_sentence(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = script.main([str(tmp_path / "none.ndjson"), "--out", str(tmp_path / "x.png")])
    assert code != 0
    assert capsys.readouterr().err.count("\n") == 1
