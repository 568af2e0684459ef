"""Whole runs through the real command line, against a server that does as it is told."""

import json
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from fakes.engine.workbench import Ended, Flight, Workbench, side_by_side

from specpanel.core.engine.process import running_servers
from specpanel.core.monitor.recording import read_recording

KINDS = {
    "settings",
    *("chosen", "pathology"),
    *("note", "finding", "leg", "launched", "phase", "ready", "request", "frame", "stopped"),
    "summary",
}
PROMPT_KINDS = {"chat", "code", "maths", "story", "repetition"}
SIX = ("--requests", "6")
NONSENSE = "ValueError: There is no module or parameter named 'nonsense' in LlamaModel."
FAILING_METRICS = ("500", "empty", "truncated", "hang")
FLIGHTS: dict[str, Flight] = {
    "plain": Flight(),
    "crash": Flight(script={"crash_at": "weights", "crash_text": NONSENSE}),
    "failing": Flight(("--requests", "2000"), {"requests": "500", "requests_good": 3}),
    "reset": Flight(("--requests", "16"), {"metrics": "reset", "metrics_good": 3, "step_s": 0.05}),
    **{
        f"metrics {kind}": Flight(SIX, {"metrics": kind, "step_s": 0.05})
        for kind in FAILING_METRICS
    },
}
Flown = dict[str, "Future[Ended]"]


@pytest.fixture(scope="module")
def flown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flown]:
    with side_by_side(FLIGHTS, tmp_path_factory.mktemp("flights")) as flown:
        yield flown


def test_run_measures_stops_and_records_what_it_printed(flown: Flown) -> None:
    ended = flown["plain"].result()
    panel, recording = ended.panel, ended.recording
    assert ended.code == 0, panel.err
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
    assert len(list(read_recording(recording))) == len(panel.of_kind("frame"))
    assert ended.left == []


def test_baseline_gives_the_ratio_of_the_time_per_token(bench: Workbench) -> None:
    script = {"step_s": 0.1}  # longer than a busy machine keeps a process waiting
    panel = bench.run("--baseline", "--requests", "6", script=script)
    assert panel.end() == 0, panel.err
    assert [event["leg"] for event in panel.of_kind("leg")] == ["baseline", "drafter"]
    assert [event["drafter"] for event in panel.of_kind("leg")] == ["none", "ngram"]
    assert [leg["leg"] for leg in panel.summary["legs"]] == ["baseline", "drafter"]
    comparison = panel.summary["comparison"]
    ratio = comparison["paired"]["ratio_interval"]
    # Eleven tokens in four steps instead of eleven.
    assert ratio["low"] <= ratio["estimate"] <= ratio["high"]
    assert 0.2 < ratio["estimate"] < 0.8
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


def test_crash_in_the_start_exits_1_with_cause_log_and_nothing_left(flown: Flown) -> None:
    ended = flown["crash"].result()
    panel = ended.panel
    assert ended.code == 1
    assert "nonsense" in panel.err
    assert panel.of_kind("launched")[0]["log"] in panel.err
    assert panel.summary["legs"] == []
    assert (panel.summary["failure_code"], panel.summary["failure_setting"]) == (
        "weights",
        "target.model",
    )
    last = panel.of_kind("frame")[-1]["server"]
    assert (last["state"], last["exit_code"]) == ("exited", 1)
    assert last["detail"] in panel.summary["failure"], (
        "a replay shows the cause that the run showed"
    )
    assert ended.left == []


def test_what_vllm_chose_is_told_beside_what_was_wished_and_stands_in_the_summary(
    flown: Flown,
) -> None:
    panel = flown["plain"].result().panel
    [chosen] = panel.of_kind("chosen")
    choices = {choice["name"]: choice for choice in chosen["choices"]}
    assert choices["KV cache"]["chosen"] == "23296 tokens"
    assert choices["drafter"]["wished"] == "ngram"
    assert panel.summary["chosen"] == chosen["choices"]
    kinds = [event["kind"] for event in panel.events]
    assert kinds.index("ready") < kinds.index("chosen") < kinds.index("request")


def test_more_than_half_of_the_requests_failing_exits_1(flown: Flown) -> None:
    ended = flown["failing"].result()
    panel = ended.panel
    assert ended.code == 1
    assert "requests failed" in panel.err
    assert "HTTP 500: said by the server" in panel.err
    [leg] = panel.summary["legs"]
    assert leg["failed"] > leg["requests"] / 2
    assert leg["ended_by"] == "failures"
    assert ended.left == []


# -- metrics that fail while requests work ----------------------------------------------------------


@pytest.mark.parametrize("kind", FAILING_METRICS)
def test_run_goes_on_without_metrics_and_says_so(flown: Flown, kind: str) -> None:
    ended = flown[f"metrics {kind}"].result()
    panel = ended.panel
    assert ended.code == 0, panel.err
    frames = panel.of_kind("frame")
    loaded = [frame for frame in frames if frame["traffic"] and frame["traffic"]["finished"]]
    assert loaded
    assert {frame["scrape"]["state"] for frame in loaded} == {"failing"}
    assert all(frame["scrape"]["error"] for frame in loaded)
    assert {frame["server"]["state"] for frame in loaded} == {"serving"}
    assert all(frame["speculation"] is None for frame in loaded)
    [leg] = panel.summary["legs"]
    assert (leg["requests"], leg["failed"]) == (6, 0)
    assert leg["acceptance"]["source"] == "requests"
    assert leg["acceptance"]["counters_acceptance_length"] is None
    assert ended.left == []


def test_counters_that_start_over_begin_an_epoch_and_no_negative_rate(flown: Flown) -> None:
    ended = flown["reset"].result()
    panel = ended.panel
    assert ended.code == 0, panel.err
    frames = panel.of_kind("frame")
    epochs = [frame["epoch"] for frame in frames]
    assert epochs == sorted(epochs)
    assert epochs[-1] == 1
    rates = [f["engine"]["generation_tokens_per_s"] for f in frames if f["engine"]]
    assert all(rate is None or rate >= 0 for rate in rates)
    acceptance = panel.summary["legs"][0]["acceptance"]
    assert acceptance["acceptance_length"] == pytest.approx(1 + 7 / 4)
