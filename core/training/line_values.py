"""Values from lines that anybody may have written to: as expected, or absent. Never an error. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Any


def number(value: Any) -> float | None:
    """A finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def count(value: Any) -> int | None:
    """A whole number from 0 on, else None."""
    found = number(value)
    return None if found is None or found < 0 else int(found)


def text(value: Any) -> str:
    """A text, else an empty one."""
    return value if isinstance(value, str) else ""


def table(found: Any) -> Mapping[str, Any]:
    """An object, else an empty one."""
    return found if isinstance(found, Mapping) else {}


def mean(values: Sequence[float | None]) -> float | None:
    """Of those that are there; None where none is."""
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None
