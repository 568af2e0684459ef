"""Real vLLM, killed in every way: nothing stays, nothing is lost, and the exit status tells."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from specpanel.core.engine import identity
from specpanel.core.monitor.recording import read_lines, read_recording

pytestmark = pytest.mark.faults

PHASES = ("imports", "weights", "http")


class Flight:
    """A run in the background with its stream in a file."""

    def __init__(self, specpanel: Any, folder: Path, *arguments: str) -> None:
        self.recording = folder / "flight.ndjson"
        self.stderr = folder / "stderr.txt"
        with self.stderr.open("wb") as err:
            self.child: subprocess.Popen[bytes] = specpanel.start(
                *("run", "demo-ngram", "--record", str(self.recording)),
                *("--set", "traffic.max_tokens=48", *arguments),
                stdout=subprocess.DEVNULL,
                stderr=err,
            )

    def lines(self) -> list[dict[str, Any]]:
        return list(read_lines(self.recording)) if self.recording.exists() else []

    def find(self, kind: str, **fields: Any) -> dict[str, Any] | None:
        for line in self.lines():
            if line["kind"] == kind and all(line.get(key) == fields[key] for key in fields):
                return line
        return None

    def server_pids(self) -> list[int]:
        launched = self.find("launched")
        return (
            []
            if launched is None
            else identity.session_members(launched["pid"], identity.start_mark(launched["pid"]))
        )

    def in_traffic(self) -> bool:
        return any(line["kind"] == "request" for line in self.lines())


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("phase", PHASES)
def test_ctrl_c_in_every_phase_of_the_start_leaves_nothing(
    specpanel, port: str, tmp_path: Path, eventually, phase: str
) -> None:
    flight = Flight(specpanel, tmp_path, "--port", port, "--requests", "50")
    wanted = {"kind": "launched"} if phase == "imports" else {"kind": "phase", "phase": phase}
    eventually(lambda: flight.find(**wanted), 240, f"the start reaches {phase}")
    pids = eventually(flight.server_pids, 10, "the server's processes are there")
    flight.child.send_signal(signal.SIGINT)
    assert flight.child.wait(60) == 130
    eventually(lambda: not any(map(_alive, pids)), 5, "every process is gone")
    assert flight.lines()[-1]["kind"] == "summary"
    assert specpanel.run("ps", "--json").out == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_under_traffic_sum_up_and_stop(
    specpanel, port: str, tmp_path: Path, eventually, number: signal.Signals
) -> None:
    flight = Flight(specpanel, tmp_path, "--port", port, "--requests", "500")
    eventually(flight.in_traffic, 300, "requests end")
    pids = flight.server_pids()
    flight.child.send_signal(number)
    assert flight.child.wait(60) == 130
    eventually(lambda: not any(map(_alive, pids)), 5, "every process is gone")
    summary = flight.lines()[-1]
    assert summary["kind"] == "summary"
    assert summary["interrupted"]


def test_a_killed_panel_leaves_a_server_that_ps_finds_and_stop_ends(
    specpanel, port: str, tmp_path: Path, eventually
) -> None:
    flight = Flight(specpanel, tmp_path, "--port", port, "--requests", "500")
    eventually(flight.in_traffic, 300, "requests end")
    pids = flight.server_pids()
    flight.child.kill()
    flight.child.wait(10)
    frames = list(read_recording(flight.recording))
    assert frames[-1].server.state == "serving"
    (listed,) = (json.loads(line) for line in specpanel.run("ps", "--json").out.splitlines())
    assert listed["pid"] in pids
    stopped = specpanel.run("stop", listed["name"])
    assert stopped.code == 0, stopped.err
    assert not any(map(_alive, pids))
    assert specpanel.run("stop", listed["name"]).code == 3


@pytest.mark.parametrize("victim", ["server", "EngineCore"])
def test_a_server_killed_under_load_is_named_and_cleared_away(
    specpanel, port: str, tmp_path: Path, eventually, victim: str
) -> None:
    flight = Flight(specpanel, tmp_path, "--port", port, "--requests", "500")
    eventually(flight.in_traffic, 300, "requests end")
    pids = flight.server_pids()
    leader = pids[0]
    target = leader if victim == "server" else _engine_core(pids)
    os.kill(target, signal.SIGKILL)
    assert flight.child.wait(120) == 1
    eventually(lambda: not any(map(_alive, pids)), 5, "every process is gone")
    summary = flight.lines()[-1]
    assert summary["kind"] == "summary"
    assert summary["failure"]
    assert summary["legs"], "what was measured before the kill is summed up"
    said = flight.stderr.read_text()
    assert "Traceback" not in said
    assert ".log" in said
    assert list(read_recording(flight.recording))[-1].time_unix > summary["legs"][0]["elapsed_s"]
    assert specpanel.run("ps", "--json").out == ""


def _engine_core(pids: list[int]) -> int:
    for pid in pids:
        command = " ".join(psutil.Process(pid).cmdline())
        if "EngineCore" in command:
            return pid
    pytest.fail(f"no EngineCore among {[psutil.Process(pid).cmdline() for pid in pids]}")
