"""What should not go on in a training, judged from what its story knows. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from specpanel.core.training.line_values import text

Severity = Literal["error", "warning", "note"]
RECENT = 20
"""Steps that are looked at together."""
STARVED = 0.5
"""Share of their time in which a training that waits for hidden states waits too much."""
_ORDER: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something to be said about the run, and what to do about it."""

    code: str
    severity: Severity
    text: str
    fix: str = ""


def trouble_of(line: Mapping[str, Any]) -> Trouble:
    """What a finding says."""
    said = text(line.get("severity"))
    severity: Severity = said if said in ("error", "warning") else "note"  # type: ignore[assignment]
    return Trouble(text(line.get("code")), severity, text(line.get("text")), text(line.get("fix")))


def alarms(
    troubles: Sequence[Trouble],
    *,
    failure: str | None,
    waiting_share: float | None,
    dropped: float,
    unreadable: int,
) -> list[Trouble]:
    """What should not go on, the worst first.

    Args:
        troubles: what the run has told of itself.
        failure: the sentence that it ended with.
        waiting_share: of the last ``RECENT`` steps; None where there are not as many.
        dropped: samples that could not be had.
        unreadable: lines of the events.
    """
    found = list(troubles)
    if failure:
        found.insert(0, Trouble("failed", "error", failure))
    told = {one.code for one in found}
    if waiting_share is not None and waiting_share > STARVED and "training-starved" not in told:
        said = f"{waiting_share:.0%} of the last {RECENT} steps was waiting for hidden states"
        found.append(Trouble("training-starved", "warning", said))
    if dropped:
        found = [one for one in found if one.code != "training-dropped"]
        said = f"{dropped:.0f} samples could not be had"
        found.append(Trouble("training-dropped", "warning", said))
    if unreadable:
        many = "line" if unreadable == 1 else "lines"
        said = f"{unreadable} {many} of the events could not be read"
        found.append(Trouble("events-unreadable", "note", said))
    return sorted(found, key=lambda one: _ORDER.index(one.severity))
