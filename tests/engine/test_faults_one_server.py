"""One real vLLM, and what happens to those that watch it: frozen, full, locked out, old, two at a time."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from engine.flight import (
    LATE_S,
    MOST_LOST_S,
    Watch,
    any_alive,
    engine_core_among,
    kill,
    listed,
)
from engine.small_disk import small_disk
from ports import free_port

from specpanel.core.engine import identity
from specpanel.core.monitor.recording import read_recording

pytestmark = pytest.mark.faults

XDG = ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
# The time of day jumps by a day, there and back, once a second; nothing else of the process changes.
JUMPING = """
import itertools, runpy, sys, time
real, began = time.time, time.monotonic()
time.time = lambda: real() + (0, 86_400, -86_400)[int(time.monotonic() - began) % 3]
sys.argv[0] = "specpanel"
runpy.run_module("specpanel.app", run_name="__main__")
"""
Shown = Callable[..., None]


@dataclass(frozen=True)
class Served:
    """The server of this file, and the command line that knows it."""

    specpanel: Any
    name: str
    url: str
    pid: int
    id: str

    def pids(self) -> list[int]:
        return identity.session_members(self.pid, identity.start_mark(self.pid))

    def watch(self, folder: Path, *more: str, recording: Path | None = None) -> Watch:
        return Watch.start(self.specpanel, folder, ("watch", self.url, *more), recording)

    def traffic(self, folder: Path) -> Watch:
        """Requests without an end, sent by a run that started nothing."""
        flags = ("--requests", "100000", "--set", "traffic.max_tokens=48")
        return Watch.start(self.specpanel, folder, ("run", "--attach", self.url, *flags))

    def elsewhere(self, **variables: str) -> Any:
        """The command line with other folders."""
        return type(self.specpanel)({**self.specpanel.environment, **variables})


@pytest.fixture(scope="module")
def served(specpanel: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of its own, in folders of its own: other tests look that theirs are empty."""
    home = tmp_path_factory.mktemp("one_server")
    own = type(specpanel)(
        {**specpanel.environment, **{name: str(home / name.lower()) for name in XDG}}
    )
    flags = ("--requests", "2", "--keep-running", "--no-record", "--set", "traffic.max_tokens=16")
    run = own.run("run", "demo-ngram", "--port", str(free_port()), *flags, seconds=300)
    assert run.code == 0, run.err
    [found] = listed(own)
    yield Served(own, found["name"], found["url"], found["pid"], found["id"])
    own.run("stop", "--all", "--timeout", "3")
    assert identity.members(found["id"], found["pid"], found["start_mark"]) == []


def test_two_panels_see_the_same_and_one_that_is_killed_costs_the_other_nothing(
    served: Served, tmp_path: Path, eventually, shown: Shown
) -> None:
    panels = [served.watch(tmp_path / name) for name in ("a", "b")]
    for panel in panels:
        eventually(lambda panel=panel: panel.scrape_is("ok"), 60, "it is watched")
    done = served.specpanel.run("run", "--attach", served.url, "--requests", "2", "--no-record")
    assert done.code == 0, done.err
    for panel in panels:
        eventually(panel.is_quiet, 60, "the counters stand still")
    totals = [panel.last_frame()["totals"] for panel in panels]
    assert totals[0] == totals[1]
    assert totals[0]["generation_tokens"] > 0
    lost_s = panels[0].lost_s(kill(panels[0].child.pid))
    panels[0].child.wait(20)
    frames = len(panels[1].of_kind("frame"))
    eventually(lambda: len(panels[1].of_kind("frame")) >= frames + 2, 60, "the other goes on")
    panels[1].child.send_signal(signal.SIGINT)
    assert panels[1].end() == 130
    assert list(read_recording(panels[0].recording)), "what the killed one recorded can be read"
    assert lost_s <= MOST_LOST_S + LATE_S
    shown("kill -9 of one of two panels on one server", lost_s=lost_s)


@pytest.mark.parametrize("victim", ["EngineCore", "all"])
def test_a_frozen_server_is_told_and_goes_on_where_it_stopped(
    served: Served, tmp_path: Path, eventually, shown: Shown, victim: str
) -> None:
    flight = served.traffic(tmp_path)
    eventually(flight.in_traffic, 60, "requests end")
    core = engine_core_among(served.pids())
    assert core is not None
    frozen = served.pids() if victim == "all" else [core]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    fault_unix = time.time()
    try:
        if victim == "all":
            eventually(lambda: flight.scrape_is("failing"), 60, "failing metrics are told")
            assert "no answer for" in str(flight.last_frame()["scrape"]["error"])
        else:
            eventually(flight.is_quiet, 60, "no more tokens are told")
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    asked = len(flight.of_kind("request"))
    eventually(lambda: len(flight.of_kind("request")) >= asked + 2, 120, "requests end again")
    eventually(lambda: flight.scrape_is("ok"), 60, "the metrics are well again")
    flight.child.send_signal(signal.SIGINT)
    assert flight.end() == 130
    frames = list(read_recording(flight.recording))
    gaps_s = [b.elapsed_s - a.elapsed_s for a, b in pairwise(frames)]
    assert max(gaps_s) <= 2 * (MOST_LOST_S + LATE_S), "a Frame a second, whatever the server does"
    before = [one for one in frames if one.time_unix <= fault_unix and one.scrape.state == "ok"][-1]
    lost_s = fault_unix - (before.time_unix - (before.scrape.age_s or 0.0))
    assert all(not one["error"] for one in flight.of_kind("request")), "no request was lost"
    assert lost_s <= MOST_LOST_S + 2 * LATE_S
    shown(f"SIGSTOP and SIGCONT of {victim}", lost_s=max(0.0, lost_s))


