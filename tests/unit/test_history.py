"""Past runs as their recordings tell them: read from two ends, broken ones named, none hidden."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tui.synthetic import exited_frame, starting_frame, synthetic_frames

from specpanel.app.cli.options import recording_called
from specpanel.core.errors import ConfigurationError, RecordingError
from specpanel.core.monitor.frame import Quantile
from specpanel.core.monitor.recording import frame_line, line
from specpanel.core.session import history
from specpanel.core.session.bookends import closing_line, writer_line
from specpanel.core.session.events import SettingsChosen, event_line
from specpanel.core.session.history import (
    delete_run,
    find_run,
    past_runs,
    read_run,
    recording_path,
    recordings_folder,
    total_bytes,
)
from specpanel.core.session.history_figures import Value
from specpanel.core.settings.profile import Profile

REAL = Path(__file__).parents[1] / "data" / "recordings"
OLD_S = 60.0


def write(path: Path, *lines: str, end: str = "\n") -> Path:
    """A file that was not written just now."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + end, encoding="utf-8")
    aged = time.time() - OLD_S
    os.utime(path, (aged, aged))
    return path


def frames(count: int = 20) -> list[str]:
    return [frame_line(frame) for frame in synthetic_frames(count)]


# -- real recordings -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(REAL.glob("*.ndjson")), ids=lambda path: path.stem)
def test_a_real_run_is_told_by_its_summary(path: Path) -> None:
    run = read_run(path)
    summary = json.loads(path.read_text().splitlines()[-1])
    leg = summary["legs"][-1]
    assert (run.ended, run.name, run.model) == ("done", summary["profile"], "smollm2")
    assert run.drafter == summary["drafter"]
    assert run.figures is not None
    assert run.figures.whole_run
    assert run.figures.tokens_per_s == Value(leg["output_tokens_per_s"])
    median = leg["tpot_ms"][0]
    assert run.figures.tpot_p50_ms == Value(median["value_ms"], median["low_ms"], median["high_ms"])
    assert run.settings is not None
    assert run.settings.name == summary["profile"]
    assert run.summary is not None
    assert run.duration_s is not None
    assert run.duration_s > leg["elapsed_s"]


def test_there_are_two_real_runs_of_one_model_and_no_path_of_a_machine_is_in_them() -> None:
    paths = sorted(REAL.glob("*.ndjson"))
    assert len(paths) == 2
    for path in paths:
        text = path.read_text()
        assert len(text) < 100_000
        assert "/root" not in text
        assert "/home" not in text


# -- where there is no summary ---------------------------------------------------------------------


def test_without_a_summary_the_last_frames_tell_and_it_is_said_so(tmp_path: Path) -> None:
    told = list(synthetic_frames(30))
    assert told[-1].engine is not None
    idle = replace(told[-1], engine=replace(told[-1].engine, generation_tokens_per_s=0.0))
    stopped = replace(idle, server=replace(idle.server, state="stopped"), engine=None, latency=None)
    lines = [frame_line(frame) for frame in (*told, idle, stopped)]
    run = read_run(write(tmp_path / "night-20261130-120752.ndjson", *lines))
    last = told[-1]
    assert last.speculation is not None
    assert last.latency is not None
    assert last.latency.tpot is not None
    assert run.figures is not None
    assert not run.figures.whole_run
    assert run.figures.acceptance_length == Value(last.speculation.acceptance_length or 0.0)
    assert run.figures.tokens_per_s == Value(last.engine.generation_tokens_per_s or 0.0)  # type: ignore[union-attr]
    assert run.figures.tpot_p50_ms == Value(last.latency.tpot.p50.value_ms)
    assert (run.ended, run.name, run.duration_s) == ("stopped", "synthetic", 29.0)
    assert run.started_unix == told[0].time_unix


def test_a_quantile_that_is_only_a_lower_bound_stays_one(tmp_path: Path) -> None:
    [frame] = synthetic_frames(1)
    assert frame.latency is not None
    assert frame.latency.tpot is not None
    beyond = replace(frame.latency.tpot, p50=Quantile(160.0, beyond=True))
    frame = replace(frame, latency=replace(frame.latency, tpot=beyond))
    run = read_run(write(tmp_path / "a.ndjson", frame_line(frame)))
    assert run.figures is not None
    assert run.figures.tpot_p50_ms == Value(160.0, beyond=True)


def test_how_a_run_ended(tmp_path: Path) -> None:
    table = {"profile": "p", "model": "m", "legs": [], "interrupted": False, "failure": None}
    begin = frames(2)
    ends = {
        "done": line("summary", table),
        "interrupted": line("summary", {**table, "interrupted": True}),
        "failed": line("summary", {**table, "failure": "no memory [/x]"}),
        "exited": frame_line(exited_frame(3, -9, "killed")),
        "left": closing_line("the panel was left"),
        "stopped": closing_line("switched to ngram K=3", stopped=True),
        "abruptly": begin[-1],
    }
    for ended, last in ends.items():
        run = read_run(write(tmp_path / f"{ended}.ndjson", *begin, last))
        assert run.ended == ended
    assert read_run(tmp_path / "failed.ndjson").why == "no memory [/x]"
    assert read_run(tmp_path / "exited.ndjson").why == "the server ended with code -9: killed"
    left = read_run(tmp_path / "left.ndjson").why
    assert read_run(tmp_path / "stopped.ndjson").why == "switched to ngram K=3"
    assert left == "the panel was left, while the server was serving"
    assert "nothing closed it" in (read_run(tmp_path / "abruptly.ndjson").why or "")
    begun = write(tmp_path / "early.ndjson", line("note", {"text": "looking"}))
    assert read_run(begun).ended == "no server"


