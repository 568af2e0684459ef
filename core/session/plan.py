"""What a session is to do, and how it ended."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.errors import ExitCode, SpecpanelError
from specpanel.core.session.summary import Leg, Summary
from specpanel.core.settings.profile import Profile
from specpanel.core.speculation.verdict import Verdict
from specpanel.core.traffic.records import RequestRecord


@dataclass(frozen=True, slots=True)
class Plan:
    """What a session is to do.

    ``record_by_itself``: nobody asked for the recording, so one that cannot be written is a note.
    ``force``: preflight's errors are told and recorded, and keep nothing from being started.
    """

    profile: Profile
    baseline: bool = False
    attach: str | None = None
    keep_running: bool = False
    record: Path | None = None
    record_by_itself: bool = False
    force: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a session ended: what it measured, and the error that ended it early.

    ``interpreter`` is what it launched with, None where it launched nothing; ``records`` are by leg.
    """

    summary: Summary
    error: SpecpanelError | None
    interpreter: InterpreterFacts | None = None
    records: tuple[tuple[str, tuple[RequestRecord, ...]], ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        if self.error is not None:
            return self.error.exit_code
        return ExitCode.INTERRUPTED if self.summary.interrupted else ExitCode.DONE


Judge = Callable[[Profile, Leg, InterpreterFacts], Verdict | None]
"""What earlier experiments say of a leg that was measured without a baseline; None: nothing."""
