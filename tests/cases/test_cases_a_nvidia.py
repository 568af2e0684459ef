"""Public reports about NVIDIA telemetry (A01 to A28), each through the real reader process.

The libraries' answers are scripted after the reports, see tests/fakes/devices.
"""

import ast
import copy
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fakes.devices.machine import (
    QUICK,
    build,
    device_answers,
    read,
    reading,
    script,
    until,
    watched,
    write_files,
)

import specpanel.core
from specpanel.core.devices import words
from specpanel.core.devices.arrangement import rows
from specpanel.core.devices.child import Deadlines
from specpanel.core.devices.free_memory import outlook
from specpanel.core.devices.visibility import used_by, visible_devices

GIB = 2**30
MEMORY_V2 = "nvmlDeviceGetMemoryInfo:33554472"


def test_a01_a_card_in_mig_mode_has_no_utilisation_and_is_never_at_0(tmp_path: Path) -> None:
    sample, _ = read("h100_mig", tmp_path)
    card = reading(sample, "0")
    assert card.utilisation_percent is None
    assert words.figure(card, "utilisation_percent", "%") == "n/a (MIG)"
    assert (card.power_w, card.temperature_c) == (210.0, 41.0)
    assert [(row.device.label, row.depth) for row in rows(sample)] == [
        ("0", 0),
        ("0:0", 1),
        ("0:1", 1),
        ("1", 0),
    ]
    assert reading(sample, "1").utilisation_percent == 12


def test_a02_a_server_pinned_to_a_slice_by_uuid_is_seen_to_use_that_slice(tmp_path: Path) -> None:
    sample, _ = read("h100_mig", tmp_path)
    uuid = "MIG-bbbbbbbb-0000-5000-8000-000000000002"
    environment = {"CUDA_VISIBLE_DEVICES": uuid}
    found = used_by(
        sample.devices, sample.readings, environment=environment, arguments=[], pids=[1]
    )
    assert found == (uuid,)


def test_a04_a_slice_has_its_own_memory_and_not_its_cards(tmp_path: Path) -> None:
    sample, _ = read("h100_mig", tmp_path)
    part, card = reading(sample, "0:0"), reading(sample, "0")
    assert part.memory_total_bytes == 40448 * 2**20
    assert card.memory_total_bytes == 81559 * 2**20
    free = outlook(sample, {"CUDA_VISIBLE_DEVICES": part.uuid}).least_free_bytes()
    assert free == (40448 - 20000) * 2**20


def test_a05_device_ids_beat_the_environment_and_ranks_are_not_places_in_it(
    tmp_path: Path,
) -> None:
    sample, _ = read("h200x8", tmp_path)
    arguments = ["vllm", "serve", "model", "-tp", "2", "--device-ids", "3,1"]
    environment = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "4,5,6,7"}
    found = used_by(
        sample.devices, sample.readings, environment=environment, arguments=arguments, pids=[1]
    )
    index_by_uuid = {device.uuid: device.index for device in sample.devices}
    assert [index_by_uuid[uuid] for uuid in found or ()] == [7, 5]


@pytest.mark.parametrize("answer", ["gb10", "gb10_bogus_total"])
def test_a07_unified_memory_is_told_by_name_and_value_whatever_the_driver_answers(
    answer: str, tmp_path: Path
) -> None:
    sample, _ = read(answer, tmp_path)
    assert sample.devices[0].memory_kind == "unified"


def test_a07_a_card_with_memory_of_its_own_is_not_unified(tmp_path: Path) -> None:
    sample, _ = read("h200x8", tmp_path)
    assert {device.memory_kind for device in sample.devices} == {"own"}


async def test_a08_unified_memory_is_what_is_used_plus_what_the_host_can_give(
    tmp_path: Path,
) -> None:
    async with watched("gb10", tmp_path) as watch:
        first = await until(watch, lambda sample: sample.state == "ok")
        figures = reading(first, "0")
        assert figures.memory_used_bytes == 30 * GIB
        assert figures.memory_total_bytes == 30 * GIB + 64000000 * 1024
        write_files(tmp_path, {"proc/meminfo": "MemTotal: 127926272 kB\nMemAvailable: 4 kB\n"})
        total = 30 * GIB + 4096
        await until(watch, lambda sample: reading(sample, "0").memory_total_bytes == total)