def test_a_disk_that_fills_under_a_recording_ends_a_watch_with_a_sentence(
    served: Served, tmp_path: Path, shown: Shown
) -> None:
    with small_disk(tmp_path / "disk", kib=32) as disk:
        panel = served.watch(tmp_path / "a", recording=disk / "watch.ndjson")
        assert panel.end() == 1
        full_unix = (
            panel.recording.stat().st_mtime
        )  # of the line that found room for a part of itself
        frames = list(read_recording(panel.recording))
    assert f"the recording {panel.recording} cannot be written: No space left" in panel.said
    lost_s = max(0.0, full_unix - frames[-1].time_unix)
    assert len(frames) >= 3
    assert lost_s <= MOST_LOST_S + LATE_S
    shown("disk full under the recording of a watch", lost_s=lost_s, said=panel.said)


def test_a_disk_that_fills_under_a_recording_that_nobody_asked_for_ends_no_run(
    served: Served, tmp_path: Path, shown: Shown
) -> None:
    with small_disk(tmp_path / "disk", kib=24) as disk:
        full = served.elsewhere(XDG_DATA_HOME=str(disk))
        done = full.run("run", "--attach", served.url, "--requests", "12")
        [recording] = disk.rglob("*.ndjson")
        assert list(read_recording(recording))
    assert done.code == 0, done.err
    assert "No space left on device; the run goes on without one" in done.err
    assert "Traceback" not in done.err
    shown("disk full under a run's own recording", said=done.err)


def test_folders_that_cannot_be_written_are_named_and_watching_goes_on(
    served: Served, tmp_path: Path, shown: Shown
) -> None:
    """A file stands where each folder should be made: root's rights do not help."""
    in_the_way = tmp_path / "file"
    in_the_way.write_text("here already\n")
    locked = served.elsewhere(**{name: str(in_the_way / "below") for name in XDG})
    watched = locked.run("watch", served.url, "--duration", "2", "--json")
    assert watched.code == 0, watched.err
    assert [line["kind"] for line in watched.lines].count("frame") >= 2
    ran = locked.run("run", "--attach", served.url, "--requests", "2", "--json")
    assert ran.code == 0, ran.err
    assert ran.summary["legs"][0]["requests"] == 2
    assert any("the run goes on without one" in line.get("text", "") for line in ran.lines)
    assert locked.run("ps").code == 0
    began = locked.run("run", "demo-ngram", "--port", str(free_port()), "--no-record")
    assert began.code == 2
    assert "state file" in began.err
    assert "XDG_STATE_HOME" in began.err
    for done in (watched, ran, began):
        assert "Traceback" not in done.err
    shown("XDG folders that cannot be written", said=began.err)


def test_a_clock_that_jumps_moves_no_figure(served: Served, tmp_path: Path, shown: Shown) -> None:
    done = subprocess.run(
        [sys.executable, "-c", JUMPING, "watch", served.url, "--duration", "7", "--json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=served.specpanel.environment,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    frames = [line for line in map(json.loads, done.stdout.splitlines()) if line["kind"] == "frame"]
    unix = [frame["time_unix"] for frame in frames]
    assert max(unix) - min(unix) > 86_400, "the clock has jumped"
    steps_s = [b["elapsed_s"] - a["elapsed_s"] for a, b in pairwise(frames)]
    assert all(0.3 < step_s < 3 for step_s in steps_s), steps_s
    assert 5 <= len(frames) <= 9
    assert {frame["epoch"] for frame in frames} == {0}
    assert frames[-1]["scrape"]["state"] == "ok"
    for frame in frames:
        assert 0 <= (frame["scrape"]["age_s"] or 0) < 10
        rate = (frame["engine"] or {}).get("generation_tokens_per_s")
        assert rate is None or 0 <= rate < 10_000
    shown("a clock that jumps by a day, there and back", lost_s=0.0)


def test_a_server_of_an_older_panel_is_found_and_measured(
    served: Served, tmp_path: Path, shown: Shown
) -> None:
    """Its state file has the fields of the first format, and one that nobody knows any more."""
    state = Path(served.specpanel.environment["XDG_STATE_HOME"])
    [path] = state.rglob(f"{served.id}.json")
    old = json.loads(path.read_text())
    for later in ("draft_tokens", "settings_table", "forced", "schema_version"):
        del old[later]
    path.write_text(json.dumps({**old, "schema_version": 0, "group": 12}))
    [found] = listed(served.specpanel)
    assert (found["id"], found["pid"], found["url"]) == (served.id, served.pid, served.url)
    done = served.specpanel.run("run", "--attach", served.url, "--requests", "2", "--no-record")
    assert done.code == 0, done.err
    shown("a panel upgraded under a running server", lost_s=0.0)


def test_two_stops_of_a_frozen_server_leave_nothing(
    served: Served, eventually, shown: Shown
) -> None:
    """The last of this file. SIGTERM reaches nobody, and two panels end it at the same time."""
    pids = served.pids()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    stops = [
        served.specpanel.start("stop", served.name, "--timeout", "3", stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    said = [stop.communicate(timeout=60)[1].decode() for stop in stops]
    assert sorted(stop.returncode for stop in stops) in ([0, 0], [0, 3]), said
    assert not any("Traceback" in one for one in said)
    eventually(lambda: not any_alive(pids), 20, "every process is gone")
    assert listed(served.specpanel) == []
    shown("two panels stop a frozen server at once")
