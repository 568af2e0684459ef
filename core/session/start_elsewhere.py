"""How far a start has come that another specpanel began: told from its log and its port."""

import time

from specpanel.core.engine import identity
from specpanel.core.engine.logfile import LogFollower
from specpanel.core.engine.logline import parse_line
from specpanel.core.engine.phases import Phase, PhaseTracker
from specpanel.core.engine.registry import ServerRecord
from specpanel.core.monitor.monitor import ServerFacts
from specpanel.core.printable import without_secrets

_PORT_EVERY_S = 1.0


class StartElsewhere:
    """Follows one such start. ``done`` once the server has been ready, and for ever after.

    A server that was ready long ago is done at the first look. Where the log is silent or gone, the
    port tells: vLLM listens only when it can serve.
    """

    def __init__(self, record: ServerRecord) -> None:
        self.done = False
        self._record = record
        self._follower = LogFollower(record.log)
        self._tracker = PhaseTracker()
        self._entered_s: float | None = None  # unknown for the phase that it is found in
        self._last_line: str | None = None
        self._port_asked_s = -1e9

    def describe(self, facts: ServerFacts) -> None:
        """Bring ``facts`` up to date with the start; afterwards they are left alone."""
        if self.done:
            return
        found = self._last_line is not None
        before = self._tracker.current
        now = time.monotonic()
        self._read_log(now)
        if found and self._tracker.current is not before:
            self._entered_s = now
        self.done = self._tracker.current is Phase.READY or self._listens(now)
        facts.starting = not self.done
        facts.phase = None if self.done else str(self._tracker.current)
        facts.phase_s = None if self._entered_s is None else now - self._entered_s
        facts.detail = None if self.done else self._last_line

    def _read_log(self, now: float) -> None:
        for raw in self._follower.new_lines():
            entry = parse_line(raw)
            if entry.message.strip():
                self._last_line = without_secrets(entry.message.strip())
            self._tracker.feed(entry, now)

    def _listens(self, now: float) -> bool:
        if now - self._port_asked_s < _PORT_EVERY_S:
            return False
        self._port_asked_s = now
        record = self._record
        members = identity.session_members(record.pid, record.start_mark)
        return any(identity.listens(pid, record.port) for pid in members)
