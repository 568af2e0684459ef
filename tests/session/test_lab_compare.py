"""``specpanel compare`` through the real command line, against a server that does as it is told."""

import signal
from pathlib import Path

import pytest
from fakes.engine.workbench import FAKE_PYTHON, Panel, Workbench
from ports import free_port

from specpanel.core.lab.store import INTERRUPTED, Store

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
{drafter}
[traffic]
max_tokens = 12
warmup = 1
concurrency = 2
"""
DRAFTERS = {"plain": 'method = "none"', "ngram": 'method = "ngram"\nk = 4'}


def profiles(bench: Workbench) -> dict[str, Path]:
    port = free_port()
    found = {}
    for name, drafter in DRAFTERS.items():
        found[name] = bench.folder / f"{name}.toml"
        found[name].write_text(
            PROFILE.format(model=bench.model, python=FAKE_PYTHON, port=port, drafter=drafter)
        )
    return found


def compare(bench: Workbench, *more: str, script: dict[str, object] | None = None) -> Panel:
    files = profiles(bench)
    return bench.start(
        *("compare", files["plain"], files["ngram"], "--json", "--block", "3", *more),
        script={"step_s": 0.02, **(script or {})},
    )


@pytest.mark.parametrize(
    "arrangement", ["side by side", pytest.param("one at a time", marks=pytest.mark.long)]
)
def test_compare_tells_which_is_faster_and_keeps_it(bench: Workbench, arrangement: str) -> None:
    more = ("--apart",) if arrangement == "one at a time" else ()
    panel = compare(bench, "--requests", "21", "--precision", "0.1", *more)
    assert panel.end() == 0, panel.err
    [ended] = panel.of_kind("result")
    result = ended["result"]
    assert result["arrangement"].startswith(arrangement)
    assert result["stopped"] == "out of requests"
    [pairing] = result["pairings"]
    tpot, throughput, _, length = pairing["overall"]
    # Eleven tokens in four steps instead of eleven.
    assert 0.2 < tpot["value"] < 0.7
    assert tpot["interval"]["low"] <= tpot["value"] <= tpot["interval"]["high"]
    assert (tpot["shown"], pairing["word"]) == ("better", "pays")
    assert throughput["shown"] in ("better", "no difference shown"), "connections cost time, too"
    assert length["absent"] == "one of the two drafts nothing"
    assert {change["setting"] for change in pairing["differs"]} >= {"drafter.method", "drafter.k"}
    assert set(pairing["by_class"]) == {"chat", "code", "maths", "story", "repetition"}
    plain, drafted = result["arms"]
    assert plain["acceptance_length"] is None
    assert drafted["acceptance_length"] > 2
    assert plain["tokens_a_step"] == 1
    assert all(change["after"] for change in pairing["differs"])
    assert plain["cost"]["rejected_tokens_per_s"] is None
    assert drafted["cost"]["rejected_tokens_per_s"] > 0
    assert drafted["cost"]["joules_per_1000_tokens"] is None
    assert result["starts"] == 2
    assert len(panel.of_kind("launched")) == 4
    low, high = tpot["interval"]["low"], tpot["interval"]["high"]
    assert pairing["by_start"]
    assert all(low <= ratio <= high for ratio in pairing["by_start"])

    with Store() as store:
        found = store.find(ended["id"])
        rows = list(store.measurements(found.id))
    assert found.state == "done"
    assert found.result == result
    each = 21 if arrangement == "side by side" else 2 * 5 * 3
    assert sum(row["arm"] == "ngram" for row in rows) == each
    shown = bench.start("results", "show", "last")
    assert shown.end() == 0
    assert "ngram is faster" in shown.out
    bench.assert_nothing_left()


def test_ctrl_c_ends_a_comparison_with_what_it_has_and_leaves_no_server(bench: Workbench) -> None:
    panel = compare(bench, "--minutes", "5", "--precision", "0.1", script={"step_s": 0.02})
    panel.until("six blocks are measured", lambda panel: panel.said("block") >= 6)
    panel.interrupt(signal.SIGINT)
    assert panel.end() == 130
    [ended] = panel.of_kind("result")
    assert ended["state"] == INTERRUPTED
    assert ended["result"]["blocks"] >= 6
    assert ended["result"]["stopped"] == "interrupted"
    with Store() as store:
        assert store.find("last").state == INTERRUPTED
    bench.assert_nothing_left()


def test_a_server_that_falls_ends_a_comparison_with_its_cause(bench: Workbench) -> None:
    panel = compare(bench, "--minutes", "5", script={"die_after_requests": 8, "die": "engine"})
    assert panel.end() == 1
    [ended] = panel.of_kind("result")
    assert ended["state"] == "failed"
    assert ended["conclusion"]
    assert "Traceback" not in panel.err
    bench.assert_nothing_left()


def test_one_profile_and_different_targets_are_refused_before_anything_starts(
    bench: Workbench,
) -> None:
    files = profiles(bench)
    alone = bench.start("compare", files["plain"])
    other = bench.folder / "other.toml"
    other.write_text(files["ngram"].read_text().replace(str(bench.model), "some/other"))
    two = bench.start("compare", files["plain"], other)
    assert alone.end() == 2
    assert "two profiles" in alone.err
    assert two.end() == 2
    assert "different targets" in two.err
    listing = bench.start("results", "--json")
    assert listing.end() == 0
    assert listing.out == ""


def test_results_of_a_newcomer_say_how_to_get_some(bench: Workbench) -> None:
    listing = bench.start("results")
    missing = bench.start("results", "show", "last")
    assert listing.end() == 0
    assert "no results yet" in listing.err
    assert missing.end() == 2


def test_a_run_with_a_baseline_stands_beside_the_experiments_and_judges_the_next(
    bench: Workbench,
) -> None:
    files = profiles(bench)
    more = ("-n", "14", "-c", "2", "--no-record", "--json")
    first = bench.start("run", files["ngram"], "--baseline", *more, script={"step_s": 0.02})
    assert first.end() == 0, first.err
    [summary] = first.of_kind("summary")
    assert summary["verdict"]["source"] == "baseline"
    with Store() as store:
        found = store.find("last")
        rows = list(store.measurements(found.id))
        assert [run.arm for run in store.runs(found.id)] == ["baseline", "drafter"]
    assert (found.kind, found.state, found.conclusion) == (
        *("run", "done"),
        summary["verdict"]["sentence"],
    )
    assert len(rows) == 28

    later = bench.start("run", files["ngram"], *more, script={"step_s": 0.02})
    assert later.end() == 0, later.err
    verdict = later.of_kind("summary")[0]["verdict"]
    assert (verdict["source"], verdict["experiment"]) == ("measured", found.id)
    assert verdict["word"] == summary["verdict"]["word"] == "pays"

    nowhere = bench.folder / "new" / "page.html"
    refused = bench.start("results", "export", found.id, "-f", "html", "-o", nowhere)
    assert refused.end() == 2
    assert f"there is no folder {nowhere.parent}" in refused.err
    assert not nowhere.parent.exists()
    asked = bench.start("results", "delete", found.id)
    assert asked.end() == 2
    assert bench.start("results", "delete", found.id, "--yes").end() == 0
    with Store() as store:
        assert [one.kind for one in store.experiments()] == ["run"]
    bench.assert_nothing_left()
