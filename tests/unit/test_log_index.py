"""The log index: any line of any log, around the place where one looks first, in little memory."""

import os
import random
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specpanel.core.engine.log_filter import SHOW_ALL, LogFilter
from specpanel.core.engine.log_index import Anchor, LogIndex
from specpanel.core.engine.log_source import LogFile
from specpanel.core.session.notices import Notices

MIB = 1 << 20
RECORD = "(EngineCore pid=78) {} 11-30 11:49:42 [core.py:{}] message {}"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


class Memory:
    """Bytes as a log."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def status(self) -> tuple[object, int] | None:
        return "memory", len(self.data)

    def read(self, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size]


def finished(index: LogIndex) -> LogIndex:
    while index.advance(1.0):
        pass
    return index


def texts(index: LogIndex) -> list[str]:
    state = index.state
    return [e.line.text for e in index.window(state.first, state.end - state.first)]


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def many_records(count: int) -> list[str]:
    levels = ["INFO"] * 50 + ["WARNING", "ERROR"]
    return [RECORD.format(levels[n % len(levels)], n % 999, n) for n in range(count)]


@pytest.mark.parametrize("anchor", ["start", "end", 0])
def test_every_line_is_found_from_either_end(log: Path, anchor: Anchor) -> None:
    lines = many_records(5000)
    log.write_text("\n".join(lines) + "\n")
    index = finished(LogIndex(LogFile(log), anchor=anchor))
    assert index.state.lines == index.state.hits == 5000
    assert index.state.complete
    assert texts(index) == lines
    middle = index.window(index.state.first + 3210, 3)
    assert [entry.line.text for entry in middle] == lines[3210:3213]
    before = index.state.lines_before
    assert before is not None
    assert [entry.number + before for entry in middle] == [3210, 3211, 3212]


def test_the_end_is_there_before_the_rest_has_been_looked_at(log: Path) -> None:
    lines = many_records(20_000)
    log.write_text("\n".join(lines) + "\n")
    index = LogIndex(LogFile(log))
    assert index.advance(0.0)
    shown = index.window(index.state.end - 10, 10)
    assert [entry.line.text for entry in shown] == lines[-10:]
    assert index.state.progress < 0.5
    assert index.state.lines_before is None


def test_an_index_begins_where_one_looks(log: Path) -> None:
    lines = many_records(20_000)
    log.write_text("\n".join(lines) + "\n")
    offset = sum(len(line) + 1 for line in lines[:9000])
    index = LogIndex(LogFile(log), LogFilter("message"), offset)
    index.advance(0.0)
    assert index.window(0, 1)[0].line.text == lines[9000]
    assert index.window(-1, 1)[0].line.text == lines[8999]


blocks = st.lists(
    st.one_of(
        st.binary(max_size=80).map(lambda b: b.replace(b"\n", b"")),
        st.sampled_from(
            [
                b"INFO 11-30 11:49:42 [a.py:1] wanted",
                b"\x1b[31mERROR\x1b[0m 11-30 11:49:42 [a.py:1] wan\x1b[1mted",
                b"WARNING 11-30 11:49:42 [a.py:1] WANTED",
                b'INFO:     127.0.0.1:1 - "GET /metrics HTTP/1.1" 200 OK',
                b"x" * 70_000,
                b"y" * 200_000 + b" wanted",
                b"",
            ]
        ),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(
    lines=blocks,
    ended=st.booleans(),
    shown=st.sampled_from(
        [SHOW_ALL, LogFilter(), LogFilter("wanted"), LogFilter("/^E|W/", "warning", True)]
    ),
    place=st.integers(0, 29),
)
def test_anchor_blocks_and_shortcuts_never_change_what_is_shown(
    lines: list[bytes], ended: bool, shown: LogFilter, place: int
) -> None:
    data = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    expected = list(range(data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))))
    one_by_one = [
        number for number in expected if shown.select(data.split(b"\n")[number] + b"\n").hits
    ]
    offset = sum(len(line) + 1 for line in lines[:place])
    for anchor in ("start", "end", min(offset, data.rfind(b"\n") + 1)):
        index = finished(LogIndex(Memory(data), shown, anchor))  # type: ignore[arg-type]
        state = index.state
        before = state.lines_before
        assert before is not None
        entries = index.window(state.first, state.end - state.first)
        assert [entry.number + before for entry in entries] == one_by_one
        assert [entry.ordinal for entry in entries] == list(range(state.first, state.end))


@settings(max_examples=40, deadline=None)
@given(chunks=st.lists(st.binary(max_size=300), max_size=20))
def test_a_log_that_grows_is_the_same_as_one_that_was_there(chunks: list[bytes]) -> None:
    source = Memory(b"")
    index = finished(LogIndex(source))
    for chunk in chunks:
        source.data += chunk
        finished(index)
    fresh = finished(LogIndex(source, anchor="start"))
    assert texts(index) == texts(fresh)


def test_growth_by_small_steps_keeps_few_blocks(log: Path) -> None:
    index = LogIndex(LogFile(log))
    for number in range(3000):
        append(log, RECORD.format("INFO", 1, number).encode() + b"\n")
        finished(index)
    assert index.state.lines == 3000
    assert len(index._later) <= 5


def test_an_unfinished_line_is_shown_and_keeps_its_place(log: Path) -> None:
    append(log, b"one\ntwo begins")
    index = finished(LogIndex(LogFile(log)))
    assert texts(index) == ["one", "two begins"]
    append(log, b" and ends\nthree\n")
    finished(index)
    assert texts(index) == ["one", "two begins and ends", "three"]


def test_a_log_that_is_not_there_yet_is_read_when_it_comes(log: Path) -> None:
    index = LogIndex(LogFile(log))
    assert not index.advance()
    assert not index.state.exists
    append(log, b"first\n")
    assert texts(finished(index)) == ["first"]
    assert index.state.generation == 0


@pytest.mark.parametrize("how", ["cut", "replaced", "rewritten"])
def test_a_log_that_was_cut_or_replaced_begins_anew(log: Path, how: str) -> None:
    log.write_bytes(b"old line\n" * 100)
    index = finished(LogIndex(LogFile(log)))
    if how == "replaced":
        log.rename(log.with_suffix(".1"))
        log.write_bytes(b"new\n" * 300)
    else:
        log.write_bytes(b"new\n" * (3 if how == "cut" else 1000))
    finished(index)
    assert set(texts(index)) == {"new"}
    assert index.state.generation == 1


def test_a_log_that_goes_away_is_said_to_be_gone(log: Path) -> None:
    log.write_bytes(b"line\n")
    index = finished(LogIndex(LogFile(log)))
    log.unlink()
    finished(index)
    assert not index.state.exists
    assert index.state.lines == 1


def test_next_and_previous_error_cross_the_whole_log(log: Path) -> None:
    lines = many_records(20_000)
    log.write_text("\n".join(lines) + "\n")
    places = [n for n, line in enumerate(lines) if "WARNING" in line or "ERROR" in line]
    offset = sum(len(line) + 1 for line in lines[:10_000])
    index = finished(LogIndex(LogFile(log), SHOW_ALL, offset))
    first = index.state.first
    found, at = [], index.notable_after(first)
    while at is not None:
        found.append(at - first)
        at = index.notable_after(at)
    assert found == places
    at = index.notable_before(index.state.end - 1)
    backwards = []
    while at is not None:
        backwards.append(at - first)
        at = index.notable_before(at)
    assert backwards == places[::-1][1 if places[-1] == len(lines) - 1 else 0 :]


def test_errors_after_an_unfinished_line_are_no_fault(log: Path) -> None:
    log.write_bytes(b"ERROR 11-30 11:49:42 [a.py:1] x\nunfinished")
    index = finished(LogIndex(LogFile(log)))
    last = index.state.end - 1
    assert index.notable_after(last) is None
    assert index.notable_before(last) == last - 1


def test_f10_a_line_of_a_megabyte_is_one_line_and_binary_is_harmless(log: Path) -> None:
    log.write_bytes(b"before\n" + b"A" * MIB + b"\n\x00\x01\xff\xfe\x1b[2Jtext\r\nlast\n")
    for anchor in ("start", "end"):
        index = finished(LogIndex(LogFile(log), anchor=anchor))  # type: ignore[arg-type]
        shown = texts(index)
        assert (shown[0], len(shown[1]), shown[2], shown[3]) == ("before", 4096, "��text", "last")
        entry = index.window(index.state.first + 1, 1)[0]
        assert entry.line.cut
        assert len(index.whole(entry.offset).text) == 1 << 16


def test_f10_a_large_log_opens_at_once_and_memory_stays_flat(log: Path) -> None:
    sparse_log(log, 200 * MIB)
    process = psutil.Process()
    small = LogIndex(LogFile(log), LogFilter("message 7"))
    small.advance(0.05)  # what the first use costs is not what the size costs
    before = process.memory_info().rss
    index = LogIndex(LogFile(log), LogFilter())
    index.advance(0.05)
    last = index.window(index.state.end - 40, 40)
    assert len(last) == 40
    finished(index)
    assert index.state.complete
    total = index.state.lines
    for place in random.Random(1).sample(range(total), 200):
        assert index.window(index.state.first + place, 5)
    assert process.memory_info().rss - before < 30 * MIB


def sparse_log(path: Path, size: int) -> None:
    """A log of ``size`` bytes, written at once: records, then a hole of zeros, over and over.

    A hole is one line of a megabyte of zeros, so lines of every length are in it.
    """
    chunk = ("\n".join(many_records(6000)) + "\n").encode()
    with path.open("wb") as file:
        while file.tell() < size - len(chunk):
            file.write(chunk)
            file.seek(MIB, os.SEEK_CUR)
            file.write(b"\n")
        file.write(chunk)


def test_notices_of_the_panel_read_like_a_log() -> None:
    notices = Notices()
    notices.add("the [draft] server is up")
    notices.add("theme\nskipped", "warning")
    index = finished(LogIndex(notices))
    entries = index.window(index.state.first, 2)
    assert entries[0].line.message.endswith("the [draft] server is up")
    assert [entry.severity for entry in entries] == [None, "warning"]
    for number in range(5000):
        notices.add(f"notice {number} " + "x" * 200)
    finished(index)
    assert index.window(index.state.end - 1, 1)[0].line.message[9:].startswith("notice 4999 ")
    assert index.state.size <= 1 << 18
