"""Every figure of a device in one table: which values can be true, in which unit it may come.

A vendor's answer is a number, a text, bytes, a ``{"value": …, "unit": …}``, a list with holes, or one of
several ways to say "not available". `to_number` reads them all; `measure` holds the result against the
table. What is out of range is a gap: to clamp it would draw a full GPU that nobody saw.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_16 = 0xFFFF
MAX_32 = 0xFFFFFFFF
MAX_64 = 0xFFFFFFFFFFFFFFFF


# As floats, because answers become floats, and 2^64-1 is none: it is rounded to 2^64.
_WIDE = frozenset({float(MAX_32), float(MAX_64)})
_ALL = _WIDE | {float(MAX_16)}
_NOTHING = frozenset({"", "n/a", "na", "none", "nan", "not supported", "not available", "unknown"})

NOT_SUPPORTED = "not supported"
NOT_GIVEN = "not given"
OUT_OF_RANGE = "out of range"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a figure can be. ``units`` are tried in turn: the first that puts it in range is its unit.

    Only where a vendor's own releases disagree (amdsmi's power limit came in watts and in microwatts) is
    there more than one. ``sentinels`` are looked at before any unit.
    """

    low: float
    high: float
    units: tuple[float, ...] = (1.0,)
    sentinels: frozenset[float] = _ALL
    whole: bool = False


_PERCENT = Rule(0, 100)
_WATTS = Rule(0, 3000, units=(1.0, 1e-3, 1e-6))
_CELSIUS = Rule(-40, 150, units=(1.0, 1e-3))
_MEGAHERTZ = Rule(0, 10_000)
# 65535 bytes are as possible as any other number of bytes. No device has 16 TiB yet.
_BYTES = Rule(0, 2**44, sentinels=_WIDE, whole=True)

FIELDS: dict[str, Rule] = {
    "utilisation_percent": _PERCENT,
    "memory_activity_percent": _PERCENT,
    "memory_used_bytes": _BYTES,
    "memory_total_bytes": _BYTES,
    "power_w": _WATTS,
    "power_limit_w": Rule(1, 3000, units=_WATTS.units),  # 0 is how "no limit known" is written
    "temperature_c": _CELSIUS,
    "memory_temperature_c": _CELSIUS,
    "core_clock_mhz": _MEGAHERTZ,
    "memory_clock_mhz": _MEGAHERTZ,
}

# The fields that each tier reads, besides those that explain them.
FAST = (
    "utilisation_percent",
    "memory_activity_percent",
    "memory_used_bytes",
    "memory_total_bytes",
)
SLOW = (
    "power_w",
    "power_limit_w",
    "power_source",
    "temperature_c",
    "temperature_source",
    "memory_temperature_c",
    "core_clock_mhz",
    "memory_clock_mhz",
    "throttle_reasons",
)
TIER_FIELDS: dict[str, tuple[str, ...]] = {
    "fast": FAST,
    "slow": SLOW,
    "processes": ("processes",),
}


def to_number(value: Any) -> float | None:
    """The number in a vendor's answer; None where there is none.

    A list gives the mean of its numbers (the instances of one partition), a mapping its ``value`` or,
    without one, the first of its items that holds a number.
    """
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str | bytes):
        return _from_text(value)
    if isinstance(value, Mapping):
        inner = [value["value"]] if "value" in value else list(value.values())
        return next((number for item in inner if (number := to_number(item)) is not None), None)
    if isinstance(value, list | tuple):
        numbers = [number for item in value if (number := to_number(item)) is not None]
        return sum(numbers) / len(numbers) if numbers else None
    return to_number(getattr(value, "value", None))  # a ctypes number or an enumeration


def _from_text(value: str | bytes) -> float | None:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    text = text.strip().strip("[]").strip()
    if text.lower() in _NOTHING:
        return None
    try:
        number = float(int(text, 16)) if text.lower().startswith("0x") else float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def measure(name: str, value: Any, *, unit: float | None = None) -> tuple[float | None, str | None]:
    """The figure ``name`` from a vendor's answer, and why it is absent where it is.

    Args:
        name: a key of `FIELDS`.
        value: the answer.
        unit: the size of one of the vendor's units in ours (1e-3 for milliwatts); the rule's where absent.
    """
    rule = FIELDS[name]
    number = to_number(value)
    if number is None or number in rule.sentinels:
        return None, NOT_GIVEN
    for size in rule.units if unit is None else (unit,):
        figure = number * size
        if rule.low <= figure <= rule.high:
            return (round(figure) if rule.whole else figure), None
    return None, OUT_OF_RANGE


def to_text(value: Any) -> str | None:
    """A name from a vendor's answer; None where it holds nothing, or bytes that are no text."""
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError:
            return None
    if value is None:
        return None
    text = str(value).replace("\0", "").strip()
    return None if text.strip("[]").lower() in _NOTHING else text
