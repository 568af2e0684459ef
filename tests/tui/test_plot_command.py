"""``specpanel plot``: charts of a recording as text and as numbers, without the panel's libraries."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tui.synthetic import BARE, synthetic_frames

from specpanel.app.cli.plot import Chart
from specpanel.app.tui.charts.glyphs import BRAILLE
from specpanel.app.tui.charts.replayed import CHART_NAMES, chart_rows, chart_series, stretch_of
from specpanel.core.monitor.frame import Frame
from specpanel.core.monitor.recording import frame_line

SCRIPT = Path(sys.executable).with_name("specpanel")

# Runs the command as the console script does and names what it has imported, on standard error.
NAMING = """
import sys
from specpanel.app.cli import main
try:
    main()
finally:
    sys.stderr.write("\\n" + " ".join(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def recorded(folder: Path, frames: Sequence[Frame]) -> Path:
    path = folder / "recording.ndjson"
    path.write_text("".join(frame_line(frame) + "\n" for frame in frames))
    return path


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    frames = list(synthetic_frames(120, mark_at=60, epoch_at=90))
    return recorded(tmp_path_factory.mktemp("plot"), frames)


def plotted(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, "plot", *map(str, arguments)], capture_output=True, text=True, timeout=60
    )


def test_the_command_offers_every_chart() -> None:
    assert tuple(Chart) == CHART_NAMES


@pytest.mark.parametrize(
    ("chart", "heading"),
    [
        ("acceptance", "Acceptance length"),
        ("positions", "Acceptance by position"),
        ("latency", "Latency ms"),
        ("tokens", "Tokens/s"),
        ("heat", "Acceptance by position"),
    ],
)
def test_every_chart_is_drawn_in_the_size_asked_for(
    recording: Path, chart: str, heading: str
) -> None:
    ran = plotted(recording, "--chart", chart, "--width", 72, "--height", 15, "--ascii")
    assert ran.returncode == 0, ran.stderr
    rows = ran.stdout.splitlines()
    assert rows[0].startswith(heading)
    assert len(rows) == 15
    assert max(map(len, rows)) <= 72
    assert ran.stdout.isascii()
    if chart != "positions":
        assert rows[-1].endswith("now")
        assert "more traffic" in ran.stdout


def test_no_drafts_are_said_and_drawn_as_nothing(tmp_path: Path) -> None:
    bare = [replace(frame, **BARE) for frame in synthetic_frames(30)]
    stretch = stretch_of(bare, None)
    for chart in CHART_NAMES:
        rows = chart_rows(chart, stretch, 60, 12, BRAILLE)
        assert any("n/a: no metrics yet" in row for row in rows), chart
        assert chart_series(chart, stretch)["absent"] == "n/a: no metrics yet"
    ran = plotted(recorded(tmp_path, bare), "--chart", "heat")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "no heat to draw in recording (no metrics yet)" in ran.stderr


def test_the_json_has_the_recorded_numbers_of_the_window(recording: Path) -> None:
    ran = plotted(recording, "--chart", "acceptance", "--window", 0.5, "--json")
    found = json.loads(ran.stdout)
    frames = list(synthetic_frames(120, mark_at=60, epoch_at=90))[-31:]
    assert found["kind"] == "plot"
    assert found["times_s"] == [frame.elapsed_s for frame in frames]
    now = next(series for series in found["series"] if series["name"] == "now")
    assert now["values"] == [
        frame.speculation.acceptance_length for frame in frames if frame.speculation
    ]
    assert found["marks"] == [{"time_s": 90.0, "text": "restart"}]
    assert found["breaks_s"] == [90.0]


def test_a_file_that_is_no_recording_is_one_sentence(tmp_path: Path) -> None:
    ran = plotted(tmp_path / "nothing.ndjson")
    assert ran.returncode != 0
    assert "nothing.ndjson" in ran.stderr
    assert "Traceback" not in ran.stderr
    (tmp_path / "empty.ndjson").write_text('{"schema_version": 1, "kind": "leg"}\n')
    assert "holds no frames" in plotted(tmp_path / "empty.ndjson").stderr


def test_drawing_imports_no_terminal_application_and_no_network(recording: Path) -> None:
    for chart in ("latency", "heat"):
        ran = subprocess.run(
            [sys.executable, "-c", NAMING, "plot", str(recording), "--chart", chart],
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout
        loaded = set(ran.stderr.splitlines()[-1].split())
        assert loaded & {"textual", "httpx", "torch", "vllm", "numpy", "psutil"} == set()
