"""Frames on one time axis, and the phases of a start. Pure."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from specpanel.core.monitor.feed import HISTORY_FRAMES
from specpanel.core.monitor.frame import Frame


@dataclass(frozen=True, slots=True)
class Moment:
    """A Frame and where it stands; ``breaks`` means that no line leads to it from the one before."""

    time_s: float
    breaks: bool
    frame: Frame
    restarts: bool = False
    """The server's counters started over between the Frame before and this one."""

    @property
    def note(self) -> str | None:
        """What a chart writes at this moment: the Frame's own mark, or that the server started over."""
        if self.frame.mark is not None:
            return self.frame.mark
        return "restart" if self.restarts else None


class Timeline:
    """The Frames of the last hour with times that only grow, even when a second monitor starts at zero."""

    def __init__(self, capacity: int = HISTORY_FRAMES) -> None:
        self._moments: deque[Moment] = deque(maxlen=capacity)
        self._offset_s = 0.0

    def extend(self, frames: Iterable[Frame]) -> list[Moment]:
        """Places the Frames and gives back their Moments."""
        added = []
        for frame in frames:
            moment = self._place(frame)
            self._moments.append(moment)
            added.append(moment)
        return added

    def _place(self, frame: Frame) -> Moment:
        last = self._moments[-1] if self._moments else None
        if last is None:
            return Moment(frame.elapsed_s, True, frame)
        restarted = frame.elapsed_s < last.frame.elapsed_s
        if restarted:
            self._offset_s = last.time_s + 1.0 - frame.elapsed_s
        restarts = frame.epoch != last.frame.epoch
        return Moment(frame.elapsed_s + self._offset_s, restarted or restarts, frame, restarts)

    @property
    def latest(self) -> Moment | None:
        return self._moments[-1] if self._moments else None

    def __len__(self) -> int:
        return len(self._moments)

    def __iter__(self) -> Iterator[Moment]:
        return iter(self._moments)

    def since(self, time_s: float) -> list[Moment]:
        """The Moments from ``time_s`` on, oldest first."""
        newest_first = []
        for moment in reversed(self._moments):
            if moment.time_s < time_s:
                break
            newest_first.append(moment)
        return newest_first[::-1]


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

    def add(self, frame: Frame) -> None:
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
