"""Runs record themselves; ``specpanel runs`` lists, shows, compares and deletes them."""

import json
import os
import time
from pathlib import Path

import pytest
from fakes.engine.workbench import Workbench

from specpanel.core.session.history import past_runs, recordings_folder


def test_every_run_records_itself_and_is_listed_shown_compared_and_deleted(
    bench: Workbench,
) -> None:
    first, second = bench.run(), bench.run("--set", "traffic.max_tokens=10")
    assert (first.end(), second.end()) == (0, 0), first.err + second.err
    runs = past_runs()
    assert len(runs) == 2
    assert {run.ended for run in runs} == {"done"}
    for run in runs:
        assert run.figures is not None
        assert run.settings is not None
        assert run.settings.drafter.method == "ngram"
        # As it was told on standard output: nothing is left out, nothing is added.
        assert run.path.read_text() in (first.out, second.out)

    a, b = sorted(run.id for run in runs)
    listing, table = bench.start("runs"), bench.start("runs", "--json")
    shown, compared = bench.start("runs", "show", a), bench.start("runs", "compare", a, b)
    assert [panel.end() for panel in (listing, table, shown, compared)] == [0, 0, 0, 0]
    assert a in listing.out
    assert b in listing.out
    assert "2 runs" in listing.err
    assert {event["id"] for event in table.of_kind("run")} == {a, b}
    assert "time per output token" in shown.out
    assert "TPOT, same prompts" in compared.out
    assert "traffic.max_tokens: " in compared.out

    for run in runs:
        aged = time.time() - 60
        os.utime(run.path, (aged, aged))
    asked, deleted = bench.start("runs", "delete", a), bench.start("runs", "delete", b, "--yes")
    assert asked.end() == 2, "without a terminal nobody can answer"
    assert "--yes" in asked.err
    assert deleted.end() == 0, deleted.err
    assert [run.id for run in past_runs()] == [a]


def test_a_folder_that_cannot_be_written_costs_a_note_and_not_the_run(
    bench: Workbench, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    panel = bench.run(environment={"XDG_DATA_HOME": str(tmp_path / "file")})
    assert panel.end() == 0, panel.err
    assert any("goes on without" in note["text"] for note in panel.of_kind("note"))
    assert panel.summary["failure"] is None


def test_no_record_leaves_nothing_and_contradicts_record(bench: Workbench) -> None:
    quiet, both = bench.run("--no-record"), bench.run("--no-record", "--record", "x.ndjson")
    assert quiet.end() == 0, quiet.err
    assert both.end() == 2
    assert "--no-record" in both.err
    assert not recordings_folder().exists()


def test_a_recording_that_was_asked_for_lies_there_and_nowhere_else(bench: Workbench) -> None:
    panel = bench.run("--record", "mine.ndjson")
    assert panel.end() == 0, panel.err
    assert (bench.folder / "mine.ndjson").read_text() == panel.out
    assert not recordings_folder().exists()
    shown = bench.start("runs", "show", "mine.ndjson", "--json")
    assert shown.end() == 0
    assert json.loads(shown.out)["ended"] == "done"
    outside = bench.start("runs", "delete", "mine.ndjson", "--yes")
    assert outside.end() == 2
    assert (bench.folder / "mine.ndjson").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("runs",), 0, "No run is recorded yet"),
        (("runs", "--json"), 0, ""),
        (("runs", "show", "nope"), 2, "nope"),
        (("runs", "compare", "nope", "nope"), 2, "nope"),
        (("runs", "delete", "nope", "--yes"), 2, "nope"),
        (("runs", "show", "broken"), 1, ""),
        (("runs", "compare", "broken", "broken"), 1, "cannot be compared"),
    ],
)
def test_what_cannot_be_done_is_said_with_the_usual_exit_status(
    bench: Workbench, arguments: tuple[str, ...], code: int, word: str
) -> None:
    if "broken" in arguments:
        recordings_folder().mkdir(parents=True)
        (recordings_folder() / "broken.ndjson").write_text("nonsense\n")
    panel = bench.start(*arguments)
    assert panel.end() == code, panel.err
    assert word in panel.err
