"""The reader process among faults: signals, hangs, noise, a parent that dies, an interpreter with nothing."""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import psutil
import pytest
from fakes.devices.machine import (
    QUICK,
    device_answers,
    library,
    read,
    script,
    this_is,
    until,
    watched,
)

from specpanel.core.devices import reader
from specpanel.core.devices.child import Deadlines
from specpanel.core.devices.watch import DeviceWatch, read_once
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Frame
from specpanel.core.monitor.monitor import Monitor, ServerFacts

READER = Path(reader.__file__)
NOWHERE = "http://127.0.0.1:20199"
PATIENCE_S = 15.0


def wait_until_gone(pid: int) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline_s, f"process {pid} is still there"
        time.sleep(0.01)


async def test_a_segfault_in_the_driver_costs_a_restart_and_is_named(tmp_path: Path) -> None:
    async with watched("nvml_segfault", tmp_path) as watch:
        sample = await until(watch, lambda one: one.state == "restarting")
        assert "killed by SIGSEGV in nvmlDeviceGetPowerUsage of GPU 0" in (sample.reason or "")
        # The last figures stay in sight, as old ones.
        assert [one.state for one in sample.readings] == ["stale", "stale"]
        assert sample.readings[0].power_w == 380
        again = await until(watch, lambda one: one.state == "ok" and watch.starts >= 2)
        assert [one.state for one in again.readings] == ["ok", "ok"]


async def test_a_reader_that_is_killed_comes_back_later_each_time(tmp_path: Path) -> None:
    patient = Deadlines(again_s=0.2, again_most_s=10)
    async with watched("h200x8", tmp_path, patient) as watch:
        await until(watch, lambda one: one.state == "ok")
        absent_s = []
        for life in (1, 2, 3):
            await until(watch, lambda one, life=life: watch.starts == life and one.state == "ok")
            assert watch.pid is not None
            os.kill(watch.pid, signal.SIGKILL)
            killed_s = time.monotonic()
            await until(watch, lambda _, life=life: watch.starts > life)
            absent_s.append(time.monotonic() - killed_s)
    assert absent_s[0] >= 0.2
    assert absent_s[1] >= 0.4
    assert absent_s[2] >= 0.8


async def test_amdsmi_that_hangs_in_its_start_is_left_out_and_costs_nvidia_nothing(
    tmp_path: Path,
) -> None:
    async with watched("amdsmi_init_hangs", tmp_path) as watch:
        sample = await until(watch, lambda one: one.state == "ok")
        assert [device.vendor for device in sample.devices] == ["nvidia", "nvidia", "amd"]
        assert watch.inventory is not None
        assert library(watch.inventory, "amdsmi").reason == (
            "left out: amdsmi_init has not come back for 0.5 s"
        )
        assert watch.starts == 2


async def test_what_the_library_prints_reaches_neither_terminal_nor_answers(tmp_path: Path) -> None:
    found = script("h200x8")
    rates = {"print": '{"kind":"answer"}', "then": {"gpu": 97, "memory": 1}}
    device_answers(found, "pynvml")["nvmlDeviceGetUtilizationRates"] = rates
    async with watched(found, tmp_path) as watch:
        sample = await until(watch, lambda one: one.state == "ok" and bool(watch.said))
        assert sample.readings[0].utilisation_percent == 97
        assert '{"kind":"answer"}' in watch.said


