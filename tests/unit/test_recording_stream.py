"""Frames as lines and back: nothing is lost, nothing is made up, and a broken file says where."""

import json
import math
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from fakes.shapes import any_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specpanel.core.errors import RecordingError
from specpanel.core.monitor.frame import (
    EngineSample,
    Frame,
    HostSample,
    Interval,
    LatencySample,
    PositionRate,
    Quantile,
    Quantiles,
    ScrapeSample,
    ServerSample,
    SpeculationSample,
    Totals,
    TrafficSample,
)
from specpanel.core.monitor.recording import (
    SCHEMA_VERSION,
    Recorder,
    frame_line,
    line,
    read_lines,
    read_recording,
)

GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "recording_format_1.ndjson"

SERVER = ServerSample(
    state="serving",
    name="demo-ngram",
    url="http://127.0.0.1:8290",
    model="smollm2",
    drafter="ngram",
    draft_tokens=4,
    phase="ready",
    phase_s=1.5,
    pid=4242,
    exit_code=-9,
    version="0.32.0",
    detail="a last line, ü",
)
RATE = Interval(0.5, 0.25, 0.75)
QUANTILES = Quantiles(9, Quantile(10.0), Quantile(20.5), Quantile(40.0, beyond=True))
FULL = Frame(
    time_unix=1_700_000_000.25,
    elapsed_s=12.5,
    epoch=1,
    server=SERVER,
    scrape=ScrapeSample("failing", 0.5, 3.25, "no answer in time"),
    engine=EngineSample(1, 2, 0, 0.125, 100.5, 42.0, 0, 0.75, 9),
    speculation=SpeculationSample(
        10.0, 20, 80, 30, 2.5, 0.375, (PositionRate(1, 10, RATE, RATE),), 40, 2.25, None, "note"
    ),
    latency=LatencySample(10.0, QUANTILES, QUANTILES, QUANTILES, 12.5),
    totals=Totals(20, 80, 30, (10, 8, 7, 5), 1000, 2000),
    host=HostSample(50.0, 2, 1 << 30, 1 << 34, 180.0, 1 << 29),
    traffic=TrafficSample(10, 8, 1, 1, 24),
    mark="traffic began",
)
EMPTY = Frame(
    time_unix=1_700_000_001.25,
    elapsed_s=13.5,
    epoch=1,
    server=ServerSample("starting", None, "http://h:1", *[None] * 9),
    scrape=ScrapeSample("not yet", None, None, None),
    engine=None,
    speculation=None,
    latency=None,
    totals=None,
    host=None,
    traffic=None,
)


def refusal(path: Path) -> str:
    with pytest.raises(RecordingError) as caught:
        list(read_recording(path))
    assert "\n" not in str(caught.value)
    return caught.value.message


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "recording.ndjson"


# --- lines ------------------------------------------------------------------------------------------


