"""One real server, looked at in every way that specpanel offers."""

import contextlib
import json
import sys
from pathlib import Path

import httpx
import pexpect
import pyte
import pytest
from tui.terminal import put_down

from specpanel.core.monitor.recording import read_recording


def test_ps_lists_the_server_that_run_left_running(specpanel, server) -> None:
    (listed,) = (json.loads(line) for line in specpanel.run("ps", "--json").out.splitlines())
    assert listed["pid"] == server.pid
    assert listed["drafter"] == "ngram"
    assert httpx.get(f"{server.url}/health").status_code == 200


def test_attach_measures_a_server_without_ending_it(specpanel, server) -> None:
    run = specpanel.run(
        *("run", "--attach", server.url, "--requests", "4", "--concurrency", "2", "--json"),
        *("--set", "traffic.max_tokens=24", "--set", "traffic.kinds=repetition"),
    )
    assert run.code == 0, run.err
    (leg,) = run.summary["legs"]
    assert leg["requests"] == 4
    assert leg["acceptance"]["acceptance_length"] > 1
    assert httpx.get(f"{server.url}/health").status_code == 200


def test_watch_shows_a_server_that_someone_else_started(specpanel, server, tmp_path: Path) -> None:
    """Frames once a second with the server's own figures, and a recording that replays to the same."""
    recording = tmp_path / "watch.ndjson"
    seen = specpanel.run(
        "watch", server.url, "--duration", "5", "--json", "--record", str(recording)
    )
    assert seen.code == 0, seen.err
    frames = [line for line in seen.lines if line["kind"] == "frame"]
    assert 4 <= len(frames) <= 6
    assert {frame["server"]["state"] for frame in frames} == {"serving"}
    last = frames[-1]
    assert last["scrape"]["state"] == "ok"
    assert last["speculation"]["lifetime_drafts"] > 0
    assert last["speculation"]["lifetime_acceptance_length"] >= 1

    replayed = specpanel.run("watch", "--replay", str(recording), "--speed", "0", "--json")
    assert replayed.code == 0, replayed.err
    assert replayed.out == seen.out
    assert len(list(read_recording(recording))) == len(frames)


def test_lifetime_acceptance_is_what_vllm_counts(specpanel, server) -> None:
    """The figure on the screen is 1 + accepted / drafts of the server's own counters."""
    text = httpx.get(f"{server.url}/metrics").text
    counted = {
        name: sum(
            float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line.startswith(f"vllm:spec_decode_num_{name}_total{{")
        )
        for name in ("drafts", "accepted_tokens")
    }
    frame = specpanel.run("watch", server.url, "--duration", "2", "--json").lines[-1]
    assert frame["speculation"]["lifetime_acceptance_length"] == pytest.approx(
        1 + counted["accepted_tokens"] / counted["drafts"]
    )


def test_the_panel_opens_over_the_running_server(specpanel, server, eventually) -> None:
    """`specpanel` without arguments, in a real terminal: the Live screen, and a clean way out."""
    screen = pyte.Screen(120, 40)
    stream = pyte.ByteStream(screen)
    child = pexpect.spawn(
        sys.executable,
        ["-m", "specpanel.app"],
        env={**specpanel.environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
        dimensions=(40, 120),
        timeout=30,
    )

    def shows(text: str) -> bool:
        with contextlib.suppress(pexpect.TIMEOUT, pexpect.EOF):
            stream.feed(child.read_nonblocking(65536, timeout=0.2))
        return any(text in row for row in screen.display)

    try:
        eventually(lambda: shows("serving"), 20, "the state of the server is on the screen")
        eventually(lambda: shows("Acceptance length"), 10, "the chart is on the screen")
        child.send("q")
        eventually(lambda: shows("Leave it running"), 20, "leaving asks what becomes of the server")
        child.send("l")
        eventually(lambda: shows("") and not child.isalive(), 20, "the panel has ended")
        assert child.exitstatus == 0
    finally:
        put_down(child)
    assert httpx.get(f"{server.url}/health").status_code == 200
