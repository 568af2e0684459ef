"""Whole flights against a real vLLM: what `specpanel run` promises."""

import json

import pytest

from specpanel.core.monitor.recording import read_recording


@pytest.mark.parametrize("prompts", [24, pytest.param(80, marks=pytest.mark.long)])
def test_a_run_with_baseline_says_whether_speculation_pays(
    specpanel, port: str, prompts: int
) -> None:
    """Two real servers, the same prompts each, greedy: ratio, intervals, and the same answers."""
    asked = ("--requests", str(prompts), "--concurrency", "8")
    run = specpanel.run(
        *("run", "demo-ngram", "--baseline", "--json", *asked),
        *("--port", port, "--set", "traffic.max_tokens=24"),
        seconds=900,
    )
    assert run.code == 0, run.err
    assert all(next(iter(line)) == "schema_version" for line in run.lines)
    summary = run.summary
    baseline, drafter = summary["legs"]
    assert (baseline["leg"], drafter["leg"]) == ("baseline", "drafter")
    assert baseline["requests"] == drafter["requests"] == prompts
    failures = [line["error"] for line in run.lines if line.get("error")]
    assert (failures, baseline["failed"], drafter["failed"]) == ([], 0, 0)
    assert baseline["acceptance"] is None

    acceptance = drafter["acceptance"]
    assert acceptance["source"] == "requests"
    assert 1 <= acceptance["acceptance_length"] <= 5
    low, high = (acceptance["acceptance_length_interval"][end] for end in ("low", "high"))
    assert low <= acceptance["acceptance_length"] <= high
    rates = [position["rate"]["estimate"] for position in acceptance["positions"]]
    assert len(rates) == 4
    assert rates == sorted(rates, reverse=True)
    # What each request reports and what the server counted are two ways to the same number.
    assert acceptance["counters_acceptance_length"] == pytest.approx(
        acceptance["acceptance_length"], abs=0.15
    )

    for leg in (baseline, drafter):
        for latency in ("ttft_ms", "tpot_ms"):
            median = next(q for q in leg[latency] if q["share"] == 0.5)
            assert median["low_ms"] <= median["value_ms"] <= median["high_ms"]

    paired = summary["comparison"]["paired"]
    assert paired["pairs"] == prompts
    assert paired["ratio_interval"]["low"] <= paired["ratio"] <= paired["ratio_interval"]["high"]
    assert summary["verdict"]["word"] in ("pays", "neutral", "costs", "unknown")

    agreement = summary["comparison"]["agreement"]
    assert agreement["compared"] == prompts
    assert agreement["identical"] + len(agreement["differences"]) == prompts
    for difference in agreement["differences"]:
        # A difference is told with its place and what stood there on both sides.
        assert difference["unit"] == "token"
        assert difference["with_drafter"] != difference["without_drafter"]
    # float32 on one machine: ties that break the other way are rare.
    assert agreement["identical"] >= 0.9 * prompts


def test_the_target_drafting_for_itself_reaches_k_plus_one(specpanel, port: str) -> None:
    """A perfect drafter is accepted whole: AL 4.00 at K=3, every position 1.000."""
    run = specpanel.run(
        *("run", "demo-draft-model", "--json", "--requests", "4", "--concurrency", "1"),
        *("--port", port, "--set", "traffic.max_tokens=40", "--set", "traffic.warmup=1"),
        seconds=600,
    )
    assert run.code == 0, run.err
    acceptance = run.summary["legs"][0]["acceptance"]
    assert acceptance["acceptance_length"] == pytest.approx(4.0, abs=0.02)
    for position in acceptance["positions"]:
        assert position["rate"]["estimate"] == pytest.approx(1.0, abs=0.01)
    assert acceptance["counters_acceptance_length"] == pytest.approx(4.0, abs=0.05)


def test_a_recording_holds_what_was_printed(server) -> None:
    """The file that --record writes is the stream, line for line, and its Frames can be read."""
    printed = server.run.out.splitlines()
    assert server.recording.read_text().splitlines() == printed
    frames = list(read_recording(server.recording))
    assert frames
    states = {frame.server.state for frame in frames}
    assert {"starting", "serving"} <= states
    kinds = [json.loads(line)["kind"] for line in printed]
    phases = [json.loads(line)["phase"] for line in printed if '"kind": "phase"' in line]
    assert kinds[-1] == "summary"
    assert phases.index("config") < phases.index("weights") < phases.index("http")