@settings(suppress_health_check=[*HealthCheck], deadline=None, max_examples=60)
@given(frames=st.lists(any_of(Frame), min_size=1, max_size=2))
def test_frames_are_read_as_they_were_written(
    frames: list[Frame], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "frames.ndjson"
    path.unlink(missing_ok=True)
    recorder = Recorder(path)
    for frame in frames:
        recorder.write(frame_line(frame))
    recorder.close()
    assert list(read_recording(path)) == frames


def test_a_file_that_holds_something_is_never_recorded_over(path: Path) -> None:
    path.write_text("precious\n")
    with pytest.raises(RecordingError, match="is there already"):
        Recorder(path)
    assert path.read_text() == "precious\n"


@pytest.mark.parametrize("frame", [FULL, EMPTY], ids=["full", "empty"])
def test_a_frame_with_everything_and_one_with_nothing_come_back(frame: Frame, path: Path) -> None:
    path.write_text(frame_line(frame) + "\n", encoding="utf-8")
    assert list(read_recording(path)) == [frame]


def test_format_and_kind_stand_first_on_every_line() -> None:
    assert list(json.loads(frame_line(FULL)))[:2] == ["schema_version", "kind"]
    assert line("note", {"text": "x"}) == '{"schema_version": 1, "kind": "note", "text": "x"}'


def test_absent_is_null_and_never_zero() -> None:
    found = json.loads(frame_line(EMPTY))
    assert {found[name] for name in ("engine", "speculation", "latency", "totals", "mark")} == {
        None
    }
    assert found["server"]["exit_code"] is None


def test_what_is_no_number_is_null_wherever_it_stands() -> None:
    content: dict[str, Any] = {"a": math.nan, "b": [math.inf, 1.5], "c": {"d": (-math.inf, 0.0)}}
    found = json.loads(line("x", content), parse_constant=pytest.fail)
    assert (found["a"], found["b"], found["c"]["d"]) == (None, [None, 1.5], [None, 0.0])


@settings(deadline=None)
@given(text=st.text(alphabet=st.characters(), max_size=20))
def test_a_line_is_one_line_of_utf_8_whatever_it_holds(text: str) -> None:
    written = line("note", {"text": text})
    assert "\n" not in written
    assert "\r" not in written
    assert json.loads(written.encode("utf-8"))["text"] == text


def test_half_a_character_of_a_server_can_be_recorded(path: Path) -> None:
    recorder = Recorder(path)
    recorder.write(line("request", {"text": "half \ud83d"}))
    recorder.close()
    assert [found["text"] for found in read_lines(path)] == ["half \ud83d"]


def test_a_recording_of_the_first_format_stays_readable() -> None:
    assert list(read_recording(GOLDEN)) == [FULL, EMPTY]


# --- the writer -------------------------------------------------------------------------------------


def test_each_line_is_on_disk_before_the_next(path: Path) -> None:
    recorder = Recorder(path)
    recorder.write(frame_line(FULL))
    assert list(read_recording(path)) == [FULL]
    recorder.close()


def test_missing_folders_are_made(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b ü" / "c.ndjson"
    Recorder(deep).close()
    assert deep.read_bytes() == b""


@pytest.mark.parametrize("kind", ["folder", "below a file"])
def test_a_recording_that_cannot_begin_is_told(kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    path = tmp_path if kind == "folder" else tmp_path / "file" / "x.ndjson"
    with pytest.raises(RecordingError) as caught:
        Recorder(path)
    assert f"the recording {path} cannot be written: " in caught.value.message
    assert "--record" in caught.value.fix


def test_a_full_device_ends_the_recording_with_its_name() -> None:
    recorder = Recorder(Path("/dev/full"))
    with pytest.raises(RecordingError) as caught:
        recorder.write(frame_line(FULL))
    assert caught.value.message == (
        "the recording /dev/full cannot be written: No space left on device"
    )
    with pytest.raises(RecordingError):  # what is still in the buffer has nowhere to go
        recorder.close()


FILL = """
import resource, signal, sys
from pathlib import Path
from specpanel.core.errors import RecordingError
from specpanel.core.monitor.recording import Recorder
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # as a disk that is full
text = sys.stdin.read()
recorder = Recorder(Path(sys.argv[1]))
try:
    while True:
        recorder.write(text)
except RecordingError as error:
    sys.stdout.write(error.message)
"""


def test_a_disk_that_fills_up_keeps_every_frame_before(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILL, str(path)],
        input=frame_line(FULL),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == f"the recording {path} cannot be written: File too large"
    whole = 20_000 // (len(frame_line(FULL).encode()) + 1)
    assert whole > 3
    assert list(read_recording(path)) == [FULL] * whole


# --- the reader -------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_a_last_line_that_was_cut_is_left_out(cut: int, path: Path) -> None:
    text = frame_line(FULL)
    path.write_text(f"{text}\n{text[:-cut]}", encoding="utf-8")
    assert list(read_recording(path)) == [FULL]


def test_a_last_line_cut_inside_a_character_is_left_out(path: Path) -> None:
    text = frame_line(FULL)
    path.write_bytes(f"{text}\n".encode() + text.encode()[: text.index("ü") + 1])
    assert list(read_recording(path)) == [FULL]


@pytest.mark.parametrize(
    "broken", ["half {", "[]", "3", '{"kind": "frame"}', '{"schema_version": "1"}', "[" * 100_000]
)
def test_a_broken_line_in_the_middle_is_told_with_its_number(broken: str, path: Path) -> None:
    text = frame_line(FULL)
    path.write_text(f"{text}\n\n{broken}\n{text}\n", encoding="utf-8")
    assert f"{path}, line 3, is not a line of a recording" in refusal(path)


@pytest.mark.parametrize("content", [b"hello\n", b"\x89PNG\r\n\x1a\n\0\0", b"{}", b"<html>"])
def test_a_file_of_something_else_is_told(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    assert f"{path}, line 1, is not a line of a recording" in refusal(path)


def test_a_newer_format_is_refused(path: Path) -> None:
    newer = {"schema_version": SCHEMA_VERSION + 1, "kind": "frame"}
    path.write_text(json.dumps(newer) + "\n", encoding="utf-8")
    assert refusal(path) == f"{path} was written by a newer specpanel (format 2)"


def test_kinds_and_fields_that_are_not_known_are_passed_over(path: Path) -> None:
    frame = {**asdict(FULL), "new_sample": {"x": 1}}
    lines = [line("hologram", {"x": 1}), line("frame", frame), line("summary", {"legs": []})]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert list(read_recording(path)) == [FULL]
    assert [found["kind"] for found in read_lines(path)] == ["hologram", "frame", "summary"]


def test_a_frame_with_a_wrong_field_is_told_with_the_field(path: Path) -> None:
    frame = asdict(FULL) | {"epoch": "x"}
    path.write_text(line("frame", frame) + "\n", encoding="utf-8")
    assert f"a frame in {path} cannot be read: epoch: " in refusal(path)


def test_a_recording_that_is_not_there_is_told(path: Path, tmp_path: Path) -> None:
    assert refusal(path) == f"the recording {path} cannot be read: No such file or directory"
    assert "cannot be read: Is a directory" in refusal(tmp_path)


def test_an_empty_recording_holds_nothing(path: Path) -> None:
    path.write_bytes(b"")
    assert list(read_recording(path)) == []
    path.write_bytes(b"\n \n")
    assert list(read_recording(path)) == []
