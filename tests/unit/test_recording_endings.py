"""How a recorded run failed is told by its replay and instead of a chart of nothing."""

import json
import os
import sys
from pathlib import Path

import pytest
from tui.synthetic import BARE, synthetic_frames

from specpanel.app.cli import main
from specpanel.core.monitor.recording import frame_line, line
from specpanel.core.session.endings import how_it_ended
from specpanel.core.session.history import read_run

CAUSE = "vLLM found no weights in the model's folder. Download them again."


def failed_run(folder: Path, *, frames: int = 3) -> Path:
    """A recording of a start that failed, as ``specpanel run`` writes it."""
    from dataclasses import replace

    lines = [frame_line(replace(frame, **BARE)) for frame in synthetic_frames(frames)]
    lines += [line("summary", {"profile": "p", "failure": CAUSE, "interrupted": False})]
    path = folder / "p-20260101-000000.ndjson"
    path.write_text("\n".join(lines) + "\n")
    return path


def said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> tuple[int, str, str]:
    """Exit status, standard output and standard error."""
    monkeypatch.setattr(sys, "argv", ["specpanel", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        main()
    out, err = capsys.readouterr()
    return int(left.value.code or 0), out, err


def test_a_replay_of_a_failed_run_says_why_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = failed_run(tmp_path)
    code, _, err = said(monkeypatch, capsys, "watch", "--replay", path, "--speed", "0")
    assert code == 0
    assert err.rstrip().endswith(f"the run failed: {CAUSE}")
    _, out, _ = said(monkeypatch, capsys, "watch", "--replay", path, "--speed", "0", "--json")
    last = json.loads(out.splitlines()[-1])
    assert (last["kind"], last["text"]) == ("note", f"the run failed: {CAUSE}")


def test_a_recording_without_frames_gives_the_reason_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = failed_run(tmp_path, frames=0)
    for command in (("watch", "--replay"), ("plot",)):
        code, _, err = said(monkeypatch, capsys, *command, path)
        assert code == 1
        assert "holds no frames" in err
        assert CAUSE.split(".")[0] in err


def test_nothing_to_draw_is_one_sentence_with_the_reason_and_no_grid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = failed_run(tmp_path)
    code, out, err = said(monkeypatch, capsys, "plot", path)
    assert (code, out) == (1, "")
    assert "no acceptance to draw" in err
    assert CAUSE in err


def test_a_pipe_says_that_its_summary_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    with open(writing, "w") as file:
        file.write(failed_run(tmp_path).read_text())
    pipe = f"/dev/fd/{reading}"
    code, _, err = said(monkeypatch, capsys, "watch", "--replay", pipe, "--speed", "0")
    os.close(reading)
    assert code == 0
    assert "a pipe is read once" in err.splitlines()[-1]


def test_a_run_that_ended_well_has_no_ending_to_tell() -> None:
    recordings = [*(Path(__file__).parents[1] / "data" / "recordings").glob("*.ndjson")]
    assert recordings
    for path in recordings:
        assert how_it_ended(read_run(path)) is None
