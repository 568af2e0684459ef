"""Real starts on a machine that has run out of something: disk, shared memory, or the port."""

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from engine.flight import Flight, any_alive, listed
from engine.small_disk import small_disk, with_full_shared_memory

from specpanel.core.errors import RecordingError
from specpanel.core.lab.store import Store
from specpanel.core.traffic.records import RequestRecord

pytestmark = pytest.mark.faults

Shown = Callable[..., None]


def test_a_port_that_is_stolen_after_the_check_ends_the_start_with_its_number(
    specpanel, port: str, tmp_path: Path, eventually, shown: Shown
) -> None:
    flight = Flight.take_off(specpanel, tmp_path, "--port", port, "--requests", "2")
    eventually(lambda: flight.has_reached("imports"), 120, "vLLM is launched")
    with socket.socket() as thief:
        thief.bind(("127.0.0.1", int(port)))
        thief.listen()
        pids = flight.server_pids()
        assert flight.end(300) == 1
    assert not any_alive(pids)
    assert port in flight.said
    assert "taken" in flight.said or "in use" in flight.said
    assert listed(specpanel) == []
    shown("port stolen between check and bind", said=flight.said)


def test_a_full_disk_under_log_recording_and_results_is_the_cause_that_is_named(
    newcomer, port: str, tmp_path: Path, shown: Shown
) -> None:
    """State, log, recording and results share 24 kB, full while vLLM starts: vLLM itself cannot bear that."""
    with small_disk(tmp_path / "disk", kib=24) as disk:
        folders = {name: str(disk) for name in ("XDG_STATE_HOME", "XDG_DATA_HOME")}
        full = type(newcomer)({**newcomer.environment, **folders})
        flags = ("--port", port, "--requests", "2", "--set", "traffic.max_tokens=16")
        done = full.run("run", "demo-ngram", *flags, seconds=400)
        assert listed(full) == []
    assert done.code == 1, done.err
    assert "is full: what vLLM writes from here on is lost" in done.err
    assert "the disk of its log has no room left" in done.err.splitlines()[-2]
    assert "XDG_STATE_HOME" in done.err.splitlines()[-1]
    assert "No space left on device; the run goes on without one" in done.err
    assert "the run is not among the results" in done.err
    assert "Traceback" not in done.err
    shown("disk full under log, recording and results of a run", said=done.err)


def test_full_shared_memory_is_survived_or_named(
    specpanel, port: str, tmp_path: Path, shown: Shown
) -> None:
    flags = ("--port", port, "--requests", "2", "--set", "traffic.max_tokens=16")
    command = (sys.executable, "-m", "specpanel.app", "run", "demo-ngram", *flags, "--no-record")
    done = subprocess.run(
        with_full_shared_memory(*command),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=specpanel.environment,
        timeout=400,
    )
    assert "Traceback" not in done.stderr
    assert listed(specpanel) == []
    if done.returncode == 0:
        assert "2 requests" in done.stdout
    else:
        assert done.returncode == 1
        assert "/dev/shm" in done.stderr
    shown("/dev/shm full under a start", said=f"exit {done.returncode}. {done.stderr}")


def test_results_on_a_full_disk_keep_what_was_stored(tmp_path: Path, shown: Shown) -> None:
    record = RequestRecord(0, "p", "chat", 1.0, 0.0, 1.0, 1.0, 1.0, 1, 1, "stop")
    with small_disk(tmp_path / "disk", kib=512) as disk:
        path = disk / "results.sqlite"
        with Store(path) as store:
            name = store.begin("compare", "a and b", {}, {}, 0)
            run = store.add_run(name, "a", "none", None, "x", {}, 1.0)

            def fill() -> None:
                for block in range(10_000):
                    store.add_measurements(run, block, {}, [record] * 50)

            with pytest.raises(RecordingError) as told:
                fill()
        assert str(path) in told.value.message
        with Store(path) as store:
            kept = len(list(store.measurements(name)))
    assert kept >= 50
    assert kept % 50 == 0, "whole blocks"
    shown("disk full under the store", said=str(told.value))
