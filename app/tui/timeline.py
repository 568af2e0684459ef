"""An hour of what the charts draw, on one time axis, and the phases of a start. Pure.

A Frame weighs some kilobytes and a chart needs a few numbers of it, so the numbers are kept, in columns.
"""

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specpanel.core.monitor.frame import Frame

HISTORY_FRAMES = 3600  # an hour at one Frame a second

Sample = Callable[["Frame"], Sequence[float | None]]


@dataclass(frozen=True, slots=True)
class Moment:
    """One Frame's numbers for one chart, and where they stand.

    ``breaks`` means that no line leads to it from the one before; ``note`` is what a chart writes there:
    the Frame's own mark, or that the server started over.
    """

    time_s: float
    breaks: bool
    note: str | None
    values: Sequence[float | None]


class Timeline:
    """Takes Frames in and keeps a sample of each for every track.

    Times only grow, even when a second monitor starts at zero. All memory but that of further columns
    is taken at the start.

    Args:
        tracks: by name, what is kept of a Frame. A sample may be longer than the one before.
        capacity: Frames kept.
    """

    def __init__(self, tracks: dict[str, Sample], capacity: int = HISTORY_FRAMES) -> None:
        self._capacity = capacity
        self._samples = dict(tracks)
        self._columns: dict[str, list[array[float]]] = {name: [] for name in tracks}
        self._times = array("d", bytes(8 * capacity))
        self._breaks = bytearray(capacity)
        self._notes: dict[int, str] = {}
        self._offset_s = 0.0
        self.count = 0
        """Frames taken so far, those no longer kept included."""
        self.latest: Frame | None = None
        self.engine_seen_s: float | None = None
        """When an engine last gave numbers."""
        self.phases = PhaseLog()

    def take(self, frame: "Frame") -> None:
        """Places a Frame after all that came before."""
        time_s, breaks, note = self._place(frame)
        slot = self.count % self._capacity
        self._times[slot] = time_s
        self._breaks[slot] = breaks
        self._notes.pop(self.count - self._capacity, None)
        if note is not None:
            self._notes[self.count] = note
        for name, sample in self._samples.items():
            self._keep(self._columns[name], slot, sample(frame))
        self.phases.add(frame)
        if frame.engine is not None:
            self.engine_seen_s = time_s
        self.latest = frame
        self.count += 1

    def _place(self, frame: "Frame") -> tuple[float, bool, str | None]:
        last = self.latest
        if last is None:
            return frame.elapsed_s, True, frame.mark
        again = frame.elapsed_s < last.elapsed_s
        if again:
            self._offset_s = self.now_s + 1.0 - frame.elapsed_s
        restarts = frame.epoch != last.epoch
        note = frame.mark if frame.mark is not None else "restart" if restarts else None
        return frame.elapsed_s + self._offset_s, again or restarts, note

    def _keep(
        self, columns: list["array[float]"], slot: int, values: Sequence[float | None]
    ) -> None:
        while len(columns) < len(values):
            columns.append(array("d", [math.nan]) * self._capacity)
        for column, value in zip_longest(columns, values):
            column[slot] = math.nan if value is None else value

    @property
    def now_s(self) -> float:
        """The time of the newest Frame; 0 before the first."""
        return self._times[(self.count - 1) % self._capacity] if self.count else 0.0

    def __len__(self) -> int:
        return min(self.count, self._capacity)

    def time_of(self, number: int) -> float:
        """The time of Frame ``number``, counted from 0 as they were taken; it must still be kept."""
        return self._times[number % self._capacity]

    def moments(
        self, track: str, first: int = 0, until: int | None = None, *, since_s: float = -math.inf
    ) -> Iterator[Moment]:
        """Frames ``first`` to ``until`` (not included), as far as they are kept, from ``since_s`` on."""
        columns = self._columns[track]
        end = self.count if until is None else min(until, self.count)
        first = max(first, self.count - len(self))
        if first < end and self.time_of(first) < since_s:
            first = bisect_left(range(end), since_s, lo=first, key=self.time_of)
        for number in range(first, end):
            slot = number % self._capacity
            yield Moment(
                self._times[slot],
                bool(self._breaks[slot]),
                self._notes.get(number),
                [None if math.isnan(column[slot]) else column[slot] for column in columns],
            )


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a start and how long it took, or takes so far."""

    name: str
    took_s: float | None
    done: bool


class PhaseLog:
    """The phases that the current start went through."""

    def __init__(self) -> None:
        self._phases: list[Phase] = []

    def add(self, frame: "Frame") -> None:
        if frame.server.state != "starting" or frame.server.phase is None:
            if frame.server.state in ("stopped", "exited", "serving"):
                self._phases = []
            return
        phase = Phase(frame.server.phase, frame.server.phase_s, False)
        if self._phases and self._phases[-1].name == phase.name:
            self._phases[-1] = phase
            return
        if self._phases:
            last = self._phases[-1]
            self._phases[-1] = Phase(last.name, last.took_s, True)
        self._phases.append(phase)

    def __iter__(self) -> Iterator[Phase]:
        return iter(self._phases)
