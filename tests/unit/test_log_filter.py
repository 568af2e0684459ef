"""What of a log is shown: filter, level, and the probes that flood it."""

from pathlib import Path

import pytest

from specpanel.core.engine.log_filter import SHOW_ALL, LogFilter, is_probe, severity_of
from specpanel.core.engine.logline import parse_text
from specpanel.core.errors import ConfigurationError

LOGS = Path(__file__).parents[1] / "data" / "logs"


def shown(block: str, chosen: LogFilter) -> list[str]:
    lines = block.split("\n")
    return [lines[place] for place in chosen.select(block.encode()).hits]


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("(EngineCore pid=7) ERROR 11-30 11:49:42 [core.py:1] x", "error"),
        ("CRITICAL 11-30 11:49:42 [core.py:1] x", "error"),
        ("WARNING 11-30 11:49:42 [core.py:1] x", "warning"),
        ("INFO 11-30 11:49:42 [core.py:1] no Error: at all", None),
        ("Traceback (most recent call last):", "error"),
        ("torch.OutOfMemoryError: CUDA out of memory", "error"),
        ("ValueError", "error"),
        ("/lib/a.py:3: DeprecationWarning: old", "warning"),
        ("errors are discussed here", None),
        ('{"levelname": "ERROR", "message": "it broke"}', "error"),
    ],
)
def test_severity_is_read_from_levels_and_from_bare_python_lines(
    text: str, severity: str | None
) -> None:
    assert severity_of(parse_text(text)) == severity
    level = LogFilter(level="warning")
    assert bool(level.select(text.encode()).hits) is (severity is not None)
    assert bool(LogFilter(level="error").select(text.encode()).hits) is (severity == "error")


@pytest.mark.parametrize(
    ("request_line", "probe"),
    [
        ("GET /metrics HTTP/1.1", True),
        ("GET /metrics/ HTTP/1.1", True),
        ("GET /health HTTP/1.1", True),
        ("GET /health?deep=1 HTTP/1.0", True),
        ("GET /healthy HTTP/1.1", False),
        ("POST /v1/completions HTTP/1.1", False),
    ],
)
def test_only_answered_scrapes_and_health_checks_are_probes(request_line: str, probe: bool) -> None:
    line = f'INFO:     127.0.0.1:5 - "{request_line}" 200 OK'
    assert is_probe(parse_text(line)) is probe
    assert bool(LogFilter().select(line.encode()).folded) is probe
    assert not is_probe(parse_text(line.replace("200 OK", "503 Service Unavailable")))


def test_probes_are_folded_and_counted_unless_asked_for() -> None:
    access = 'INFO:     127.0.0.1:58780 - "GET {} HTTP/1.1" 200 OK'
    lines = [access.format(path) for path in ("/health", "/v1/models", "/metrics", "/metrics")]
    block = (LOGS / "ngram_good.txt").read_bytes() + "\n".join(lines).encode()
    folded = LogFilter().select(block)
    everything = SHOW_ALL.select(block)
    assert folded.folded == 3
    assert len(everything.hits) == everything.lines == len(folded.hits) + 3
    assert len(folded.notable) == len(everything.notable) > 10


def test_a_filter_counts_only_the_probes_it_would_have_shown() -> None:
    block = b'INFO:     1.2.3.4:5 - "GET /metrics HTTP/1.1" 200 OK\nother\n'
    assert LogFilter("metrics").select(block).folded == 1
    assert LogFilter("other").select(block).folded == 0


def test_a_coloured_access_line_is_folded_too() -> None:
    line = (
        b'\x1b[32mINFO\x1b[0m:     1.2.3.4:5 - "\x1b[1mGET /metrics HTTP/1.1\x1b[0m" \x1b[32m200 OK'
    )
    assert LogFilter().select(line).folded == 1


def test_a_pattern_is_found_in_either_case_and_is_no_regex() -> None:
    block = "one [Draft] x\ntwo [DRAFT] y\nthree draft\nvier ÄPFEL\n"
    assert shown(block, LogFilter("[draft]")) == ["one [Draft] x", "two [DRAFT] y"]
    assert shown(block, LogFilter("äpfel")) == ["vier ÄPFEL"]
    assert shown(block, LogFilter("nothing")) == []


def test_a_regex_stands_between_slashes() -> None:
    block = "a1\nb2\na22\n"
    assert shown(block, LogFilter("/^a\\d+$/")) == ["a1", "a22"]
    assert shown("x /a/ y\nz\n", LogFilter("/a")) == ["x /a/ y"]


def test_a_broken_regex_is_said_in_a_sentence() -> None:
    with pytest.raises(ConfigurationError, match="no regular expression"):
        LogFilter("/(a/")


def test_escapes_do_not_hide_a_word() -> None:
    assert LogFilter("wanted").select(b"plain\nwan\x1b[1mted\n").hits == [1]


def test_the_places_of_a_match_are_known() -> None:
    assert LogFilter("ab").spans("xABxab") == [(1, 3), (4, 6)]
    assert LogFilter("/x*/").spans("axx") == []  # those are asked for elsewhere


def test_a_traceback_with_prefixes_is_one_error() -> None:
    record = "(EngineCore pid=7) ERROR 11-30 11:49:42 [core.py:{}] {}\n"
    block = "".join(record.format(1, f"frame {number}") for number in range(9)) + "info\n"
    block += record.format(2, "another") + "ValueError: a\nKeyError: b\n"
    for chosen in (SHOW_ALL, LogFilter(level="error"), LogFilter("/./")):
        chosen_lines = chosen.select(block.encode())
        starts = [chosen_lines.hits[place] for place in chosen_lines.notable]
        assert starts == [0, 10, 11, 12]
