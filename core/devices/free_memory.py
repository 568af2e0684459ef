"""How much memory a launch would find free on its devices: a look before the start, for preflight.

Blocking; call it from a thread or before a loop runs.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from specpanel.core.devices.child import Deadlines
from specpanel.core.devices.records import (
    Device,
    DeviceProcess,
    DeviceReading,
    DeviceSample,
    Vendor,
)
from specpanel.core.devices.visibility import visible_devices
from specpanel.core.devices.watch import read_once

_WAIT_S = 15.0


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """A visible device; ``free_bytes`` is None with the reason in ``absent``.

    ``shared`` says that the memory is also claimed by others: the host, or the card's other partitions.
    """

    device: Device
    free_bytes: int | None
    total_bytes: int | None
    shared: bool = False
    absent: str | None = None
    holders: tuple[DeviceProcess, ...] = ()  # of this namespace


@dataclass(frozen=True, slots=True)
class MemoryOutlook:
    """The devices that a launch may use, in its own order. ``problem`` says why there is none, or a doubt.

    ``blocked`` says that the driver itself is broken, so that no launch on it can work.
    """

    devices: tuple[DeviceMemory, ...]
    problem: str | None = None
    blocked: bool = False

    def least_free_bytes(self, count: int = 1) -> int | None:
        """Free memory of the fullest of the first ``count`` devices; None where it is not known."""
        sizes = [one.free_bytes for one in self.devices[:count]]
        known = [size for size in sizes if size is not None]
        return min(known) if known and len(known) == len(sizes) == count else None


def memory_outlook(
    environment: Mapping[str, str] | None = None,
    *,
    vendor: Vendor | None = None,
    python: str | None = None,
    deadlines: Deadlines | None = None,
) -> MemoryOutlook:
    """Read every device once and say what a program with ``environment`` would find.

    Args:
        environment: of the launch; this process's where absent.
        vendor: "nvidia" or "amd", where the build of vLLM tells it; else that of the devices here.
        python: the interpreter of the reader.
        deadlines: how long to wait for what.
    """
    sample, inventory = read_once(
        python=python, deadlines=deadlines, wait_s=_WAIT_S, processes=True
    )
    libraries = inventory.libraries if inventory else ()
    failures = {one.vendor: one.reason or "" for one in libraries if one.state == "failed"}
    return outlook(sample, os.environ if environment is None else environment, vendor, failures)


def outlook(
    sample: DeviceSample,
    environment: Mapping[str, str],
    vendor: Vendor | None = None,
    failures: Mapping[Vendor, str] | None = None,
) -> MemoryOutlook:
    """The outlook of a sample, read before.

    ``failures`` are reasons of libraries that are there and do not work, by vendor. A broken NVML means a
    broken driver; a broken amdsmi says nothing of ROCm.
    """
    vendors = {device.vendor for device in sample.devices}
    chosen: Vendor = vendor or ("amd" if vendors == {"amd"} else "nvidia")
    broken = (failures or {}).get("nvidia") if chosen == "nvidia" else None
    if not any(device.vendor == chosen for device in sample.devices):
        return MemoryOutlook((), broken or sample.reason, blocked=broken is not None)
    visible = visible_devices(sample.devices, environment, chosen)
    if visible.uuids is None:
        return MemoryOutlook((), visible.problem)
    device_by_uuid = {device.uuid: device for device in sample.devices}
    reading_by_uuid = {reading.uuid: reading for reading in sample.readings}
    found = tuple(
        _memory(device_by_uuid[uuid], reading_by_uuid.get(uuid)) for uuid in visible.uuids
    )
    return MemoryOutlook(found, visible.problem)


def _memory(device: Device, reading: DeviceReading | None) -> DeviceMemory:
    unified = device.memory_kind == "unified"
    shared = unified or device.kind == "partition"
    if reading is None or reading.state in ("lost", "asleep"):
        why = "not read" if reading is None else reading.reason or reading.state
        return DeviceMemory(device, None, None, shared, why)
    used, total = reading.memory_used_bytes, reading.memory_total_bytes
    if used is not None and total is not None:
        free = max(0, total - used)
        return DeviceMemory(device, free, total, shared, holders=reading.processes or ())
    if unified:
        return DeviceMemory(device, psutil.virtual_memory().available, None, shared)
    absent = reading.absent.get("memory_used_bytes") or reading.absent.get("memory_total_bytes")
    return DeviceMemory(device, None, total, shared, absent or "not given")
