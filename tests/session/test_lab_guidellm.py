"""``specpanel run --with guidellm`` through the real command line; guidellm and the server are small ones."""

import csv
import io
import signal
from pathlib import Path

import pytest
from fakes.engine.workbench import FAKE_PYTHON, Panel, Workbench
from ports import free_port

from specpanel.app.cli.plain_lab import experiment_line, experiment_text
from specpanel.core.lab.export import exported
from specpanel.core.lab.store import Store

FAKE = Path(__file__).parents[1] / "fakes" / "guidellm"
PROFILE = """schema_version = 1
[target]
model = "{model}"
max_model_len = 1024
[engine]
python = "{python}"
port = {port}
cpu_kv_cache_gib = 1
stop_timeout_s = 2
[drafter]
method = "ngram"
k = 4
[traffic]
max_tokens = 12
"""


def profile(bench: Workbench) -> Path:
    path = bench.folder / "ngram.toml"
    text = PROFILE.format(model=bench.model, python=FAKE_PYTHON, port=free_port())
    path.write_text(text)
    return path


def sweep(bench: Workbench, *more: str | Path, way: str = "") -> Panel:
    return bench.start(
        *("run", *more, "--with", "guidellm", "--guidellm", FAKE, "--json"),
        script={"step_s": 0.02},
        environment={"FAKE_GUIDELLM": way},
    )


def test_a_sweep_puts_acceptance_beside_the_latencies_of_each_load_and_keeps_both(
    bench: Workbench,
) -> None:
    panel = sweep(bench, profile(bench), "--loads", "1,4", "-n", "7")
    assert panel.end() == 0, panel.err
    [ended] = panel.of_kind("result")
    points = ended["result"]["points"]
    assert [point["concurrency"] for point in points] == [1, 4]
    for point, asked in zip(points, (7, 8), strict=True):  # whole rounds
        # Answers of 12 tokens: the first alone, then drafts with 4, 0, 2 and 1 accepted tokens.
        assert point["acceptance_length"] == pytest.approx(2.75)
        assert point["counted_length"] == pytest.approx(2.75)
        between = point["acceptance_length_interval"]
        assert between["low"] <= 2.75 <= between["high"]
        assert (point["requests"], point["errored"]) == (asked, 0)
        assert point["acceptance_source"] == "requests"
        assert (point["drafts"], point["accepted_tokens"]) == (4 * asked, 7 * asked)
        assert point["counted_tokens"] == 12 * asked, (
            "what was sent before the first load is not in it"
        )
        assert 0 < point["itl_p50_ms"] < point["tpot_p50_ms"]
        assert point["output_tokens_per_s"] > 0
    assert not any("the counters hold" in note for note in ended["result"]["notes"])
    assert len(panel.of_kind("point")) == 2
    bench.assert_nothing_left()

    with Store() as store:
        kept = store.find("last")
        rows = list(store.measurements(kept.id))
        page, table, marked = (exported(store, kept, form) for form in ("html", "csv", "markdown"))
    assert (kept.kind, kept.state, kept.result) == ("guidellm", "done", ended["result"])
    assert [row["concurrency"] for row in rows] == [1] * 7 + [4] * 8
    assert all(row["accepted"] == [4, 0, 2, 1] and row["prompt_kind"] != "own" for row in rows)
    assert "AL 2.75" in experiment_line(kept)
    shown = experiment_text(kept)
    assert "ngram K=4 through guidellm 0.8.1" in shown
    head = next(n for n, line in enumerate(shown.splitlines()) if "counted" in line)
    assert max(map(len, shown.splitlines()[head - 1 : head + 3])) <= 80
    assert "Acceptance length by load" in page
    assert "<svg" in page
    assert len(list(csv.DictReader(io.StringIO(table)))) == 15
    assert "counted\\_length" in marked


def test_ctrl_c_ends_a_guidellm_that_will_not_and_keeps_the_loads_before(bench: Workbench) -> None:
    panel = sweep(bench, profile(bench), "--loads", "2,4", "-n", "4", way="hang")
    # With four at a time it sends one request and hangs, with a worker that is deaf to Ctrl-C.
    panel.until(
        "the request is counted",
        lambda panel: any(
            one["concurrency"] == 4 and one["done"] for one in panel.of_kind("progress")
        ),
    )
    panel.interrupt(signal.SIGINT)
    panel.interrupt(signal.SIGINT)
    assert panel.end() == 130
    [ended] = panel.of_kind("result")
    assert ended["state"] == "interrupted"
    assert [point["concurrency"] for point in ended["result"]["points"]] == [2]
    assert "AL 2.75 by the counters after 1 requests" in ended["result"]["notes"][-1]
    bench.assert_nothing_left()


def test_a_server_that_runs_is_measured_and_left_alone_also_when_guidellm_fails(
    bench: Workbench,
) -> None:
    left = bench.start(
        *("run", profile(bench), "-n", "1", "--keep-running", "--no-record", "--json"),
        script={"step_s": 0.02},
    )
    assert left.end() == 0, left.err
    url = left.of_kind("ready")[-1]["url"]
    there = ("--attach", url, "--loads", "2", "-n", "4", "--set", "traffic.max_tokens=12")
    panel = sweep(bench, *there)
    assert panel.end() == 0, panel.err
    [ended] = panel.of_kind("result")
    assert ended["result"]["drafter"] == "ngram", "specpanel started it, so it knows"
    assert ended["result"]["points"][0]["counted_length"] == pytest.approx(2.75)
    assert panel.said("launched") == 0
    failed = sweep(bench, *there, way="fail")
    assert failed.end() == 1
    assert "guidellm ended with status 1: ValueError: the backend is out of sorts" in failed.err
    with Store() as store:
        assert store.find("last").state == "failed"
    assert bench.start("stop", "ngram").end() == 0, "it was still there"
    bench.assert_nothing_left()
