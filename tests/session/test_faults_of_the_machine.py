"""What a machine does to a run: frozen processes, full disks, jumping clocks, another panel, old files."""

import json
import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fakes.engine.workbench import Workbench, command_for, lives, new_record, wait_for

from specpanel.core.engine import identity, registry
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.engine.process import running_servers, start_server
from specpanel.core.errors import RecordingError
from specpanel.core.lab.store import Store
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.monitor import Monitor, ServerFacts
from specpanel.core.monitor.recording import read_recording
from specpanel.core.settings.files import write_profile
from specpanel.core.settings.paths import servers_folder
from specpanel.core.traffic.records import RequestRecord

# Run before the command line: no file may grow beyond so many bytes, as on a disk that is full.
_FULL = (
    "import resource, runpy, sys; "
    "resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); "
    "sys.argv[0] = 'specpanel'; runpy.run_module('specpanel.app', run_name='__main__')"
)


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_frozen_server_is_seen_and_ended_with_all_its_processes(bench: Workbench) -> None:
    flags = ("--requests", "2000", "--set", "engine.stop_timeout_s=1")
    panel = bench.run(*flags, script={"step_s": 0.02, "worker": "child"})
    panel.until("requests end", lambda one: one.said("request"))
    launched = panel.of_kind("launched")[0]["pid"]
    server = identity.session_members(launched, identity.start_mark(launched))
    assert len(server) == 3
    for pid in server:
        os.kill(pid, signal.SIGSTOP)
    panel.until("it is seen", lambda one: one.said("frame", '"state": "failing"'))
    panel.interrupt()
    assert panel.end() == 130
    assert panel.summary["legs"], "what was measured before is summed up"
    assert not any(map(lives, server))
    bench.assert_nothing_left()


def test_a_full_disk_under_the_recording_ends_in_a_sentence_and_keeps_what_was_written(
    bench: Workbench,
) -> None:
    recording = bench.folder / "run.ndjson"
    panel = bench.start(
        *("run", *bench.flags(), "--requests", "2000", "--record", str(recording)),
        script={"step_s": 0.02},
        program=("-c", _FULL.format(limit=40_000)),
    )
    assert panel.end() == 1
    assert f"the recording {recording} cannot be written" in panel.err
    assert len(list(read_recording(recording))) >= 1
    assert recording.stat().st_size > 35_000, "all but the line that did not fit"
    bench.assert_nothing_left()


def test_a_full_disk_under_a_recording_that_nobody_asked_for_costs_a_note(bench: Workbench) -> None:
    plain = [flag for flag in bench.flags() if flag != "--json"]
    panel = bench.start(
        *("run", *plain, "--requests", "40"),
        script={"step_s": 0.03},
        program=("-c", _FULL.format(limit=25_000)),
    )
    assert panel.end() == 0, panel.err
    assert "cannot be written: File too large; the run goes on without one" in panel.err
    assert "40 requests" in panel.out
    bench.assert_nothing_left()


def test_a_full_disk_under_the_store_keeps_what_was_stored(tmp_path: Path) -> None:
    record = RequestRecord(0, "p", "chat", 1.0, 0.0, 1.0, 1.0, 1.0, 1, 1, "stop")
    path = tmp_path / "results.sqlite"
    with Store(path) as store:
        name = store.begin("compare", "a and b", {}, {}, 0)
        run = store.add_run(name, "a", "none", None, "x", {}, 1.0)
        store.add_measurements(run, 0, {}, [record] * 10)

        def fill() -> None:
            for block in range(1, 2000):
                store.add_measurements(run, block, {}, [record] * 50)

        with no_file_beyond(path.stat().st_size + 4096), pytest.raises(RecordingError) as told:
            fill()
    assert str(path) in told.value.message
    with Store(path) as store:
        kept = list(store.measurements(name))
    assert len(kept) >= 10
    assert len(kept) % 50 == 10, "whole blocks"


