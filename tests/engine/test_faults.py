"""Real vLLM, killed in every way: nothing stays, nothing is lost, and the exit status tells."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from engine.flight import (
    LATE_S,
    MOST_LOST_S,
    Flight,
    alive,
    any_alive,
    engine_core_among,
    kill,
    listed,
    own_children,
)

from specpanel.core.monitor.recording import read_recording

pytestmark = pytest.mark.faults

START_S = 300.0
# Phases in which other processes run; in that of HTTP they are those of traffic. EngineCore is there from
# before the weights on.
PHASES = ("imports", "weights", "traffic")
DEATHS = [
    *(("server", phase) for phase in PHASES),
    *(("EngineCore", phase) for phase in PHASES[1:]),
]
Shown = Callable[..., None]


@pytest.mark.parametrize("phase", ["imports", "weights", "http"])
def test_ctrl_c_in_every_phase_of_the_start_leaves_nothing(
    specpanel, port: str, tmp_path: Path, eventually, shown: Shown, phase: str
) -> None:
    flight = Flight.take_off(specpanel, tmp_path, "--port", port, "--requests", "50")
    eventually(lambda: flight.has_reached(phase), START_S, f"the start reaches {phase}")
    pids = eventually(flight.server_pids, 20, "the server's processes are there")
    flight.child.send_signal(signal.SIGINT)
    assert flight.end() == 130
    eventually(lambda: not any_alive(pids), 20, "every process is gone")
    assert flight.lines()[-1]["kind"] == "summary"
    assert listed(specpanel) == []
    shown(f"Ctrl-C in {phase}", lost_s=0.0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_under_traffic_sum_up_and_stop(
    specpanel, port: str, tmp_path: Path, eventually, shown: Shown, number: signal.Signals
) -> None:
    flight = Flight.take_off(specpanel, tmp_path, "--port", port, "--requests", "500")
    eventually(flight.in_traffic, START_S, "requests end")
    pids = flight.server_pids()
    flight.child.send_signal(number)
    assert flight.end() == 130
    eventually(lambda: not any_alive(pids), 20, "every process is gone")
    summary = flight.lines()[-1]
    assert summary["kind"] == "summary"
    assert summary["interrupted"]
    assert sum(leg["requests"] for leg in summary["legs"]) == len(_measured(flight))
    shown(f"{number.name} under traffic", lost_s=0.0)


@pytest.mark.parametrize("phase", PHASES)
def test_a_killed_panel_leaves_a_server_that_ps_finds_and_stop_ends(
    specpanel, port: str, tmp_path: Path, eventually, shown: Shown, phase: str
) -> None:
    flight = Flight.take_off(specpanel, tmp_path, "--port", port, "--requests", "500")
    eventually(lambda: flight.has_reached(phase), START_S, f"the run reaches {phase}")
    pids = eventually(flight.server_pids, 20, "the server's processes are there")
    helpers = own_children(flight.child.pid, pids)
    lost_s = flight.lost_s(kill(flight.child.pid))
    flight.child.wait(10)
    eventually(lambda: not any_alive(helpers), 20, "the panel's own helpers are gone")
    assert all(map(alive, pids)), "the server goes on"
    if phase == "traffic":
        assert list(read_recording(flight.recording))[-1].server.state == "serving"
    assert flight.lines(), "what was recorded can be read"
    [found] = listed(specpanel)
    assert found["pid"] in pids
    stopped = specpanel.run("stop", found["name"])
    assert stopped.code == 0, stopped.err
    assert not any_alive(pids)
    assert specpanel.run("stop", found["name"]).code == 3
    assert lost_s <= MOST_LOST_S + LATE_S
    shown(f"kill -9 of the panel in {phase}", lost_s=lost_s)


@pytest.mark.parametrize(("victim", "phase"), DEATHS)
def test_a_server_that_is_killed_is_named_and_cleared_away(
    specpanel, port: str, tmp_path: Path, eventually, shown: Shown, victim: str, phase: str
) -> None:
    flight = Flight.take_off(specpanel, tmp_path, "--port", port, "--requests", "500")
    eventually(lambda: flight.has_reached(phase), START_S, f"the run reaches {phase}")
    pids = eventually(flight.server_pids, 20, "the server's processes are there")
    target = pids[0] if victim == "server" else engine_core_among(pids)
    assert target is not None, [psutil.Process(pid).cmdline() for pid in pids]
    lost_s = flight.lost_s(kill(target))
    assert flight.end() == 1
    eventually(lambda: not any_alive(pids), 20, "every process is gone")
    summary = flight.lines()[-1]
    assert summary["kind"] == "summary"
    assert summary["failure"]
    assert ".log" in flight.said
    if phase == "traffic":
        [leg] = summary["legs"]
        assert leg["requests"] == len(_measured(flight)), "all of it is summed up"
    assert listed(specpanel) == []
    assert lost_s <= MOST_LOST_S + LATE_S
    shown(f"kill -9 of {victim} in {phase}", lost_s=lost_s, said=flight.said)


def _measured(flight: Flight) -> list[dict[str, Any]]:
    return [line for line in flight.of_kind("request") if not line.get("warmup")]
