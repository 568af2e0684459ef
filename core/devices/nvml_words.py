"""What NVML's numbers mean, in words: error codes, throttle bits, chips with unified memory.

Codes and bits are those of ``nvml.h`` as the Python package nvidia-ml-py 13.615 lists them.
"""

import re

UNINITIALIZED = 1
NOT_SUPPORTED = 3
NOT_FOUND = 6
NO_LIBRARY = 12
NO_FUNCTION = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
UNKNOWN = 999

# code → (why there is nothing, what to do)
INIT_FAILURES: dict[int, tuple[str, str]] = {
    4: ("this user may not use the NVIDIA driver", "Check the rights of /dev/nvidiactl."),
    9: ("the NVIDIA driver is not loaded", "Load the kernel module nvidia, or reboot."),
    12: ("no NVIDIA driver: no libnvidia-ml.so.1", ""),
    15: ("a GPU is lost, and the driver does not start", "Reset it, or reboot."),
    17: ("the system blocked the driver", "In a container, pass the NVIDIA devices to it."),
    18: (
        "the NVIDIA kernel module and its library have different versions",
        "Reboot, or unload and load the kernel module: the driver was updated under it.",
    ),
    999: (
        "the NVIDIA driver gives an unknown error",
        "In a container that worked before, make the container anew: it lost its access to the GPU.",
    ),
}

_WORDS: dict[int, str] = {
    3: "not supported",
    4: "no permission",
    6: "not found",
    10: "the driver timed out",
    13: "this driver has no such call",
    15: "GPU is lost",
    16: "GPU needs a reset",
    999: "unknown driver error",
}

LOST: dict[int, str] = {
    GPU_IS_LOST: "the GPU is lost: it fell off the bus or hangs; reset it or reboot",
    RESET_REQUIRED: "the GPU needs a reset",
}

CONTAINER_LOST = "lost access to the GPU: make the container anew (vLLM may still run)"

# "idle" (bit 0) is not a reason why a busy GPU is slow, and is left out.
THROTTLE_BITS: dict[int, str] = {
    0x002: "application clocks",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "thermal (software)",
    0x040: "thermal (hardware)",
    0x080: "power brake",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliability limit",
}

_UNIFIED = re.compile(r"\b(GB10|Thor|Orin|Xavier|Tegra|Jetson|nvgpu)\b", re.IGNORECASE)
# A total this close to the host's own memory is the host's memory.
_SAME_MEMORY = 0.08


def words_of(code: int | None, text: str) -> str:
    """Why a figure is absent, in a few words for a table."""
    return _WORDS.get(code, text) if code is not None else text


def throttle_reasons(bits: int) -> tuple[str, ...]:
    return tuple(words for bit, words in THROTTLE_BITS.items() if bits & bit)


def is_unified(name: str, total_bytes: float | None, host_total_bytes: int | None) -> bool:
    """Whether a device has no memory of its own.

    One and the same machine gave an error under one driver and a number under another, so the chip's
    name decides together with the value: absent, 0, or about what the host has.
    """
    if not _UNIFIED.search(name):
        return False
    if not total_bytes or host_total_bytes is None:
        return True
    return abs(total_bytes - host_total_bytes) <= _SAME_MEMORY * host_total_bytes
