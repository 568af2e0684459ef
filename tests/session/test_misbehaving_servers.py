"""``specpanel run`` over servers that answer nonsense, never end an answer, or flood their log."""

from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from fakes.engine.workbench import Ended, Flight, side_by_side

SIX = ("--requests", "6")
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m\r\x9b31m"
FLIGHTS: dict[str, Flight] = {
    "endless": Flight(SIX, {"metrics": "endless", "flood": "lines", "step_s": 0.05}),
    "drip": Flight(SIX, {"metrics": "drip", "flood": "binary", "step_s": 0.05}),
    "huge": Flight(SIX, {"metrics": "huge", "flood": "long", "step_s": 0.05}),
    "elsewhere": Flight(SIX, {"metrics": "elsewhere", "flood": "returns", "step_s": 0.05}),
    "backwards": Flight(("--requests", "12"), {"metrics": "backwards", "step_s": 0.05}),
    "0.9": Flight(("--requests", "12"), {"metrics": "0.9", "step_s": 0.05}),
    "coming and going": Flight(
        ("--requests", "12"), {"metrics": "coming and going", "step_s": 0.05}
    ),
    "half a character": Flight(
        ("--requests", "40"), {"requests": "half a character", "requests_good": 5}
    ),
    "hostile words": Flight(
        ("--requests", "40"),
        {
            "requests": "500",
            "requests_good": 2,
            "error": ESCAPES,
            "metrics": "500",
            "crash_text": ESCAPES,
        },
    ),
}
ERRORS = {
    "endless": "/metrics is larger than 32 MiB",
    "drip": "no answer for",
    "elsewhere": "it redirects to another server (127.0.0.1:9)",
}
Flown = dict[str, "Future[Ended]"]


@pytest.fixture(scope="module")
def flown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flown]:
    with side_by_side(FLIGHTS, tmp_path_factory.mktemp("flights")) as flown:
        yield flown


@pytest.mark.parametrize("kind", ERRORS)
def test_metrics_that_never_end_or_lead_away_cost_only_themselves(flown: Flown, kind: str) -> None:
    ended = flown[kind].result()
    panel = ended.panel
    assert ended.code == 0, panel.err
    frames = panel.of_kind("frame")
    told = {frame["scrape"]["error"] for frame in frames if frame["scrape"]["state"] == "failing"}
    assert any(ERRORS[kind] in str(error) for error in told), told
    [leg] = panel.summary["legs"]
    assert (leg["requests"], leg["failed"]) == (6, 0)
    assert ended.left == []


def test_ten_megabytes_of_metrics_are_read_among_a_flood_of_huge_lines(flown: Flown) -> None:
    ended = flown["huge"].result()
    assert ended.code == 0, ended.panel.err
    frames = ended.panel.of_kind("frame")
    assert any(frame["engine"] is not None for frame in frames)
    assert max(len(line) for line in ended.panel.out.splitlines()) < 200_000
    assert ended.left == []


def test_counters_that_run_backwards_give_no_negative_figure(flown: Flown) -> None:
    ended = flown["backwards"].result()
    assert ended.code == 0, ended.panel.err
    for frame in ended.panel.of_kind("frame"):
        engine, spec = frame["engine"] or {}, frame["speculation"] or {}
        assert (engine.get("generation_tokens_per_s") or 0) >= 0
        assert (spec.get("acceptance_length") or 1) >= 1


def test_names_of_an_older_vllm_are_understood(flown: Flown) -> None:
    ended = flown["0.9"].result()
    assert ended.code == 0, ended.panel.err
    last = [frame for frame in ended.panel.of_kind("frame") if frame["engine"]][-1]
    assert last["engine"]["kv_cache_usage"] is not None
    assert last["engine"]["generation_tokens_per_s"] is not None


def test_engines_that_come_and_go_are_never_counted_twice(flown: Flown) -> None:
    ended = flown["coming and going"].result()
    assert ended.code == 0, ended.panel.err
    frames = [frame for frame in ended.panel.of_kind("frame") if frame["engine"]]
    assert {frame["engine"]["engines"] for frame in frames} > {1}
    assert {frame["epoch"] for frame in frames} == {0}
    # Each engine of this server has all tokens: three of them at most, 13 requests of 12 tokens.
    assert max(frame["totals"]["generation_tokens"] for frame in frames) <= 3 * 13 * 12


def test_an_answer_that_breaks_inside_a_character_is_a_failed_request(flown: Flown) -> None:
    ended = flown["half a character"].result()
    assert ended.code == 1
    assert "requests failed" in ended.panel.err
    failed = [one for one in ended.panel.of_kind("request") if one["error"]]
    assert failed
    assert all("closed" in one["error"] or "end" in one["error"] for one in failed), failed[:1]
    assert ended.left == []


def test_escape_sequences_of_a_server_reach_no_terminal(flown: Flown) -> None:
    panel = flown["hostile words"].result().panel
    assert "500" in panel.err
    shown = panel.err.replace("\n", "")
    assert shown.isprintable(), [c for c in shown if not c.isprintable()]
    assert panel.out.replace("\n", "").isprintable(), "JSON escapes what is not printable"
