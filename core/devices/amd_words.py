"""What amdsmi's numbers mean, in words, and which AMD chips share memory with the host.

Status codes and names are those of ``amdsmi_status_t`` as the Python package amdsmi 7.0.2 lists them.
"""

import re
from typing import Any

from specpanel.core.devices.fields import to_number

NOT_SUPPORTED = 2
NOT_YET_IMPLEMENTED = 3
BUSY = 30
DRIVER_NOT_LOADED = 34

_WORDS: dict[int, str] = {
    2: "not supported",
    3: "not supported",
    10: "no permission",
    8: "the driver timed out",
    30: "busy",
    31: "not found",
    40: "no data",
    43: "unexpected data",
}

# Names of the accumulators in gpu_metrics that grow while a limit holds the card back.
LIMITS: dict[str, str] = {
    "prochot_residency_acc": "processor hot",
    "ppt_residency_acc": "power cap",
    "socket_thm_residency_acc": "thermal (socket)",
    "vr_thm_residency_acc": "thermal (voltage regulator)",
    "hbm_thm_residency_acc": "thermal (memory)",
}

POWER_FIELDS = ("current_socket_power", "average_socket_power", "socket_power")

_UNIFIED_TARGETS = frozenset(
    {
        "gfx902",
        "gfx90c",
        "gfx1013",
        "gfx1033",
        "gfx1035",
        "gfx1036",
        "gfx1103",
        "gfx1150",
        "gfx1151",
        "gfx1152",
        "gfx1153",
    }
)
_DIES = re.compile(r"\bMI250")
PARTITIONED = frozenset({"DPX", "TPX", "QPX", "CPX"})


def words_of(code: int | None, text: str) -> str:
    """Why a figure is absent, in a few words for a table."""
    return _WORDS.get(code, text) if code is not None else text


def code_of(error: Exception) -> int | None:
    """The status code that an exception of amdsmi carries."""
    given = getattr(error, "err_code", None)
    number = to_number(given)
    return None if number is None else int(number)


def import_failure(error: Exception) -> str:
    """Why ``import amdsmi`` failed. Without its library it raises KeyError, not ImportError."""
    text = " ".join(str(error).split())
    if isinstance(error, ModuleNotFoundError) and error.name == "amdsmi":
        return "the Python package amdsmi is not installed"
    if "libamd_smi" in text and not isinstance(error, AttributeError):
        return "amdsmi is installed, and its library libamd_smi.so is missing"
    return f"amdsmi does not fit the ROCm of this machine: {text[:120] or type(error).__name__}"


def init_failure(code: int | None, text: str, *, wsl: bool) -> str:
    told = "" if code is None else f" (code {code})"
    if code == DRIVER_NOT_LOADED:
        return (
            f"telemetry unavailable in WSL{told}"
            if wsl
            else f"the amdgpu driver is not loaded{told}"
        )
    return f"amdsmi does not start: {words_of(code, text)}{told}"


def is_unified(name: str, target: str | None) -> bool:
    """Whether the chip has no memory of its own: an APU, by its graphics target, or the MI300A."""
    return "MI300A" in name or (target or "").lower() in _UNIFIED_TARGETS


def has_two_dies(name: str) -> bool:
    return bool(_DIES.search(name))


def limits_that_grew(before: dict[str, float], metrics: Any) -> tuple[dict[str, float], list[str]]:
    """The accumulators now, and the limits among them that grew since ``before``."""
    now = {}
    for name in LIMITS:
        number = to_number(metrics.get(name))
        if number is not None and number < 2**63:
            now[name] = number
    return now, [
        words for name, words in LIMITS.items() if now.get(name, 0) > before.get(name, 1e99)
    ]
