"""Following a log: every line once, whatever it holds and whatever happens to the file."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specpanel.core.engine.logfile import LogFollower, tail

KIB_64 = 1 << 16


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_a_file_that_is_not_there_yet_has_no_lines(log: Path) -> None:
    follower = LogFollower(log)
    assert follower.new_lines() == []
    append(log, b"first\n")
    assert follower.new_lines() == [b"first"]
    assert follower.new_lines() == []


def test_an_unfinished_line_waits_for_its_end(log: Path) -> None:
    follower = LogFollower(log)
    append(log, b"one\nhal")
    assert follower.new_lines() == [b"one"]
    append(log, b"f\n\nend")
    assert follower.new_lines() == [b"half", b""]
    assert follower.rest() == [b"end"]
    assert follower.rest() == []


def test_only_what_comes_later_is_read_from_the_end_on(log: Path) -> None:
    append(log, b"old\n")
    follower = LogFollower(log, from_end=True)
    append(log, b"new\n")
    assert follower.new_lines() == [b"new"]


def test_a_file_that_was_cut_short_is_read_from_its_start(log: Path) -> None:
    follower = LogFollower(log)
    append(log, b"a long first line\nhalf a")
    assert follower.new_lines() == [b"a long first line"]
    os.truncate(log, 0)
    append(log, b"new\n")
    assert follower.new_lines() == [b"new"]


@pytest.mark.parametrize("from_end", [False, True])
def test_a_file_that_took_the_place_of_another_is_read_from_its_start(
    log: Path, from_end: bool
) -> None:
    append(log, b"old\n")
    follower = LogFollower(log, from_end=from_end)
    follower.new_lines()
    log.rename(log.with_suffix(".1"))
    append(log, b"a new file that is longer than the old one\n")
    assert follower.new_lines() == [b"a new file that is longer than the old one"]


def test_a_file_that_goes_away_and_comes_back_is_read_again(log: Path) -> None:
    follower = LogFollower(log)
    append(log, b"old\n")
    assert follower.new_lines() == [b"old"]
    log.unlink()
    assert follower.new_lines() == []
    append(log, b"new line\n")
    assert follower.new_lines() == [b"new line"]


@pytest.mark.parametrize("finished", [True, False])
def test_a_line_beyond_64_kib_comes_in_pieces(log: Path, finished: bool) -> None:
    long = os.urandom(3 * KIB_64 + 5).replace(b"\n", b"x")
    follower = LogFollower(log)
    append(log, b"before\n" + long + (b"\nafter\n" if finished else b""))
    lines = follower.new_lines() + follower.rest()
    assert max(map(len, lines)) == KIB_64
    assert lines[0] == b"before"
    assert b"".join(lines[1:5]) == long
    assert lines[5:] == ([b"after"] if finished else [])


def test_a_flood_is_handed_out_a_mebibyte_at_a_time_and_whole(log: Path) -> None:
    lines = [b"%06d" % number for number in range(200_000)]
    append(log, b"\n".join(lines) + b"\n")
    follower = LogFollower(log)
    first = follower.new_lines()
    assert 7 * len(first) <= 1 << 20
    assert first + follower.rest() == lines


@settings(deadline=None)
@given(
    chunks=st.lists(
        st.binary(max_size=40) | st.sampled_from([b"\n", b"\r\n", b"\xff\x00\n"]), max_size=12
    )
)
def test_no_byte_is_lost_however_the_file_grows(
    chunks: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "growing.log"
    path.write_bytes(b"")
    follower = LogFollower(path)
    lines: list[bytes] = []
    for chunk in chunks:
        append(path, chunk)
        lines += follower.new_lines()
    lines += follower.rest()
    whole = b"".join(chunks)
    assert lines == whole.removesuffix(b"\n").split(b"\n") if whole else lines == []


WRITER = """
import sys
with open(sys.argv[1], "ab", buffering=0) as file:
    for number in range(20000):
        file.write(b"line %d of this log\\n" % number)
"""


def test_a_file_that_grows_while_it_is_read_gives_every_line_once(log: Path) -> None:
    follower = LogFollower(log)
    lines: list[bytes] = []
    deadline = time.monotonic() + 60
    with subprocess.Popen([sys.executable, "-c", WRITER, str(log)]) as writer:
        while writer.poll() is None and time.monotonic() < deadline:
            lines += follower.new_lines()
    lines += follower.rest()
    assert lines == [b"line %d of this log" % number for number in range(20_000)]


def test_the_tail_is_whole_lines_only(log: Path) -> None:
    assert tail(log) == []
    append(log, b"first line\nsecond\nthird")
    assert tail(log) == [b"first line", b"second", b"third"]
    assert tail(log, most_bytes=16) == [b"second", b"third"]