def test_a10_texts_instead_of_numbers_are_absent_figures(tmp_path: Path) -> None:
    sample, _ = read("jetson", tmp_path)
    figures = reading(sample, "0")
    assert sample.devices[0].name == "Orin (nvgpu)"
    names = ("utilisation_percent", "memory_used_bytes", "power_w", "temperature_c")
    assert [getattr(figures, name) for name in names] == [None] * 4
    assert set(names) <= figures.absent.keys()


def test_a11_a_lost_card_keeps_its_row_and_costs_the_others_nothing(tmp_path: Path) -> None:
    sample, _ = read("a100_lost", tmp_path)
    assert [one.state for one in sample.readings] == ["ok", "lost", "ok", "ok"]
    assert [one.power_w for one in sample.readings] == [380.0, None, 380.0, 380.0]
    assert words.state(reading(sample, "1")) == "LOST"


async def test_a11_a_card_that_is_lost_while_it_works_is_asked_less_often(tmp_path: Path) -> None:
    found = script("h200x8")
    found["pynvml"]["devices"][0]["repeat"] = 2
    lost = copy.deepcopy(found["pynvml"]["devices"][0])
    lost["repeat"] = 1
    good = {"gpu": 97, "memory": 61}
    lost["answers"]["nvmlDeviceGetUtilizationRates"] = {"series": [good, good, {"raise": 15}]}
    found["pynvml"]["devices"].append(lost)
    async with watched(found, tmp_path) as watch:
        sample = await until(watch, lambda one: any(r.state == "lost" for r in one.readings))
        assert [one.state for one in sample.readings] == ["ok", "ok", "lost"]
        assert sample.readings[2].utilisation_percent is None


def test_a13_a_driver_updated_without_a_reboot_is_told_and_blocks_a_launch(tmp_path: Path) -> None:
    sample, inventory = read("driver_mismatch", tmp_path)
    nvml = inventory.libraries[0]
    assert (nvml.state, "different versions" in (nvml.reason or "")) == ("failed", True)
    assert "Reboot" in (nvml.fix or "")
    found = outlook(sample, {}, "nvidia", {"nvidia": nvml.reason or ""})
    assert found.blocked
    assert "different versions" in (found.problem or "")


async def test_a14_a_container_that_lost_its_access_keeps_the_last_figures_with_their_age(
    tmp_path: Path,
) -> None:
    async with watched("container_lost", tmp_path) as watch:
        sample = await until(
            watch, lambda one: bool(one.readings) and (one.readings[0].age_s or 0) > 0.2
        )
        figures = sample.readings[0]
        assert (figures.state, figures.utilisation_percent) == ("stale", 88.0)
        assert "make the container anew" in (figures.reason or "")
        assert watch.starts == 1


async def test_a16_a_misread_process_list_is_filtered_and_called_unreliable(tmp_path: Path) -> None:
    found = script("h200x8")
    found["pynvml"]["devices"][0]["repeat"] = 1
    pids = [os.getpid(), 0, 4294967295, 4294967295, 99999999, 0]
    listed = [{"pid": pid, "usedGpuMemory": 2**30} for pid in pids]
    device_answers(found, "pynvml")["nvmlDeviceGetComputeRunningProcesses"] = listed
    found["files"] = {"proc/sys/kernel/pid_max": "4194304", "dev/nvidia0": ""}
    async with watched(found, tmp_path) as watch:
        watch.want_processes(True)
        with (tmp_path / "dev/nvidia0").open():  # as a process on the device has it open
            sample = await until(
                watch,
                lambda one: bool(one.readings) and one.readings[0].processes is not None,
            )
    figures = sample.readings[0]
    assert [(one.pid, one.memory_used_bytes) for one in figures.processes or ()] == [
        (os.getpid(), 2**30)
    ]
    assert "unreliable" in figures.absent["processes"]


