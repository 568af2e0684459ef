"""The newest Frames, kept in memory: one writer (a monitor or a replay), any number of readers."""

from collections import deque
from collections.abc import Iterator

from specpanel.core.monitor.frame import Frame

HISTORY_FRAMES = 3600  # an hour at one Frame a second


class Feed:
    """A bounded history of Frames. Readers compare ``version`` to learn whether anything is new."""

    def __init__(self, capacity: int = HISTORY_FRAMES) -> None:
        self._frames: deque[Frame] = deque(maxlen=capacity)
        self.version = 0

    def publish(self, frame: Frame) -> None:
        self._frames.append(frame)
        self.version += 1

    @property
    def latest(self) -> Frame | None:
        return self._frames[-1] if self._frames else None

    def __len__(self) -> int:
        return len(self._frames)

    def __iter__(self) -> Iterator[Frame]:
        return iter(tuple(self._frames))

    def newer_than(self, version: int) -> tuple[Frame, ...]:
        """Frames published after the feed was at ``version``, oldest first, as far as they are kept."""
        count = min(self.version - version, len(self._frames))
        return tuple(
            self._frames[index] for index in range(len(self._frames) - count, len(self._frames))
        )