def test_a_recording_that_grows_is_being_written_and_is_not_deleted(tmp_path: Path) -> None:
    path = write(tmp_path / "now.ndjson", *frames())
    os.utime(path)
    run = read_run(path)
    assert run.ended == "writing"
    with pytest.raises(RecordingError, match="being written"):
        delete_run(run)
    assert path.exists()


def test_whether_a_silent_recording_is_still_written_is_told_by_its_writer(tmp_path: Path) -> None:
    mine = write(tmp_path / "mine.ndjson", writer_line(), *frames())
    assert read_run(mine).ended == "writing"
    with pytest.raises(RecordingError, match="being written"):
        delete_run(read_run(mine))
    child = subprocess.run(
        [sys.executable, "-c", _WRITE], capture_output=True, text=True, check=True
    ).stdout.strip()
    gone = write(tmp_path / "gone.ndjson", child, *frames())
    os.utime(gone)  # written just now, and nevertheless by nobody any more
    run = read_run(gone)
    assert run.ended == "abruptly"
    delete_run(run)
    assert not gone.exists()


_WRITE = "from specpanel.core.session.bookends import writer_line; print(writer_line())"


def test_figures_are_read_from_a_summary_of_another_version(tmp_path: Path) -> None:
    table = {
        "profile": "later",
        "model": "m",
        "drafter": "eagle9",
        "draft_tokens": 7,
        "legs": [
            {
                "output_tokens_per_s": 41.5,
                "tpot_ms": [{"share": 0.5, "value_ms": 12.0, "low_ms": 11.0, "high_ms": None}],
                "acceptance": {"acceptance_length": 2.5},
            }
        ],
    }
    run = read_run(write(tmp_path / "later.ndjson", *frames(1), line("summary", table)))
    assert run.summary is None
    assert (run.ended, run.drafter, run.draft_tokens) == ("done", "eagle9", 7)
    assert run.figures is not None
    assert run.figures.tokens_per_s == Value(41.5)
    assert run.figures.tpot_p50_ms == Value(12.0, 11.0, None)
    assert run.figures.acceptance_length == Value(2.5)
    assert run.figures.ttft_p50_ms is None


def test_settings_are_known_where_they_were_recorded(tmp_path: Path) -> None:
    profile = Profile.model_validate({"name": "mine", "target": {"model": "m"}})
    chosen = event_line(SettingsChosen(profile.model_dump(mode="json")))
    run = read_run(write(tmp_path / "a.ndjson", chosen, *frames(2)))
    assert run.settings == profile


# -- broken and hostile files ----------------------------------------------------------------------

