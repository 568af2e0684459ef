"""The texts of a device's cells, the same on the command line and in the panel. No markup, no colour."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specpanel.core.devices.records import Device, DeviceReading, DeviceSample

GIB = 2**30


def figure(reading: "DeviceReading | None", name: str, unit: str = "", digits: int = 0) -> str:
    """``97 %``, or ``n/a (MIG)`` where it is absent for a reason, or ``lost`` and ``asleep``."""
    if reading is None:
        return "n/a"
    value = getattr(reading, name)
    if value is None:
        return _absent(reading, name)
    return f"{value:.{digits}f}{' ' + unit if unit else ''}"


def _absent(reading: "DeviceReading", name: str) -> str:
    if reading.state in ("lost", "asleep"):
        return reading.state
    why = reading.absent.get(name)
    return f"n/a ({why})" if why else "n/a"


def memory(reading: "DeviceReading | None") -> str:
    """``126.0/140.4 GiB``; a part that is not known is a question mark."""
    if reading is None:
        return "n/a"
    used, total = reading.memory_used_bytes, reading.memory_total_bytes
    if used is None and total is None:
        return _absent(reading, "memory_used_bytes")
    return f"{_gib(used)}/{_gib(total)} GiB"


def _gib(size_bytes: int | None) -> str:
    return "?" if size_bytes is None else f"{size_bytes / GIB:.1f}"


def power(reading: "DeviceReading | None") -> str:
    """``641/700 W``, without the limit where there is none."""
    if reading is None or reading.power_w is None:
        return figure(reading, "power_w")
    limit = "" if reading.power_limit_w is None else f"/{reading.power_limit_w:.0f}"
    return f"{reading.power_w:.0f}{limit} W"


def short_name(device: "Device") -> str:
    """The name without the maker's; of a slice, its size."""
    if device.kind in ("mig", "partition") and device.partition:
        return f"{'MIG ' if device.kind == 'mig' else ''}{device.partition}"
    name = device.name
    for maker in ("NVIDIA ", "AMD ", "GeForce ", "Instinct ", "Radeon "):
        name = name.removeprefix(maker)
    return name


def state(reading: "DeviceReading | None", age_s: float | None = None) -> str:
    """What is to be said of a device besides its figures: ``stale 12 s``, ``LOST``, ``power cap``."""
    if reading is None:
        return ""
    if reading.state == "lost":
        return "LOST"
    if reading.state == "asleep":
        return "asleep"
    if reading.state == "stale":
        age_s = reading.age_s if reading.age_s is not None else age_s
        return "stale" if age_s is None else f"stale {age_s:.0f} s"
    return ", ".join(reading.throttle_reasons or ())


def none_found(sample: "DeviceSample") -> str:
    return f"no NVIDIA or AMD device found ({sample.reason or 'none was looked for'})"
