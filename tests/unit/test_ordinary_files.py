"""Whatever is named as a file: a pipe is read, a device is refused, nothing waits or grows without an end."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from specpanel.core import ordinary
from specpanel.core.checkpoints.json_file import read_json
from specpanel.core.errors import SpecpanelError
from specpanel.core.monitor.recording import read_lines
from specpanel.core.ordinary import lines_of, read_ordinary
from specpanel.core.session.history_comparison import _request_lines
from specpanel.core.settings.files import find_profile
from specpanel.core.traffic.prompts import read_prompts

READERS: dict[str, Callable[[Path], object]] = {
    "configuration": read_json,
    "recording": lambda path: list(read_lines(path)),
    "requests": lambda path: list(_request_lines(path)),
    "prompts": read_prompts,
    "profile": lambda path: find_profile(str(path)),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom", "/dev/null"])
def test_a_device_is_refused(reader: str, device: str, tmp_path: Path) -> None:
    named = tmp_path / "named.jsonl"
    named.symlink_to(device)
    with pytest.raises(SpecpanelError, match="not a file"):
        READERS[reader](named)


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_that_nobody_writes_to_does_not_wait(reader: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    try:
        found = READERS[reader](tmp_path / "pipe.jsonl")
    except SpecpanelError:
        return
    assert found == []


def test_what_a_command_writes_into_a_pipe_is_read(tmp_path: Path) -> None:
    with subprocess.Popen(["echo", "What is speculation?"], stdout=subprocess.PIPE) as said:
        assert said.stdout is not None
        prompts = read_prompts(Path(f"/dev/fd/{said.stdout.fileno()}"))
    assert [prompt.text for prompt in prompts] == ["What is speculation?"]


def test_a_pipe_whose_writer_stays_silent_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordinary, "PIPE_PATIENCE_S", 0.05)
    reading, writing = os.pipe()
    try:
        with pytest.raises(OSError, match="nothing came out of the pipe"):
            read_ordinary(Path(f"/dev/fd/{reading}"), 100)
    finally:
        os.close(reading)
        os.close(writing)


def test_a_line_without_an_end_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "long").open("wb") as file:
        file.write(b"{}\n")
        file.truncate(2000)
    found = lines_of(tmp_path / "long", longest_bytes=1000)
    assert next(found) == b"{}\n"
    with pytest.raises(OSError, match="line 2 has more than"):
        next(found)


def test_a_file_beyond_its_limit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 11)
    assert len(read_ordinary(tmp_path / "large", 11)) == 11
    with pytest.raises(OSError, match="has more than"):
        read_ordinary(tmp_path / "large", 10)
