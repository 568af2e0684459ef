"""The newest Frames, kept in memory: one writer (a monitor or a replay), any number of readers."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specpanel.core.monitor.frame import Frame

RECENT_FRAMES = 60
"""Frames kept whole. A Frame weighs some kilobytes: who needs an hour of them keeps what it draws."""

Taker = Callable[["Frame"], None]


class Feed:
    """The newest Frames. Readers compare ``version`` to learn whether anything is new; who must miss
    none subscribes and is told each Frame while it is published."""

    def __init__(self, capacity: int = RECENT_FRAMES) -> None:
        self._frames: deque[Frame] = deque(maxlen=capacity)
        self._takers: list[Taker] = []
        self.version = 0

    def subscribe(self, taker: Taker) -> None:
        """``taker`` gets the Frames that are kept, and from now on each that is published."""
        for frame in self:
            taker(frame)
        self._takers.append(taker)

    def publish(self, frame: "Frame") -> None:
        self._frames.append(frame)
        self.version += 1
        for taker in self._takers:
            taker(frame)

    @property
    def latest(self) -> "Frame | None":
        return self._frames[-1] if self._frames else None

    def __len__(self) -> int:
        return len(self._frames)

    def __iter__(self) -> Iterator["Frame"]:
        return iter(tuple(self._frames))

    def newer_than(self, version: int) -> tuple["Frame", ...]:
        """Frames published after the feed was at ``version``, oldest first, as far as they are kept."""
        count = min(self.version - version, len(self._frames))
        return tuple(
            self._frames[index] for index in range(len(self._frames) - count, len(self._frames))
        )
