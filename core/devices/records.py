"""What is known of the accelerators of a machine: who they are, and what they do at one moment.

These records cross every border: the reader process writes them as JSON, a Frame carries them, a
recording keeps them. Absent is ``None`` and never zero; ``absent`` says why, by the name of the field.
This module imports nothing but the standard library, because the reader runs in any interpreter.
"""

from dataclasses import dataclass, field
from typing import Literal

Vendor = Literal["nvidia", "amd"]
# "die" is one half of an MI250 package, which ROCm counts as a device of its own.
DeviceKind = Literal["gpu", "mig", "partition", "die"]
MemoryKind = Literal["own", "unified"]
DeviceState = Literal["ok", "lost", "asleep", "stale"]
LibraryState = Literal["used", "absent", "failed"]
ReaderState = Literal["starting", "ok", "stale", "restarting", "none"]
Tier = Literal["fast", "slow", "processes"]


@dataclass(frozen=True, slots=True)
class Device:
    """Who a device is. ``uuid`` is the key everywhere; an index means nothing without its order.

    A MIG slice or a partition has ``parent_uuid``. ``index`` counts the cards of one vendor in the
    order of the PCI bus, as vLLM does under ``CUDA_DEVICE_ORDER=PCI_BUS_ID``; for a slice it counts
    within its parent. A partition of an AMD card is a device to HIP, and so are the dies of an MI250:
    theirs is ``hip_index``.
    """

    uuid: str
    vendor: Vendor
    kind: DeviceKind
    index: int
    name: str
    bus_id: str | None = None
    parent_uuid: str | None = None
    parent_index: int | None = None
    memory_kind: MemoryKind = "own"
    partition: str | None = None  # "3g.40gb", "CPX/NPS4"
    power_shared_with_uuid: str | None = None  # the device whose power figure holds this one's too
    hip_index: int | None = None  # the number that HIP_VISIBLE_DEVICES takes; None on NVIDIA
    node: str | None = None  # "/dev/dri/renderD128", where it is known
    compute_capability: str | None = None  # "9.0", CUDA's
    graphics_target: str | None = None  # "gfx942", ROCm's

    @property
    def label(self) -> str:
        """``3`` for a card, ``3:1`` for the second slice of card 3."""
        if self.parent_index is None:
            return str(self.index)
        return f"{self.parent_index}:{self.index}"


@dataclass(frozen=True, slots=True)
class DeviceProcess:
    """A process of this namespace that holds memory of a device."""

    pid: int
    name: str | None
    memory_used_bytes: int | None


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """What one device does. ``absent`` holds the reason of a ``None``, by the name of its field.

    ``memory_total_bytes`` of unified memory is what is used by the device plus what the host could still
    give, and changes from sample to sample. ``vendor_fields`` keep the vendor's own names and units
    (``gfx_activity`` in percent, ``current_socket_power`` in watts).
    """

    uuid: str
    state: DeviceState = "ok"
    reason: str | None = None  # why the state is not "ok"; also a warning beside good figures
    age_s: float | None = None  # of the figures, where they are older than the sample
    utilisation_percent: float | None = None  # share of time with a kernel running, 0..100
    memory_activity_percent: float | None = None  # share of time the memory was read or written
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    power_source: str | None = None  # the call or file that gave the power
    temperature_c: float | None = None
    temperature_source: str | None = None  # "core", "junction", "edge", "memory", or hwmon's label
    memory_temperature_c: float | None = None
    core_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    throttle_reasons: tuple[str, ...] | None = None  # () is "not throttled", None is "not known"
    processes: tuple[DeviceProcess, ...] | None = None  # None until someone asks for them
    vendor_fields: dict[str, float | str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CallCost:
    """What one call of a vendor's library took, over the devices that it was made for at the start."""

    call: str
    tier: Tier
    calls: int
    median_ms: float
    worst_ms: float


@dataclass(frozen=True, slots=True)
class DeviceLibrary:
    """A way to read devices: used, or not, and why not."""

    name: str  # "NVML", "amdsmi", "sysfs"
    vendor: Vendor
    state: LibraryState
    version: str | None = None  # of the library
    binding: str | None = None  # of the Python package
    driver: str | None = None  # of the kernel's driver
    reason: str | None = None
    fix: str | None = None
    costs: tuple[CallCost, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceInventory:
    """What was found, parents before their slices, NVIDIA first, each in the order of the PCI bus."""

    devices: tuple[Device, ...] = ()
    libraries: tuple[DeviceLibrary, ...] = ()

    @property
    def why_none(self) -> str:
        """Why there is no device, in a few words for each library that was tried."""
        reasons = [one.reason for one in self.libraries if one.reason]
        return "; ".join(reasons) or "none was looked for"


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """All devices at one moment, as a Frame carries them.

    ``age_s`` is the age of the newest answer of the reader; it grows while the reader is silent, and the
    readings turn "stale". ``readings`` stand in the order of ``devices``. ``server_uuids`` are the
    devices that the watched server uses; ``None`` where that is not known.
    """

    time_unix: float
    state: ReaderState
    age_s: float | None = None
    reason: str | None = None  # what is wrong with the reader, or why there is no device
    devices: tuple[Device, ...] = ()
    readings: tuple[DeviceReading, ...] = ()
    server_uuids: tuple[str, ...] | None = None
