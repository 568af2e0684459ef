"""The store keeps what was measured, also of an experiment that was killed, and from version to version."""

import csv
import io
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from specpanel.core.errors import ConfigurationError, RecordingError
from specpanel.core.lab.export import exported
from specpanel.core.lab.schema import MIGRATIONS
from specpanel.core.lab.store import ABANDONED, DONE, RUNNING, Store, store_path
from specpanel.core.traffic.records import RequestRecord

AROUND = {"vllm_version": "0.32.0", "cores": 2}


def record(prompt: str, **more: object) -> RequestRecord:
    given = {
        "index": 0,
        "prompt_id": prompt,
        "kind": "chat",
        "started_unix": 1.0,
        "started_s": 0.0,
        "ttft_ms": 5.0,
        "tpot_ms": 2.0,
        "end_to_end_ms": 25.0,
        "prompt_tokens": 9,
        "output_tokens": 11,
        "finish_reason": "length",
        "drafted": (4, 4),
        "accepted": (2, 0),
    }
    return RequestRecord(**{**given, **more})  # type: ignore[arg-type]


def filled(store: Store) -> str:
    name = store.begin("compare", "a · b", {"rounds": 2}, AROUND, 7)
    run = store.add_run(name, "a", "ngram", 4, "f00", {"name": "a"}, 12.5)
    store.add_measurements(run, 0, {"concurrency": 4}, [record("p1"), record("p2", error="cut")])
    return name


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    with Store(tmp_path / "r.sqlite") as store:
        name = filled(store)
        store.finish(name, DONE, "b is faster", {"value": 0.5})
    with Store(tmp_path / "r.sqlite") as store:
        found = store.find("last")
        assert (found.id, found.state, found.conclusion) == (name, DONE, "b is faster")
        assert found.result == {"value": 0.5}
        assert found.environment == AROUND
        assert (found.seed, found.settings) == (7, {"rounds": 2})
        [run] = store.runs(name)
        assert (run.arm, run.drafter, run.draft_tokens, run.launch) == ("a", "ngram", 4, "f00")
        first, second = store.measurements(name)
        assert (first["prompt_id"], first["concurrency"], first["accepted"]) == ("p1", 4, [2, 0])
        assert (second["error"], second["arm"]) == ("cut", "a")


def test_an_experiment_whose_writer_was_killed_is_abandoned_and_keeps_its_rows(
    tmp_path: Path,
) -> None:
    path = tmp_path / "r.sqlite"
    code = (
        "import os, sys; from pathlib import Path\n"
        "from specpanel.core.lab.store import Store\n"
        "store = Store(Path(sys.argv[1]))\n"
        "name = store.begin('compare', 't', {}, {}, 0)\n"
        "store.add_run(name, 'a', 'none', None, 'x', {}, 1.0)\n"
        "os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, path]).returncode == 9
    with Store(path) as store:
        mine = filled(store)
        newest, killed = store.experiments()
        assert (newest.id, newest.state) == (mine, RUNNING)
        assert killed.state == ABANDONED
        assert len(store.runs(killed.id)) == 1


def test_a_reader_sees_rows_while_a_writer_is_open(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with Store(path) as writer, Store(path) as reader:
        name = filled(writer)
        assert reader.find(name).state == RUNNING
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_store_of_the_first_version_is_brought_to_the_last_with_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with Store(path, migrations=MIGRATIONS[:1]) as store:
        name = filled(store)
    with Store(path) as store:
        assert store.find(name).title == "a · b"
        assert len(list(store.measurements(name))) == 2
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        indices = {
            row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type='index'")
        }
    assert "runs_by_launch" in indices


def test_a_migration_that_fails_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with Store(path) as store:
        filled(store)
    broken = (*MIGRATIONS, "CREATE TABLE more (id INTEGER); CREATE NONSENSE")
    with pytest.raises(RecordingError):
        Store(path, migrations=broken)
    with Store(path) as store:
        assert len(store.experiments()) == 1
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM sqlite_master WHERE name='more'").fetchone() == (0,)


def test_a_newer_store_and_a_file_that_is_none_are_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with Store(path):
        pass
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(RecordingError, match=r"newer specpanel.*format 99"):
        Store(path)
    other = tmp_path / "other.sqlite"
    other.write_bytes(b"no database at all" * 100)
    with pytest.raises(RecordingError, match="cannot be read"):
        Store(other)


def test_a_name_may_be_shortened_while_it_is_clear(tmp_path: Path) -> None:
    with Store(tmp_path / "r.sqlite") as store:
        first, second = filled(store), filled(store)
        assert store.find(second).id == second
        with pytest.raises(ConfigurationError, match="several"):
            store.find("compare-")
        with pytest.raises(ConfigurationError, match="no result"):
            store.find("parity-")
        with pytest.raises(ConfigurationError, match="no result"):
            store.find("")
        assert {one.id for one in store.experiments("compare")} == {first, second}
        assert store.experiments("parity") == ()


def test_exports_hold_every_request_and_nothing_that_acts(tmp_path: Path) -> None:
    with Store(tmp_path / "r.sqlite") as store:
        name = store.begin("compare", "a|b <script>", {}, AROUND, 0)
        run = store.add_run(name, "=cmd()", "ngram", 4, "f", {}, 1.0)
        store.add_measurements(run, 0, {"group": 1}, [record("p1"), record("@p2")])
        store.finish(name, DONE, "*done*", {"arms": [], "pairings": []})
        found = store.find(name)
        table = json.loads(exported(store, found, "json"))
        rows = list(csv.DictReader(io.StringIO(exported(store, found, "csv"))))
        text = exported(store, found, "markdown")
        with pytest.raises(ConfigurationError, match="no format"):
            exported(store, found, "pdf")
    assert next(iter(table)) == "schema_version"
    assert len(table["measurements"]) == len(rows) == 2
    assert json.loads(rows[0]["accepted"]) == [2, 0]
    assert rows[1]["prompt_id"] == "'@p2"
    assert rows[0]["arm"] == "'=cmd()"
    assert r"a\|b \<script\>" in text
    assert r"\*done\*" in text


def test_the_store_lies_in_the_data_folder(own_folders: Path) -> None:
    assert store_path() == own_folders / "data" / "specpanel" / "results.sqlite"


def test_what_is_told_on_the_way_is_read_by_another_and_goes_with_the_experiment(
    tmp_path: Path,
) -> None:
    with Store(tmp_path / "r.sqlite") as store, Store(tmp_path / "r.sqlite") as onlooker:
        name = filled(store)
        store.add_progress(name, {"kind": "block", "block": 1})
        assert onlooker.progress(name) == ({"kind": "block", "block": 1},)
        with pytest.raises(ConfigurationError, match="running"):
            onlooker.delete(name)
        store.finish(name, DONE, "", None)
        onlooker.delete(name)
        assert store.experiments() == ()
        assert (list(store.measurements(name)), store.progress(name)) == ([], ())
