"""``specpanel breakeven`` and ``tune`` through the real command line, against a small server.

The server's steps take the same time whatever is drafted, so what is needed is 1 at every K; figures of a
real target are in tests/engine.
"""

import signal
import tempfile
import tomllib
from pathlib import Path

import pytest
from fakes.engine.workbench import FAKE_PYTHON, Panel, Workbench
from ports import free_port

from specpanel.core.lab.store import INTERRUPTED, Store
from specpanel.core.settings.paths import profiles_folder

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
max_tokens = 20
"""


@pytest.fixture
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def lab(bench: Workbench, command: str, *more: str) -> Panel:
    file = bench.folder / "bench.toml"
    file.write_text(PROFILE.format(model=bench.model, python=FAKE_PYTHON, port=free_port()))
    return bench.start(command, file, "--json", *more, script={"step_s": 0.01})


def test_breakeven_prices_every_load_and_k_and_the_drafter_and_leaves_nothing(
    bench: Workbench, own_temporary_folder: Path
) -> None:
    panel = lab(bench, "breakeven", "--loads", "1,2,4", "--ks", "2,4", "--blocks", "5")
    assert panel.end() == 0, panel.err
    [ended] = panel.of_kind("result")
    result = ended["result"]
    points = {(point["concurrency"], point["k"]): point for point in result["points"]}
    assert set(points) == {(load, k) for load in (1, 2, 4) for k in (2, 4)}
    for point in points.values():
        between = point["required_interval"]
        assert between["low"] <= point["required_length"] <= between["high"]
        # Steps cost the same with drafts and without.
        assert 0.5 < point["required_length"] < 2, "on a busy machine, too"
    # Four steps accept 4, 0, 2 and 1 of four; of two, 2, 0, 2 and 1.
    assert points[1, 4]["measured_length"] > points[1, 2]["measured_length"] > 1.5
    assert [held["concurrency"] for held in result["holdouts"]] == [2, 2]
    assert [point["concurrency"] for point in result["real"]] == [1, 2, 4]
    for point in result["real"]:
        assert point["length"] == pytest.approx(1 + 7 / 4, abs=0.35)
        assert point["tpot_ratio"] < 0.8
        assert len(point["conditional"]) == 4
    assert "speculation gains" in ended["conclusion"]
    assert list(own_temporary_folder.iterdir()) == []
    with Store() as store:
        rows = list(store.measurements(ended["id"]))
    assert {row["k"] for row in rows} == {0, 2, 4, None}
    bench.assert_nothing_left()


def test_ctrl_c_keeps_the_loads_that_were_measured(
    bench: Workbench, own_temporary_folder: Path
) -> None:
    panel = lab(bench, "breakeven", "--loads", "1,4", "--ks", "2", "--blocks", "30", "--no-drafter")
    panel.until("a load is measured", lambda panel: panel.said("point") >= 1)
    panel.interrupt(signal.SIGINT)
    assert panel.end() == 130
    with Store() as store:
        found = store.find("last")
    assert found.state == INTERRUPTED
    assert found.result is not None
    assert [point["concurrency"] for point in found.result["points"]] == [1]
    assert list(own_temporary_folder.iterdir()) == []
    bench.assert_nothing_left()


def test_a_list_of_loads_that_is_none_is_refused(bench: Workbench) -> None:
    panel = lab(bench, "breakeven", "--loads", "1,x")
    assert panel.end() == 2
    assert "whole numbers" in panel.err


def test_tune_refuses_a_name_that_is_taken_before_it_measures(
    bench: Workbench, own_folders: Path
) -> None:
    taken = profiles_folder() / "bench-tuned.toml"
    taken.parent.mkdir(parents=True)
    taken.write_text("schema_version = 1\n")
    panel = lab(bench, "tune", "--loads", "1,4", "--ks", "2,4")
    assert panel.end() == 2
    assert "already a profile called bench-tuned" in panel.err
    assert panel.of_kind("experiment") == []


@pytest.mark.long
def test_tune_writes_a_profile_with_its_evidence_and_compares_it(
    bench: Workbench, own_folders: Path
) -> None:
    panel = lab(
        bench,
        *("tune", "--loads", "1,4", "--ks", "2,4", "--blocks", "5", "--verify", "4"),
        *("--minutes", "0.1", "--write", "quick"),
    )
    assert panel.end() == 0, panel.err
    [tuned] = panel.of_kind("tuned")
    curve, comparison = panel.of_kind("result")
    assert tuned["experiment"] == curve["id"]
    table = tomllib.loads(Path(tuned["profile"]).read_text())
    assert Path(tuned["profile"]).name == "quick.toml"
    assert table["drafter"]["k_by_batch_size"] == tuned["words"]
    assert curve["id"] in table["description"]
    assert comparison["experiment"] == "compare"
    assert comparison["result"]["concurrency"] == 4
    assert comparison["result"]["pairings"][0]["b"] == "quick"
    again = lab(bench, "tune", "--from", curve["id"], "--no-verify", "--write", "quick")
    assert again.end() == 2
    assert "already a profile" in again.err
    bench.assert_nothing_left()
