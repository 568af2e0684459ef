"""Runs that are interrupted or killed, and servers that are: what is told, and that nothing stays."""

import json
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from fakes.engine.workbench import Ended, Flight, Panel, Workbench, side_by_side

from specpanel.core.monitor.recording import read_lines

LONG = ("--requests", "2000", "--set", "traffic.concurrency=2")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Flown = dict[str, "Future[Ended]"]


def requests_done(count: int) -> Any:
    return lambda panel: panel.said("request") >= count


def phase_reached(phase: str) -> Any:
    return lambda panel: panel.said("phase", f'"phase": "{phase}"')


def sigterm_ignored(panel: Panel) -> bool:
    launched = panel.of_kind("launched") if panel.said("launched") else []
    return any("SIGTERM is ignored" in Path(each["log"]).read_text() for each in launched)


# A run for each phase, and how one sees that the phase is reached.
PHASES: dict[str, dict[str, Any]] = {
    "preflight": {
        "held_in_preflight": True,
        "reached": lambda panel: (panel.out_path.parent / "gate.asked").exists(),
    },
    "starting": {"script": {"silent_after": "config"}, "reached": phase_reached("config")},
    "loading": {
        "script": {"gate_after": "weights", "gate": "/never"},
        "reached": phase_reached("weights"),
    },
    "traffic": {"arguments": LONG, "reached": requests_done(5)},
    "stopping": {
        "script": {"hang_on_sigterm": True},
        "arguments": ("--set", "engine.stop_timeout_s=1.5"),
        "reached": sigterm_ignored,
    },
}
FLIGHTS: dict[str, Flight] = {
    **{
        f"{phase} {sign.name}": Flight(sign=sign, **what)
        for phase, what in PHASES.items()
        for sign in SIGNALS
    },
    "killed server": Flight(
        LONG, {"die_after_requests": 6, "die": "server", "engine_outlives": True}
    ),
    "killed engine": Flight(LONG, {"die_after_requests": 6, "die": "engine", "fall_s": 1.0}),
}


@pytest.fixture(scope="module")
def flown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flown]:
    with side_by_side(FLIGHTS, tmp_path_factory.mktemp("flights")) as flown:
        yield flown


def assert_recording_is_whole(ended: Ended) -> None:
    assert [json.dumps(line) for line in read_lines(ended.recording)] == [
        json.dumps(event) for event in ended.panel.events
    ]


@pytest.mark.parametrize("sign", [sign.name for sign in SIGNALS])
@pytest.mark.parametrize("phase", PHASES)
def test_f05_signal_ends_a_run_in_order(flown: Flown, phase: str, sign: str) -> None:
    ended = flown[f"{phase} {sign}"].result()
    panel = ended.panel
    assert ended.code == 130, panel.err
    assert panel.summary["interrupted"]
    assert panel.summary["failure"] is None
    assert_recording_is_whole(ended)
    if phase in ("traffic", "stopping"):
        measured = [event for event in panel.of_kind("request") if not event["warmup"]]
        assert panel.summary["legs"][0]["requests"] == len(measured) > 0
    else:
        assert panel.summary["legs"] == []
    if phase == "preflight":
        assert not panel.of_kind("launched")
    else:
        assert panel.of_kind("stopped")[0]["survivors"] == []
    assert ended.left == []


def test_second_interrupt_kills_at_once(bench: Workbench) -> None:
    script = {"hang_on_sigterm": True, "worker": "own session"}
    panel = bench.run(*LONG, "--set", "engine.stop_timeout_s=600", script=script)
    panel.until("traffic", requests_done(3))
    panel.interrupt()
    log = Path(panel.of_kind("launched")[0]["log"])
    panel.until("SIGTERM", lambda _: "SIGTERM is ignored" in log.read_text())
    panel.interrupt()
    assert panel.end() == 130
    [stopped] = panel.of_kind("stopped")
    assert stopped["killed"]
    assert panel.summary["legs"][0]["requests"] > 0
    bench.assert_nothing_left()


def test_interrupted_run_without_json_prints_its_summary(bench: Workbench) -> None:
    flags = [flag for flag in bench.flags() if flag != "--json"]
    panel = bench.start("run", *flags, *LONG, "--record", bench.folder / "run.ndjson")
    recording = bench.folder / "run.ndjson"
    panel.until(
        "traffic", lambda _: recording.exists() and recording.read_text().count('"request"') > 4
    )
    panel.interrupt()
    assert panel.end() == 130
    assert "ngram" in panel.out
    assert "stopped model" in panel.err
    bench.assert_nothing_left()


# -- killed -----------------------------------------------------------------------------------------


def test_d01_server_outlives_a_killed_panel_and_is_listed_and_ended(bench: Workbench) -> None:
    recording = bench.folder / "run.ndjson"
    panel = bench.run(*LONG, "--record", recording)
    panel.until("traffic", requests_done(5))
    panel.process.kill()
    panel.process.wait()
    [launched] = panel.of_kind("launched")
    assert len(list(read_lines(recording))) >= len(panel.events) - 1

    listing = bench.start("ps", "--json")
    assert listing.end() == 0
    assert [server["pid"] for server in listing.of_kind("server")] == [launched["pid"]]
    stop = bench.start("stop")
    assert stop.end() == 0, stop.err
    bench.assert_nothing_left()
    again = bench.start("ps")
    assert again.end() == 0
    assert "No server" in again.err


@pytest.mark.parametrize(
    ("victim", "named", "exit_code"), [("server", "SIGKILL", -9), ("engine", "EngineCore", 0)]
)
def test_kill_under_load_is_named_and_what_was_measured_is_told(
    flown: Flown, victim: str, named: str, exit_code: int
) -> None:
    ended = flown[f"killed {victim}"].result()
    panel = ended.panel
    assert ended.code == 1
    assert named in panel.err
    assert panel.of_kind("launched")[0]["log"] in panel.err
    assert named in panel.summary["failure"]
    assert panel.summary["vllm_exit_code"] == exit_code
    [leg] = panel.summary["legs"]
    assert leg["requests"] - leg["failed"] >= 3
    assert leg["acceptance"]["source"] == "requests"
    assert_recording_is_whole(ended)
    assert ended.left == []
