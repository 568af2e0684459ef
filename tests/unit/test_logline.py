"""Lines of vLLM's log as it writes them, and as a terminal or a child mangles them."""

import pytest

from specpanel.core.engine.logline import LINE_LIMIT, parse_line, parse_text


def test_a_record_is_taken_apart():
    line = parse_line(b"(EngineCore pid=78) INFO 11-30 11:49:42 [utils.py:347] Using a layout.\n")
    assert (line.process, line.pid, line.level) == ("EngineCore", 78, "INFO")
    assert (line.time_text, line.source) == ("11-30 11:49:42", "utils.py:347")
    assert line.message == "Using a layout."
    assert line.text.startswith("(EngineCore pid=78) INFO")


@pytest.mark.parametrize(
    ("raw", "process", "pid"),
    [
        (b"(Worker_TP0 pid=9) INFO 11-30 11:49:42 [a.py:1] m", "Worker_TP0", 9),
        (b"(EngineCore_DP0 pid=10) ERROR 11-30 11:49:42 [a.py:1] m", "EngineCore_DP0", 10),
        (b"(VllmWorker-0 pid=11) WARNING 11-30 11:49:42 [a.py:1] m", "VllmWorker-0", 11),
        (b"INFO 11-30 11:49:42 [a.py:1] m", None, None),
    ],
)
def test_process_names_are_read_where_they_are_written(raw, process, pid):
    line = parse_line(raw)
    assert (line.process, line.pid, line.message) == (process, pid, "m")


def test_the_older_form_without_an_opening_bracket_is_read():
    line = parse_text("INFO 07-02 10:11:12 metrics.py:401] Speculative metrics: nan")
    assert (line.source, line.message) == ("metrics.py:401", "Speculative metrics: nan")


def test_lines_of_the_http_server_have_a_level_and_no_process():
    line = parse_line(b"INFO:     Application startup complete.\n")
    assert (line.process, line.level, line.message) == (
        None,
        "INFO",
        "Application startup complete.",
    )


def test_f11_colours_and_titles_are_stripped():
    line = parse_line(
        b"\x1b]0;a title\x07\x1b[0;36m(APIServer pid=77)\x1b[0;0m INFO 09-14 09:00:00 [util.py:9] \r\n"
    )
    assert (line.process, line.pid, line.message) == ("APIServer", 77, "")
    assert "\x1b" not in line.text


def test_of_a_progress_bar_the_last_state_is_kept():
    raw = b"Loading shards:   0% | 0/4\rLoading shards:  50% | 2/4\rLoading shards: 100% | 4/4\n"
    assert parse_line(raw).text == "Loading shards: 100% | 4/4"


def test_bytes_that_are_no_text_are_replaced():
    assert parse_line(b"caf\xe9 \xff\xfe raw bytes\n").text == "caf� �� raw bytes"


def test_a_long_line_is_cut_and_says_so():
    line = parse_line(b"(EngineCore pid=78) " + b"A" * 70_000 + b"\n")
    assert line.cut
    assert len(line.text) == LINE_LIMIT
    assert (line.process, line.pid) == ("EngineCore", 78)


def test_a_line_of_the_limit_is_whole():
    assert not parse_line(b"A" * LINE_LIMIT).cut


@pytest.mark.parametrize(
    "hostile",
    [
        "[/foo]",
        '["a", 1]',
        "[@click=app.bell]x[/]",
        "loading [/usr/share/x] : [#1] done [bold",
        "{",
    ],
)
def test_what_looks_like_markup_stays_as_it_is(hostile):
    assert parse_text(hostile).message == hostile


def test_a_json_record_is_read():
    line = parse_text(
        '{"asctime": "2026-11-30 11:49:42,123", "levelname": "ERROR", "name": "vllm.v1.engine.core", '
        '"processName": "MainProcess", "process": 78, "message": "EngineCore failed to start.", '
        '"vllm_process_name": "EngineCore", '
        '"exc_info": "Traceback (most recent call last):\\nValueError: no"}'
    )
    assert (line.process, line.pid, line.level) == ("EngineCore", 78, "ERROR")
    assert line.message.startswith("EngineCore failed to start.\nTraceback")


@pytest.mark.parametrize("text", ['{"a": 1}', '{"message": 3}', "{not json", "{}", '{"a":' * 500])
def test_braces_that_are_no_record_are_plain_text(text):
    assert parse_text(text).message == text


@pytest.mark.parametrize("raw", [b"", b"\n", b"\r\n", b"\x1b", b"\x00\x07", b"\x1b]no end"])
def test_nothing_is_an_empty_line(raw):
    assert parse_line(raw).text == ""