def test_the_reader_ends_with_its_input(tmp_path: Path) -> None:
    with this_is("h200x8", tmp_path):
        process = subprocess.Popen(
            [sys.executable, READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
    assert process.stdin is not None
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["kind"] == "inventory"
    process.stdin.close()
    assert process.wait(PATIENCE_S) == 0
    process.stdout.close()


_PARENT = """
import asyncio, sys
from specpanel.core.devices.watch import DeviceWatch

async def main():
    watch = DeviceWatch(period_s=0.05)
    running = asyncio.create_task(watch.run())
    while watch.sample().state != sys.argv[1]:
        await asyncio.sleep(0.01)
    print(watch.pid, flush=True)
    await running

asyncio.run(main())
"""


@pytest.mark.parametrize(("name", "state"), [("h200x8", "ok"), ("call_blocks", "stale")])
def test_the_reader_dies_with_a_parent_that_is_killed_even_inside_a_call(
    name: str, state: str, tmp_path: Path
) -> None:
    with this_is(name, tmp_path):
        parent = subprocess.Popen(
            [sys.executable, "-c", _PARENT, state], stdout=subprocess.PIPE, text=True
        )
    assert parent.stdout is not None
    reader_pid = int(parent.stdout.readline())
    assert psutil.pid_exists(reader_pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until_gone(reader_pid)


async def test_a_watch_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    before = {one.pid for one in psutil.Process().children()}
    for moment_s in (0.0, 0.02, 0.3):  # while it starts, while it probes, while it answers
        with this_is("h200x8", tmp_path):
            watch = DeviceWatch(deadlines=QUICK, period_s=0.05)
            running = asyncio.create_task(watch.run())
            await asyncio.sleep(moment_s)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert {one.pid for one in psutil.Process().children()} <= before


def test_the_reader_works_in_an_interpreter_without_specpanel_in_under_40_mb(
    tmp_path: Path,
) -> None:
    place = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    purelib = sysconfig.get_path("purelib")
    (libraries,) = (place / "lib").glob("python*/site-packages")
    (libraries / "pynvml.py").symlink_to(Path(purelib) / "pynvml.py")
    python = place / "bin" / "python"
    modules = "import sys, json; print(json.dumps(sorted(sys.modules)))"
    assert "specpanel" not in subprocess.check_output([python, "-c", modules], text=True)
    with this_is("h200x8", tmp_path / "machine"):
        process = subprocess.Popen(
            [python, READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/"
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        inventory = json.loads(process.stdout.readline())
        assert len(inventory["inventory"]["devices"]) == 8
        for _ in range(3):
            process.stdin.write(b'{"do":"read","processes":true}\n')
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
        assert len(answer["readings"]) == 8
        assert psutil.Process(process.pid).memory_info().rss < 40e6
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_the_reader_imports_only_the_standard_library_and_the_vendors(tmp_path: Path) -> None:
    """Pydantic alone would cost it more memory than everything that it has."""
    program = (
        "import runpy, sys, json, io\n"
        f"sys.argv = [{str(READER)!r}]\n"
        "sys.stdin = io.StringIO()\n"
        f"runpy.run_path({str(READER)!r}, run_name='reader')\n"
        "names = {name.partition('.')[0] for name in sys.modules}\n"
        "print(json.dumps(sorted(names - set(sys.stdlib_module_names))))\n"
    )
    bare = subprocess.check_output([sys.executable, "-S", "-E", "-c", program], text=True, cwd="/")
    assert set(json.loads(bare)) <= {"specpanel", "__main__"}


def test_an_interpreter_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECPANEL_DEVICE_PYTHON", "/nowhere/python")
    sample, inventory = read_once()
    assert inventory is None
    assert "the reader /nowhere/python cannot be started" in (sample.reason or "")


def test_an_interpreter_that_is_no_python_is_told() -> None:
    sample, inventory = read_once(python="/bin/false", deadlines=QUICK, wait_s=1.0)
    assert (inventory, sample.state) == (None, "restarting")
    assert "exit code 1" in (sample.reason or "")


def test_every_script_is_read_to_its_end(tmp_path: Path) -> None:
    """No machine of the scripts makes the reader fail: 64 cards, virtual ones, mixed ones."""
    for name, count in (("h200x64", 64), ("vgpu", 1), ("mixed", 3), ("mi300x_spx", 8)):
        sample, _ = read(name, tmp_path / name)
        assert (sample.state, len(sample.readings)) == ("ok", count)
        assert not [one for one in sample.readings if one.state != "ok"]


async def frames_of(seconds: float, wanted: str) -> list[Frame]:
    """Frames of a monitor for so long, from the first whose devices are in the wanted state."""
    feed = Feed()
    facts = ServerFacts(NOWHERE, stopped=True)
    watch = DeviceWatch(deadlines=Deadlines(silent_s=0.3), period_s=0.05)
    monitor = Monitor(feed, lambda: facts, devices=watch)
    running = asyncio.create_task(monitor.run())
    try:
        await until(watch, lambda one: one.state == wanted)
        await asyncio.sleep(seconds)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return list(feed)


async def test_frames_come_on_time_while_the_driver_hangs(tmp_path: Path) -> None:
    with this_is("call_blocks", tmp_path):
        frames = await frames_of(3.2, "stale")
    gaps = [after.elapsed_s - before.elapsed_s for before, after in itertools.pairwise(frames)]
    assert len(gaps) >= 3
    assert all(0.5 < gap < 1.5 for gap in gaps[1:])
    last = frames[-1].devices
    assert last is not None
    assert (last.state, (last.age_s or 0) > 2) == ("stale", True)


async def test_a_frame_of_a_machine_without_devices_says_so() -> None:
    frames = await frames_of(1.1, "none")
    last = frames[-1].devices
    assert last is not None
    assert (last.state, last.devices) == ("none", ())
    assert last.reason


async def test_processes_are_listed_while_someone_looks_and_forgotten_afterwards(
    tmp_path: Path,
) -> None:
    async with watched("h200x8", tmp_path) as watch:
        first = await until(watch, lambda one: one.state == "ok")
        assert first.readings[0].processes is None
        for _ in range(2):
            watch.want_processes(True)
            await until(watch, lambda one: one.readings[0].processes == ())
            watch.want_processes(False)
            await until(watch, lambda one: one.readings[0].processes is None)