def test_a_log_that_cannot_grow_costs_neither_run_nor_result(bench: Workbench) -> None:
    """A server that goes on without its log is watched on; `make faults` has what vLLM itself bears."""
    panel = bench.start(
        *("run", *bench.flags(), "--requests", "4", "--no-record"),
        script={"flood": "lines", "step_s": 0.05},
        program=("-c", _FULL.format(limit=300_000)),
    )
    assert panel.end() in (0, 1)
    assert panel.summary["legs"] or panel.summary["failure"]
    bench.assert_nothing_left()


def test_a_server_whose_log_stays_empty_is_ready_once_it_answers(bench: Workbench) -> None:
    """As with a full disk under the log, or with VLLM_LOGGING_LEVEL=ERROR: the log tells no phase."""
    panel = bench.run("--requests", "2", "--no-record", script={"mute": True})
    assert panel.end() == 0, panel.err
    assert panel.summary["legs"][0]["requests"] == 2
    bench.assert_nothing_left()


def test_a_run_without_a_place_for_its_state_file_ends_before_anything_is_asked(
    bench: Workbench,
) -> None:
    in_the_way = bench.folder / "file"
    in_the_way.touch()
    given = {"XDG_STATE_HOME": str(in_the_way / "below")}
    panel = bench.run("--no-record", script={}, environment=given)
    assert panel.end() == 2
    assert "a state file in" in panel.err
    assert "XDG_STATE_HOME" in panel.err
    assert not panel.of_kind("finding"), "nothing was looked at before"


def test_two_panels_over_one_server_see_the_same_and_stop_it_once(bench: Workbench) -> None:
    write_profile(bench.profile())
    kept = bench.start("run", "bench", "--json", "--keep-running", "--requests", "2")
    assert kept.end() == 0, kept.err
    [record] = running_servers()
    panels = [bench.start("watch", record.url, "--duration", "3", "--json") for _ in range(2)]
    for panel in panels:
        assert panel.end() == 0, panel.err
    totals = [panel.of_kind("frame")[-1]["totals"]["generation_tokens"] for panel in panels]
    assert totals[0] == totals[1] > 0
    stops = [bench.start("stop", "bench") for _ in range(2)]
    codes = sorted(panel.end() for panel in stops)
    assert codes in ([0, 0], [0, 3])
    bench.assert_nothing_left()


def test_a_server_of_an_older_specpanel_is_found_and_stopped(
    bench: Workbench, fake_facts: InterpreterFacts
) -> None:
    """Its state file has the fields of the first format, and one that is not known any more."""
    profile = bench.profile()
    record = new_record(profile, bench.folder)
    server = start_server(record, command_for(profile, fake_facts), bench.environment())
    path = registry.record_path(server.record)
    old = json.loads(path.read_text())
    for later in ("draft_tokens", "settings_table", "forced"):
        del old[later]
    path.write_text(json.dumps({**old, "schema_version": 0, "group": 12}))
    wait_for(lambda: "startup complete" in record.log.read_text(), "the start")
    panel = bench.start("ps", "--json")
    assert panel.end() == 0
    assert [line["name"] for line in panel.events] == [record.name]
    assert bench.start("stop", record.name).end() == 0
    assert server.exit_code is not None
    assert list(servers_folder().iterdir()) == []


def test_a_clock_that_jumps_moves_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything but the time of day comes from the monotonic clock."""
    feed = Feed()
    started = time.time()
    facts = ServerFacts(url="http://127.0.0.1:9", started_unix=started, pid=os.getpid())
    monitor = Monitor(feed, lambda: facts)
    for offset_s in (5.0, -86_400.0):
        monkeypatch.setattr(time, "time", lambda offset_s=offset_s: started + offset_s)
        monitor.publish()
    first, second = feed
    assert second.time_unix < first.time_unix
    assert second.elapsed_s >= first.elapsed_s
    assert (second.server.up_s or 0.0) >= 0.0
