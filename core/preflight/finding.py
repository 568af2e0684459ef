"""One thing that preflight found: what is the matter, how bad it is, and what to do."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Finding:
    """An error means that vLLM would not start as asked; a warning, that it may disappoint.

    ``code`` names the rule for scripts. ``text`` is one sentence without a full stop at its end, ``fix``
    an instruction. ``field`` is the profile's field it is about, dotted; None for the machine.
    """

    code: str
    severity: Severity
    text: str
    fix: str = ""
    field: str | None = None
