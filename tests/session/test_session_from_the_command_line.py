"""Whole runs through the real command line, against a server that does as it is told."""

import json
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fakes.engine.workbench import Panel, Workbench

from specpanel.core.engine.process import running_servers
from specpanel.core.engine.registry import records
from specpanel.core.monitor.recording import read_lines, read_recording

KINDS = {
    *("note", "finding", "leg", "launched", "phase", "ready", "request", "frame", "stopped"),
    "summary",
}
PROMPT_KINDS = {"chat", "code", "maths", "story", "repetition"}
LONG = ("--requests", "2000", "--set", "traffic.concurrency=2")


def requests_done(count: int) -> Any:
    return lambda panel: panel.said("request") >= count


def phase_reached(phase: str) -> Any:
    return lambda panel: panel.said("phase", f'"phase": "{phase}"')


def assert_recording_is_whole(panel: Panel, recording: Path) -> None:
    assert [json.dumps(line) for line in read_lines(recording)] == [
        json.dumps(event) for event in panel.events
    ]


def test_run_measures_stops_and_records_what_it_printed(bench: Workbench) -> None:
    recording = bench.folder / "run.ndjson"
    panel = bench.run("--record", recording)
    assert panel.end() == 0, panel.err
    assert recording.read_text() == panel.out
    for line in panel.out.splitlines():
        assert list(json.loads(line))[:2] == ["schema_version", "kind"]
    assert {event["kind"] for event in panel.events} <= KINDS
    assert [event["kind"] for event in panel.events[-2:]] == ["stopped", "summary"]
    assert len(panel.of_kind("request")) == 5, "four, and one to warm up"
    assert {event["prompt_kind"] for event in panel.of_kind("request")} <= PROMPT_KINDS
    [leg] = panel.summary["legs"]
    assert (leg["requests"], leg["failed"], leg["output_tokens"]) == (4, 0, 48)
    acceptance = leg["acceptance"]
    # Twelve tokens in five steps of which the first drafts nothing: 4, 0, 2 and 1 of 4 are accepted.
    assert acceptance["source"] == "requests"
    assert acceptance["acceptance_length"] == pytest.approx(1 + 7 / 4)
    assert acceptance["counters_acceptance_length"] == pytest.approx(1 + 7 / 4)
    rates = [position["rate"]["estimate"] for position in acceptance["positions"]]
    assert rates == pytest.approx([3 / 4, 2 / 4, 1 / 4, 1 / 4])
    assert panel.summary["verdict"]["word"] == "unknown"
    assert panel.err == ""
    assert list(read_recording(recording))
    bench.assert_nothing_left()


def test_baseline_gives_the_ratio_of_the_time_per_token(bench: Workbench) -> None:
    script = {"step_s": 0.02}
    panel = bench.run("--baseline", "--requests", "6", script=script)
    assert panel.end() == 0, panel.err
    assert [event["leg"] for event in panel.of_kind("leg")] == ["baseline", "drafter"]
    assert [event["drafter"] for event in panel.of_kind("leg")] == ["none", "ngram"]
    assert [leg["leg"] for leg in panel.summary["legs"]] == ["baseline", "drafter"]
    comparison = panel.summary["comparison"]
    ratio = comparison["paired"]["ratio_interval"]
    # Eleven tokens in four steps instead of eleven.
    assert ratio["low"] <= ratio["estimate"] <= ratio["high"]
    assert 0.2 < ratio["estimate"] < 0.7
    assert comparison["paired"]["pairs"] == 6
    assert comparison["agreement"] is not None
    assert panel.summary["verdict"]["word"] == "pays"
    bench.assert_nothing_left()