BROKEN = {
    "empty": b"",
    "blank": b"\n\n",
    "text": b"no recording at all\n",
    "binary": bytes(range(256)) * 40,
    "list": b"[1, 2]\n",
    "unversioned": b'{"kind": "frame"}\n',
    "newer": b'{"schema_version": 99, "kind": "frame"}\n',
    "deep": b"[" * 200_000 + b"\n",
    "frame of nonsense": b'{"schema_version": 1, "kind": "frame", "server": 5}\n',
    "one endless line": b'{"schema_version": 1, "kind": "note", "text": "' + b"x" * 2_000_000,
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_listed_with_its_reason_and_hides_no_other(
    kind: str, tmp_path: Path
) -> None:
    write(tmp_path / "good.ndjson", *frames())
    (tmp_path / "broken.ndjson").write_bytes(BROKEN[kind])
    runs = {run.id: run for run in past_runs(tmp_path)}
    assert set(runs) == {"good", "broken"}
    assert runs["broken"].ended == "broken"
    assert runs["broken"].why
    assert runs["good"].figures is not None


def test_what_is_no_file_is_broken_too_and_nothing_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.ndjson")
    (tmp_path / "folder.ndjson").mkdir()
    (tmp_path / "nowhere.ndjson").symlink_to(tmp_path / "gone")
    (tmp_path / "other.txt").write_text("x")
    assert {(run.id, run.ended) for run in past_runs(tmp_path)} == {
        ("pipe", "broken"),
        ("folder", "broken"),
    }


def test_summaries_of_nonsense_do_no_harm(tmp_path: Path) -> None:
    for number, table in enumerate(
        (
            {"legs": 5, "failure": ["x"], "profile": 7},
            {"legs": [None], "model": {}, "draft_tokens": "four"},
            {"legs": [{"tpot_ms": {"share": 0.5}, "acceptance": [1], "output_tokens_per_s": True}]},
            {"legs": [{"ttft_ms": [[], 3, {"share": 0.5, "value_ms": 10**400}]}]},
        )
    ):
        run = read_run(write(tmp_path / f"{number}.ndjson", *frames(1), line("summary", table)))
        assert run.ended == "done"


def test_a_torn_last_line_costs_only_itself(tmp_path: Path) -> None:
    lines = frames(10)
    run = read_run(write(tmp_path / "torn.ndjson", *lines, lines[-1][:300], end=""))
    assert (run.ended, run.duration_s) == ("abruptly", 9.0)


def test_a_huge_recording_is_read_from_its_ends_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "huge.ndjson"
    lines = frames(60)
    with path.open("wb") as file:
        for text in lines[:5]:
            file.write(text.encode() + b"\n")
        file.seek(3_000_000_000)  # a hole: what is between the ends is never looked at
        file.write(b"\n")
        for text in lines[5:]:
            file.write(text.encode() + b"\n")
    read: list[int] = []
    opened = Path.open

    class Counting:
        def __init__(self, file: object) -> None:
            self.file = file

        def __enter__(self) -> "Counting":
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()  # type: ignore[attr-defined]

        def __getattr__(self, name: str) -> object:
            return getattr(self.file, name)

        def read(self, size: int) -> bytes:
            data: bytes = self.file.read(size)  # type: ignore[attr-defined]
            read.append(len(data))
            return data

    monkeypatch.setattr(Path, "open", lambda path, mode: Counting(opened(path, mode)))
    run = read_run(path)
    assert run.size_bytes > 3_000_000_000
    assert run.duration_s == 59.0
    assert sum(read) <= history.HEAD_BYTES + history.TAIL_BYTES


# -- the folder ------------------------------------------------------------------------------------


def test_no_folder_is_no_run(tmp_path: Path) -> None:
    assert past_runs(tmp_path / "none") == []
    assert past_runs() == []


def test_the_newest_run_comes_first_and_sizes_add_up(tmp_path: Path) -> None:
    for name, start in (("old", 0), ("new", 500)):
        text = [frame_line(frame) for frame in synthetic_frames(3, start_s=start)]
        write(tmp_path / f"{name}.ndjson", *text)
    runs = past_runs(tmp_path)
    assert [run.id for run in runs] == ["new", "old"]
    assert total_bytes(runs) == sum(path.stat().st_size for path in tmp_path.iterdir())


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ndjson", *frames(5))
    assert read_run(path).duration_s == 4.0
    write(path, *frames(9))
    assert read_run(path).duration_s == 8.0


def test_two_runs_that_begin_in_one_second_get_files_of_their_own(tmp_path: Path) -> None:
    first = recording_path("demo", tmp_path)
    first.touch()
    assert recording_path("demo", tmp_path) != first
    assert first.name.startswith("demo-20")
    assert read_run(first).name == "demo"


@pytest.mark.parametrize("name", ["../../etc/x", "a b/c", "", "…", ".hidden", "x" * 300])
def test_a_name_never_leads_out_of_the_folder(name: str, tmp_path: Path) -> None:
    path = recording_path(name, tmp_path)
    assert path.parent == tmp_path
    assert not path.name.startswith(".")
    path.touch()


def test_runs_that_begin_in_the_same_second_never_share_a_file(tmp_path: Path) -> None:
    paths = [recording_path("demo", tmp_path / "new") for _ in range(5)]
    assert len(set(paths)) == 5
    assert all(path.stat().st_size == 0 and path.stat().st_mode & 0o077 == 0 for path in paths)
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    assert recording_path("demo", blocked).parent == blocked, "its recorder tells why it cannot be"


def test_a_run_is_found_by_name_by_its_only_beginning_and_by_path(tmp_path: Path) -> None:
    folder = recordings_folder()
    write(folder / "demo-20261130-120000.ndjson", *frames(3))
    write(folder / "demo-20261130-130000.ndjson", *frames(3))
    other = write(tmp_path / "elsewhere.ndjson", *frames(3))
    assert find_run("demo-20261130-120000").id == "demo-20261130-120000"
    assert find_run("demo-20261130-13").id == "demo-20261130-130000"
    assert find_run(str(other)).path == other
    assert find_run("last").id == "demo-20261130-130000"
    assert recording_called(str(other)) == other
    assert recording_called("last").stem == "demo-20261130-130000"
    assert recording_called(str(tmp_path)) == tmp_path  # what is there is judged by its reader
    with pytest.raises(ConfigurationError, match="several"):
        find_run("demo")
    for name in ("nope", "", "\0", "x" * 5000):
        with pytest.raises(ConfigurationError):
            find_run(name)
        if name:
            with pytest.raises(ConfigurationError):
                recording_called(name)


def test_deleting_takes_the_file_and_one_that_has_gone_is_no_error(tmp_path: Path) -> None:
    run = read_run(write(tmp_path / "a.ndjson", *frames(3)))
    delete_run(run)
    assert not run.path.exists()
    delete_run(run)


def test_a_start_without_metrics_has_no_figures(tmp_path: Path) -> None:
    text = frame_line(starting_frame(1, "imports", 1.0, None))
    run = read_run(write(tmp_path / "a.ndjson", text))
    assert run.figures is None