async def test_a_process_list_names_only_processes_of_this_namespace(tmp_path: Path) -> None:
    found = script("h200x8")
    found["pynvml"]["devices"][0]["repeat"] = 1
    # This test's own pid, but it holds no device open: in a container, a host's pid of the same number.
    listed = [{"pid": os.getpid(), "usedGpuMemory": 1}]
    device_answers(found, "pynvml")["nvmlDeviceGetComputeRunningProcesses"] = listed
    async with watched(found, tmp_path) as watch:
        watch.want_processes(True)
        sample = await until(
            watch, lambda one: bool(one.readings) and one.readings[0].processes is not None
        )
    assert sample.readings[0].processes == ()
    assert sample.readings[0].absent["processes"] == "1 in other namespaces"


def test_a17_memory_that_the_driver_keeps_for_itself_is_not_used_memory(tmp_path: Path) -> None:
    found = script("h200x8")
    answers = device_answers(found, "pynvml")
    used = answers[MEMORY_V2]["used"]
    assert answers["nvmlDeviceGetMemoryInfo"]["used"] > used
    sample, _ = read(found, tmp_path / "new")
    assert sample.readings[0].memory_used_bytes == used
    answers[MEMORY_V2] = {"raise": 13}  # a driver without the second version
    sample, _ = read(found, tmp_path / "old")
    assert sample.readings[0].memory_used_bytes == answers["nvmlDeviceGetMemoryInfo"]["used"]


def test_a19_a_name_that_is_no_text_is_called_unreadable(tmp_path: Path) -> None:
    found = script("h200x8")
    device_answers(found, "pynvml")["nvmlDeviceGetName"] = {"undecodable": True}
    sample, _ = read(found, tmp_path)
    assert sample.devices[0].name == "GPU 0 (unreadable name)"
    assert sample.readings[0].utilisation_percent == 97


async def test_a20_an_absurd_utilisation_is_a_gap_and_the_next_one_a_figure(tmp_path: Path) -> None:
    found = script("h200x8")
    found["pynvml"]["devices"][0]["repeat"] = 1
    absurd, good = {"gpu": 808334905, "memory": 3}, {"gpu": 97, "memory": 3}
    rates = {"series": [good, *[absurd] * 8, good]}
    device_answers(found, "pynvml")["nvmlDeviceGetUtilizationRates"] = rates
    async with watched(found, tmp_path) as watch:
        gap = await until(
            watch, lambda one: bool(one.readings) and one.readings[0].utilisation_percent is None
        )
        assert gap.readings[0].absent["utilisation_percent"] == "out of range"
        assert gap.readings[0].memory_activity_percent == 3
        await until(watch, lambda one: one.readings[0].utilisation_percent == 97)


def test_a22_nvml_that_forgot_that_it_was_opened_is_opened_once_more(tmp_path: Path) -> None:
    found = script("h200x8")
    rates = {"series": [{"raise": 1}, {"gpu": 42, "memory": 1}]}
    device_answers(found, "pynvml")["nvmlDeviceGetUtilizationRates"] = rates
    found["pynvml"]["devices"][0]["repeat"] = 1
    sample, _ = read(found, tmp_path)
    assert sample.readings[0].utilisation_percent == 42


def test_a22_nothing_in_core_starts_a_child_by_fork() -> None:
    """A fork inherits NVML's and CUDA's state and poisons it; every child of ours is an exec."""
    (core,) = specpanel.core.__path__
    forks = {"fork", "forkpty", "multiprocessing", "preexec_fn"}
    found = []
    for path in Path(core).rglob("*.py"):
        if "inside" in path.parts:
            continue  # runs in vLLM's or the trainer's own interpreter
        text = path.read_text(encoding="utf-8")
        if not any(word in text for word in forks):
            continue
        for node in ast.walk(ast.parse(text)):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [name.name for name in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(name.name for name in node.names)]
            elif isinstance(node, ast.Attribute):
                names = [node.attr]
            elif isinstance(node, ast.keyword):
                names = [node.arg or ""]
            found += [f"{path.name}: {name}" for name in names if name.split(".")[0] in forks]
    assert not found