def test_kept_server_is_listed_measured_again_and_stopped(bench: Workbench) -> None:
    panel = bench.run("--keep-running")
    assert panel.end() == 0, panel.err
    [launched] = panel.of_kind("launched")
    assert not panel.of_kind("stopped")
    assert any("goes on at" in note["text"] for note in panel.of_kind("note"))

    listing = bench.start("ps", "--json")
    attached = bench.start("run", "--attach", launched["url"], "--requests", "3", "--json")
    assert listing.end() == 0
    [server] = listing.of_kind("server")
    assert (server["pid"], server["url"]) == (launched["pid"], launched["url"])
    assert attached.end() == 0, attached.err
    assert attached.summary["legs"][0]["requests"] == 3
    assert attached.summary["vllm_version"] == "0.32.0"
    assert attached.summary["legs"][0]["acceptance"]["source"] == "requests"
    assert not attached.of_kind("stopped"), "another's server is left alone"
    assert len(running_servers()) == 1

    stop = bench.start("stop", launched["name"])
    assert stop.end() == 0, stop.err
    assert f"stopped {launched['name']}" in stop.out
    bench.assert_nothing_left()


# -- interrupted ------------------------------------------------------------------------------------

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# What the server does, what is asked for besides, and how one sees that the phase is reached.
PHASES: dict[str, tuple[dict[str, Any], tuple[str, ...], Any]] = {
    "preflight": ({}, (), lambda panel: (panel.out_path.parent / "gate.asked").exists()),
    "starting": ({"silent_after": "config"}, (), phase_reached("config")),
    "loading": ({"gate_after": "weights", "gate": "/never"}, (), phase_reached("weights")),
    "traffic": ({}, LONG, requests_done(5)),
    "stopping": (
        {"hang_on_sigterm": True},
        ("--set", "engine.stop_timeout_s=1.5"),
        lambda panel: (
            "SIGTERM is ignored" in Path(panel.of_kind("launched")[0]["log"]).read_text()
            if panel.of_kind("launched")
            else False
        ),
    ),
}


@dataclass(frozen=True)
class Ended:
    """A run that got a signal, once it has ended, and what was left of it then."""

    panel: Panel
    recording: Path
    code: int
    left: list[int]


def interrupted_run(folder: Path, phase: str, sign: signal.Signals) -> Ended:
    """One run that gets ``sign`` in ``phase``."""
    script, more, reached = PHASES[phase]
    bench = Workbench(folder)
    recording, gate = folder / "run.ndjson", folder / "gate"
    held = {"FAKE_VLLM_GATE": str(gate)} if phase == "preflight" else {}
    try:
        panel = bench.run("--record", recording, *more, script=script, environment=held)
        panel.until(phase, reached)
        panel.interrupt(sign)
        gate.touch()
        return Ended(panel, recording, panel.end(), bench.left())
    finally:
        bench.clear()


@pytest.fixture(scope="module")
def interrupted(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[tuple[str, str], "Future[Ended]"]]:
    """A run for every phase and signal, some side by side: most of a run is waiting."""
    folder = tmp_path_factory.mktemp("interrupted")
    with ThreadPoolExecutor(4) as pool:
        yield {
            (phase, sign.name): pool.submit(
                interrupted_run, folder / f"{phase}-{sign.name}", phase, sign
            )
            for phase in PHASES
            for sign in SIGNALS
        }
    assert records() == []


@pytest.mark.parametrize("sign", [sign.name for sign in SIGNALS])
@pytest.mark.parametrize("phase", PHASES)
def test_signal_ends_a_run_in_order(
    interrupted: dict[tuple[str, str], "Future[Ended]"], phase: str, sign: str
) -> None:
    ended = interrupted[phase, sign].result()
    panel = ended.panel
    assert ended.code == 130, panel.err
    assert panel.summary["interrupted"]
    assert panel.summary["failure"] is None
    assert_recording_is_whole(panel, ended.recording)
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


def test_server_outlives_a_killed_panel_and_is_listed_and_ended(bench: Workbench) -> None:
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


