"""One thing that preflight found: what is the matter, how bad it is, and what to do."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["error", "warning", "note"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")

# What ends by itself where a server of ours stops before the new one starts.
ENDS_WITH_OUR_SERVER: frozenset[str] = frozenset({"port-taken", "device-busy", "memory-low"})

# A setting and what it should be; None takes it out of the profile, back to its default.
Mend = tuple[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """An error means that vLLM would not start, or not do what was asked; a warning, that it may
    disappoint; a note is good to know.

    ``code`` is the rule's id, for scripts. ``text`` is one sentence without a full stop at its end, ``fix``
    an instruction. ``field`` is the profile's setting it is about, dotted; None for the machine.
    ``evidence`` are the facts that it rests on, as they were read. ``mend`` are the settings that end it,
    where settings can: one key applies them.
    """

    code: str
    severity: Severity
    text: str
    fix: str = ""
    field: str | None = None
    evidence: tuple[str, ...] = ()
    mend: tuple[Mend, ...] = ()


def first_mendable(findings: Iterable[Finding]) -> Finding | None:
    """The first finding that settings can end, in the order given."""
    return next((finding for finding in findings if finding.mend), None)


def as_table(finding: Finding) -> Mapping[str, Any]:
    """The finding for JSON: one more shape of it would be one too many."""
    return {
        "code": finding.code,
        "severity": finding.severity,
        "text": finding.text,
        "fix": finding.fix,
        "field": finding.field,
        "evidence": list(finding.evidence),
        "mend": dict(finding.mend),
    }
