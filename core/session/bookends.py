"""What stands at both ends of a recording: who writes it, and why it was closed. Pure but for one pid.

A recording without a closing line whose writer is gone was cut off: its program was killed.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from specpanel.core.engine import identity
from specpanel.core.monitor.recording import line


@dataclass(frozen=True, slots=True)
class Writer:
    """The process that writes a recording. ``start_mark`` tells it from a later one of the same pid."""

    kind: ClassVar[str] = "writer"
    pid: int
    start_mark: str | None

    @property
    def lives(self) -> bool:
        return identity.leader_lives(self.pid, self.start_mark)


def writer_line() -> str:
    """The line that a recording of this process begins with."""
    return line(Writer.kind, asdict(Writer(os.getpid(), identity.start_mark(os.getpid()))))


def writer_of(table: Mapping[str, Any]) -> Writer | None:
    """The writer that a line of this kind names; None where it is of another shape."""
    pid, mark = table.get("pid"), table.get("start_mark")
    if not isinstance(pid, int) or not isinstance(mark, str):
        return None
    return Writer(pid, mark)


CLOSED = "closed"


def closing_line(reason: str, *, stopped: bool = False) -> str:
    """The last line of a recording that has no summary.

    Args:
        reason: a clause without a full stop.
        stopped: the server is stopped after this, unseen by the recording.
    """
    return line(CLOSED, {"reason": reason, "stopped": stopped})