def test_a23_numbers_count_by_the_bus_and_are_not_believed_in_cudas_own_order(
    tmp_path: Path,
) -> None:
    sample, _ = read("mixed", tmp_path)
    # NVML listed the faster card first; on the bus it is the second.
    names = {device.index: device.name for device in sample.devices if device.vendor == "nvidia"}
    assert names == {0: "NVIDIA GeForce GTX 745", 1: "NVIDIA GeForce GTX 1080 Ti"}
    by_bus = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1"}
    assert visible_devices(sample.devices, by_bus, "nvidia").uuids == (
        "GPU-1080000a-0000-0000-0000-000000000000",
    )
    fastest_first = visible_devices(sample.devices, {"CUDA_VISIBLE_DEVICES": "1"}, "nvidia")
    assert fastest_first.uuids is None
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in (fastest_first.problem or "")


async def test_a25_not_found_means_that_nothing_runs_and_is_not_told_every_second(
    tmp_path: Path,
) -> None:
    found = script("h200x8")
    device_answers(found, "pynvml")["nvmlDeviceGetComputeRunningProcesses"] = {"raise": 6}
    async with watched(found, tmp_path) as watch:
        watch.want_processes(True)
        sample = await until(
            watch, lambda one: bool(one.readings) and one.readings[0].processes is not None
        )
        assert sample.readings[0].processes == ()
        assert sample.readings[0].reason is None
        assert watch.said == ""


async def test_a26_a_call_that_blocks_is_waited_for_alone_with_its_age_in_sight(
    tmp_path: Path,
) -> None:
    found = script("call_blocks")
    rates = device_answers(found, "pynvml")["nvmlDeviceGetUtilizationRates"]["series"]
    rates[-1]["block_s"] = 1.5  # 45 s in the report
    rates.append({"gpu": 5, "memory": 5})
    patient = Deadlines(silent_s=0.3, call_s=30)
    async with watched(found, tmp_path, patient) as watch:
        stale = await until(watch, lambda one: one.state == "stale" and (one.age_s or 0) > 1)
        assert (stale.readings[0].state, stale.readings[0].utilisation_percent) == ("stale", 88)
        assert words.state(stale.readings[0]) == "stale 1 s"
        later = await until(watch, lambda one: one.state == "ok")
        assert later.readings[0].utilisation_percent == 5
        assert watch.starts == 1  # nobody was killed, and nobody waited beside it


async def test_a26_a_call_that_never_comes_back_costs_the_reader_its_life_and_is_named(
    tmp_path: Path,
) -> None:
    async with watched("call_blocks", tmp_path, QUICK) as watch:
        sample = await until(watch, lambda one: one.state == "restarting")
        assert "nvmlDeviceGetUtilizationRates of GPU 0 has not come back" in (sample.reason or "")
        await until(watch, lambda one: watch.starts == 2 and one.state == "ok")


