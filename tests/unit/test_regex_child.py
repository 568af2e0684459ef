"""A regular expression that a person types is searched for in a child: at worst it costs a deadline."""

import time
from pathlib import Path

import psutil
import pytest

from specpanel.core.engine.log_filter import LogFilter
from specpanel.core.engine.log_index import LogIndex
from specpanel.core.engine.log_source import LogFile
from specpanel.core.engine.regex_child import RegexChild, SlowPatternError

NEVER_ENDS = "(a+)+$"
STICKY = "a" * 200 + "b"


def test_it_says_which_lines_match_and_where() -> None:
    child = RegexChild(r"\d+|ä")
    lines = ["a1", "", "none", "x22y333", "ä 🧪 7"]
    assert child.matches(lines) == [True, False, False, True, True]
    assert child.spans(lines) == [[(1, 2)], [], [], [(1, 3), (4, 7)], [(0, 1), (4, 5)]]
    assert child.matches([]) == child.spans([]) == []
    child.close()


def test_a_pattern_that_never_ends_costs_its_deadline_and_leaves_no_process() -> None:
    before = {one.pid for one in psutil.Process().children()}
    child = RegexChild(NEVER_ENDS, deadline_s=0.5)
    began_s = time.monotonic()
    with pytest.raises(SlowPatternError, match=r"\(a\+\)\+\$/ takes too long"):
        child.matches(["fine", STICKY])
    assert time.monotonic() - began_s < 20
    assert {one.pid for one in psutil.Process().children()} == before
    assert child.matches(["aaa"]) == [True]  # it starts anew
    child.close()
    with pytest.raises(SlowPatternError):
        child.matches(["aaa"])
    assert {one.pid for one in psutil.Process().children()} == before


def test_half_a_character_in_a_line_is_no_reason_to_give_up() -> None:
    child = RegexChild("x")
    assert child.matches(["\udcff x", "\udcff"]) == [True, False]
    child.close()


def test_an_index_asks_the_child_and_hands_its_refusal_on(tmp_path: Path) -> None:
    log = tmp_path / "some.log"
    log.write_text("".join(f"line {number}\n" for number in range(5000)))
    good = RegexChild("7$")
    index = LogIndex(LogFile(log), LogFilter("/7$/"), "end", good.matches)
    while index.advance():
        pass
    assert index.state.hits == 500
    good.close()
    log.write_text(f"{STICKY}\n")
    bad = RegexChild(NEVER_ENDS, deadline_s=0.3)
    with pytest.raises(SlowPatternError):
        LogIndex(LogFile(log), LogFilter(f"/{NEVER_ENDS}/"), "end", bad.matches).advance()