@pytest.mark.parametrize("victim", ["server", "engine"])
def test_kill_under_load_is_named_and_what_was_measured_is_told(
    bench: Workbench, victim: str
) -> None:
    recording = bench.folder / "run.ndjson"
    more = {"engine_outlives": True} if victim == "server" else {"fall_s": 1.0}
    script = {"die_after_requests": 6, "die": victim, **more}
    panel = bench.run(*LONG, "--record", recording, script=script)
    assert panel.end() == 1
    named = "SIGKILL" if victim == "server" else "EngineCore"
    assert named in panel.err
    assert panel.of_kind("launched")[0]["log"] in panel.err
    assert named in panel.summary["failure"]
    assert panel.summary["vllm_exit_code"] == (-9 if victim == "server" else 0)
    [leg] = panel.summary["legs"]
    assert leg["requests"] - leg["failed"] >= 3
    assert leg["acceptance"]["source"] == "requests"
    assert_recording_is_whole(panel, recording)
    bench.assert_nothing_left()


def test_crash_in_the_start_exits_1_with_cause_log_and_nothing_left(bench: Workbench) -> None:
    text = "ValueError: There is no module or parameter named 'nonsense' in LlamaModel."
    panel = bench.run(script={"crash_at": "weights", "crash_text": text})
    assert panel.end() == 1
    assert "nonsense" in panel.err
    assert panel.of_kind("launched")[0]["log"] in panel.err
    assert panel.summary["legs"] == []
    bench.assert_nothing_left()


def test_more_than_half_of_the_requests_failing_exits_1(bench: Workbench) -> None:
    panel = bench.run(*LONG, script={"requests": "500", "requests_good": 3})
    assert panel.end() == 1
    assert "requests failed" in panel.err
    assert "HTTP 500: said by the server" in panel.err
    [leg] = panel.summary["legs"]
    assert leg["failed"] > leg["requests"] / 2
    assert leg["ended_by"] == "failures"
    bench.assert_nothing_left()


# -- metrics that fail while requests work ----------------------------------------------------------


def test_run_goes_on_without_metrics_and_says_so(bench: Workbench) -> None:
    """Four ways to fail, each met by a panel of its own; the panels run side by side."""
    panels = {
        metrics: bench.run("--requests", "6", script={"metrics": metrics, "step_s": 0.05})
        for metrics in ("500", "empty", "truncated", "hang")
    }
    for metrics, panel in panels.items():
        assert panel.end() == 0, (metrics, panel.err)
        frames = panel.of_kind("frame")
        loaded = [frame for frame in frames if frame["traffic"] and frame["traffic"]["finished"]]
        assert loaded, metrics
        assert {frame["scrape"]["state"] for frame in loaded} == {"failing"}, metrics
        assert all(frame["scrape"]["error"] for frame in loaded), metrics
        assert {frame["server"]["state"] for frame in loaded} == {"serving"}, metrics
        assert all(frame["speculation"] is None for frame in loaded), metrics
        [leg] = panel.summary["legs"]
        assert (leg["requests"], leg["failed"]) == (6, 0)
        assert leg["acceptance"]["source"] == "requests"
        assert leg["acceptance"]["counters_acceptance_length"] is None
    bench.assert_nothing_left()


def test_counters_that_start_over_begin_an_epoch_and_no_negative_rate(bench: Workbench) -> None:
    script = {"metrics": "reset", "metrics_good": 3, "step_s": 0.05}
    panel = bench.run("--requests", "12", script=script)
    assert panel.end() == 0, panel.err
    frames = panel.of_kind("frame")
    epochs = [frame["epoch"] for frame in frames]
    assert epochs == sorted(epochs)
    assert epochs[-1] == 1
    rates = [f["engine"]["generation_tokens_per_s"] for f in frames if f["engine"]]
    assert all(rate is None or rate >= 0 for rate in rates)
    assert panel.summary["legs"][0]["acceptance"]["acceptance_length"] == pytest.approx(1 + 7 / 4)
    bench.assert_nothing_left()