_LIBRARY = """
#include <string.h>
typedef void *device;
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned n) { strcpy(text, "565.57.01"); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, device *d) { *d = (device)1; return 0; }
int nvmlDeviceGetName(device d, char *text, unsigned n) { strcpy(text, "NVIDIA Stub"); return 0; }
int nvmlDeviceGetUUID(device d, char *text, unsigned n) { strcpy(text, "GPU-5ab"); return 0; }
struct rates { unsigned gpu, memory; };
int nvmlDeviceGetUtilizationRates(device d, struct rates *r) { r->gpu = 7; r->memory = 3; return 0; }
struct memory { unsigned version; unsigned long long total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(device d, struct memory *m) {
    if (m->version != 0x02000028) return 25;
    m->total = 1000; m->reserved = 100; m->free = 600; m->used = 300; return 0;
}
int nvmlDeviceGetPowerUsage(device d, unsigned *mw) { *mw = 61500; return 0; }
struct pci { char old[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(device d, struct pci *p) {
    memset(p, 0, sizeof *p); strcpy(p->bus_id, "00000000:1B:00.0"); return 0;
}
int nvmlDeviceGetMigMode(device d, unsigned *now, unsigned *next) { *now = *next = 0; return 0; }
int nvmlDeviceGetCudaComputeCapability(device d, int *a, int *b) { *a = 9; *b = 0; return 0; }
int nvmlDeviceGetClockInfo(device d, unsigned kind, unsigned *mhz) { *mhz = 1000 + kind; return 0; }
int nvmlDeviceGetCurrentClocksEventReasons(device d, unsigned long long *bits) {
    *bits = 0x41; return 0;
}
struct field { unsigned id, scope; long long at, took; unsigned type; int result; union {
    unsigned ui; unsigned long long ull; } value; };
int nvmlDeviceGetFieldValues(device d, int count, struct field *f) {
    f[0].result = f[0].id == 82 ? 0 : 3; f[0].value.ui = 71; return 0;
}
struct process { unsigned pid; unsigned long long used; unsigned instance, compute; };
int nvmlDeviceGetComputeRunningProcesses_v3(device d, unsigned *count, struct process *p) {
    unsigned room = *count; *count = 1;
    if (room == 0) return 7;
    p[0].pid = THEIR_PID; p[0].used = 250; return 0;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to build a library with")
def test_a28_the_library_is_found_by_its_soname_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the real nvidia-ml-py, and a library that has only the name that newer drivers ship."""
    source = _LIBRARY.replace("THEIR_PID", str(os.getpid()))
    write_files(tmp_path, {"stub.c": source, "dev/nvidia0": ""})
    library = tmp_path / "libnvidia-ml.so.1"
    command = ["cc", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "stub.c")]
    subprocess.run(command, check=True)
    from specpanel.core.devices.watch import read_once

    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("SPECPANEL_DEVICE_ROOT", str(tmp_path))
    with (tmp_path / "dev/nvidia0").open():
        sample, inventory = read_once(processes=True)
    assert inventory is not None
    nvml = inventory.libraries[0]
    assert (nvml.state, nvml.driver) == ("used", "565.57.01")
    device, figures = sample.devices[0], sample.readings[0]
    assert (device.name, device.uuid) == ("NVIDIA Stub", "GPU-5ab")
    assert (device.bus_id, device.compute_capability) == ("0000:1b:00.0", "9.0")
    assert (figures.utilisation_percent, figures.memory_used_bytes) == (7, 300)
    assert (figures.power_w, figures.memory_temperature_c) == (61.5, 71)
    assert (figures.core_clock_mhz, figures.memory_clock_mhz) == (1001, 1002)
    assert figures.throttle_reasons == ("thermal (hardware)",)
    assert [(one.pid, one.memory_used_bytes) for one in figures.processes or ()] == [
        (os.getpid(), 250)
    ]
    assert figures.absent["temperature_c"] == "this driver has no such call"


def test_a28_without_a_library_there_is_a_reason_and_no_error(tmp_path: Path) -> None:
    found: dict[str, Any] = {"pynvml": {"answers": {"nvmlInit": {"raise": 12}}}}
    sample, inventory = read(found, tmp_path)
    assert (sample.state, inventory.libraries[0].state) == ("none", "absent")
    assert words.none_found(sample).startswith("no NVIDIA or AMD device found (no NVIDIA driver")


def test_the_scripts_reach_the_reader_through_its_environment_alone(tmp_path: Path) -> None:
    """What stands in for the vendor is a module on a path; the panel's process never loads one."""
    environment = build(script("h200x8"), tmp_path)
    program = (
        "import sys; from specpanel.core.devices.watch import read_once; "
        "print(len(read_once()[0].devices), 'pynvml' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.stdout.split() == ["8", "False"], ran.stderr


async def test_a_call_that_is_refused_for_one_thing_is_still_made_for_another(
    tmp_path: Path,
) -> None:
    found = script("vgpu")
    device_answers(found, "pynvml")["nvmlDeviceGetClockInfo:2"] = {"raise": 3}
    async with watched(found, tmp_path) as watch:
        first = await until(watch, lambda one: one.state == "ok")
        answered_s = watch.answered_s
        later = await until(watch, lambda one: (watch.answered_s or 0) > (answered_s or 0) + 0.3)
    for sample in (first, later):
        figures = sample.readings[0]
        assert (figures.core_clock_mhz, figures.memory_clock_mhz) == (345, None)
        assert figures.absent["memory_clock_mhz"] == "not supported"
