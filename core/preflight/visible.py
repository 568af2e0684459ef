"""The devices that a launch would see, read once and remembered for some seconds. Starts a child for it."""

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from specpanel.core.preflight.gpu_capabilities import capability_of
from specpanel.core.preflight.surroundings import DeviceState
from specpanel.core.settings.profile import Profile

if TYPE_CHECKING:
    from specpanel.core.devices.free_memory import MemoryOutlook
    from specpanel.core.devices.records import DeviceProcess

KEPT_S = 10.0
_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
)
_known: dict[tuple[str | None, ...], tuple[float, "Visible"]] = {}

Visible = tuple[tuple[DeviceState, ...] | None, str | None]


def visible_now(profile: Profile, platform: str, *, fresh: bool = False) -> Visible:
    """Devices in vLLM's order (None: not known; empty: none was found), and what stands in the way.

    Nothing is read on a CPU. Blocks for as long as the reader takes, some tenths of a second. ``fresh``
    reads anew: right before a start, what was free ten seconds ago says little.
    """
    if platform not in ("cuda", "rocm"):
        return None, None
    environment = {**os.environ, **profile.engine.environment}
    asked = (platform, *(environment.get(name) for name in _VARIABLES))
    now = time.monotonic()
    if not fresh and asked in _known and now - _known[asked][0] < KEPT_S:
        return _known[asked][1]
    found = _read(environment, platform)
    _known[asked] = (now, found)
    return found


def _read(environment: Mapping[str, str], platform: str) -> Visible:
    # Imported here: a launch on a CPU needs none of it.
    from specpanel.core.devices.free_memory import memory_outlook

    outlook = memory_outlook(environment, vendor="amd" if platform == "rocm" else "nvidia")
    return as_states(outlook, platform)


def _holder(process: "DeviceProcess") -> str:
    size = process.memory_used_bytes
    held = "" if size is None else f" {size / 1024**3:.1f} GiB"
    return f"{process.name or 'a process'} (pid {process.pid}){held}"


def as_states(outlook: "MemoryOutlook", platform: str) -> Visible:
    """The devices of an outlook as rules see them."""
    if outlook.blocked:
        return None, outlook.problem or "the driver does not answer"
    if not outlook.devices:
        return (), outlook.problem or "none was found"
    states = (
        DeviceState(
            one.device.name,
            one.total_bytes,
            one.free_bytes,
            capability_of(one.device.name) if platform == "cuda" else None,
            tuple(map(_holder, one.holders)),
        )
        for one in outlook.devices
    )
    return tuple(states), None
