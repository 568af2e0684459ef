"""The lines between the reader process and the panel: the one place where records become JSON and back.

The panel asks with ``{"do": "read", "processes": false}``; the reader answers with one line for each
question, and with one inventory when it has started. The reader only writes records and the panel only
reads them, so pydantic, which costs the reader's memory twice over, is imported on this side alone.
"""

import json
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from specpanel.core.devices.records import DeviceInventory, DeviceReading


@dataclass(frozen=True, slots=True)
class Inventory:
    """The reader's first line."""

    inventory: DeviceInventory
    pid: int
    python: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The reader's answer to one question.

    ``slowed_s`` has the period of each tier that was too dear for its own, and ``said`` what a vendor's
    library wrote to the terminal since the last answer.
    """

    readings: tuple[DeviceReading, ...]
    took_ms: float
    slowed_s: dict[str, float]
    said: str = ""


def encoded(message: Inventory | Answer) -> str:
    """One line of JSON, without its end."""
    kind = "inventory" if isinstance(message, Inventory) else "answer"
    return json.dumps({"kind": kind, **asdict(message)}, separators=(",", ":"))


def decoded(line: bytes) -> Inventory | Answer | None:
    """What a line of the reader says; None where it is no line of ours (a library wrote into the pipe)."""
    try:
        found = json.loads(line)
        kind = found.pop("kind")
        message = _adapter(kind).validate_python(found)
    except (ValueError, KeyError, AttributeError, TypeError):
        return None
    return message if isinstance(message, Inventory | Answer) else None


@cache
def _adapter(kind: str) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter({"inventory": Inventory, "answer": Answer}[kind])


def question(*, processes: bool) -> bytes:
    return json.dumps({"do": "read", "processes": processes}).encode() + b"\n"
