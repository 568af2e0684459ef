"""Samples of one series, kept as first, last, lowest and highest value per absolute bin of time.

A bin's number is ``floor(time / width)``: it does not depend on what is shown, so a chart moves by whole
cells and never shimmers.
"""

import math

JOIN_S = 3.5
"""Samples further apart than this are not joined by a line."""


class Bins:
    """The newest ``count`` bins, each ``width_s`` wide, in rings of fixed size.

    Two bins are joined by a line unless an absent sample (``None``), a break, or more than ``join_s``
    without a sample lies between them.
    """

    __slots__ = (
        "_broken",
        "_span",
        "_time_s",
        "count",
        "first",
        "highest",
        "index",
        "join_s",
        "joined",
        "last",
        "lowest",
        "newest",
        "version",
        "width_s",
    )

    def __init__(self, count: int, width_s: float, *, join_s: float = JOIN_S) -> None:
        if count < 1 or width_s <= 0:
            raise ValueError("bins need a positive count and width")
        self.count = count
        self.width_s = width_s
        self.join_s = max(join_s, 1.5 * width_s)
        self.index = [-1] * count
        self.first = [0.0] * count
        self.last = [0.0] * count
        self.lowest = [0.0] * count
        self.highest = [0.0] * count
        self.joined = [False] * count
        self.newest = -1
        self.version = 0
        """Grows with every change that a picture could show."""
        self._time_s = -math.inf
        self._broken = True
        self._span: tuple[int, float, float] | None = None  # the newest answer of `span`

    def number(self, time_s: float) -> int:
        return math.floor(time_s / self.width_s)

    def add(self, time_s: float, value: float | None) -> None:
        """Takes a sample; ``None`` or a value that is not finite makes a gap."""
        if value is None or not math.isfinite(value):
            self._broken = True
            return
        number = self.number(time_s)
        if number <= self.newest - self.count or number < 0:
            return
        slot = number % self.count
        joined = not self._broken and time_s - self._time_s <= self.join_s
        self._time_s = time_s
        self._broken = False
        if self.index[slot] == number:
            if value == self.last[slot]:
                return
            self.lowest[slot] = min(self.lowest[slot], value)
            self.highest[slot] = max(self.highest[slot], value)
        else:
            known = self._span
            if known is not None and self.index[slot] >= known[0]:
                self._span = None  # what is overwritten was part of it
            self.index[slot] = number
            self.first[slot] = self.lowest[slot] = self.highest[slot] = value
            self.joined[slot] = joined
        known = self._span
        if known is not None and number >= known[0]:
            self._span = known[0], min(known[1], value), max(known[2], value)
        self.last[slot] = value
        self.newest = max(self.newest, number)
        self.version += 1

    def break_line(self) -> None:
        """The next sample starts a new line."""
        self._broken = True

    def has(self, number: int) -> bool:
        return number >= 0 and self.index[number % self.count] == number

    def span(self, oldest: int) -> tuple[float, float] | None:
        """Lowest and highest value in the bins from ``oldest`` on; ``None`` when they are empty."""
        since, known = max(0, oldest), self._span
        if known is None or known[0] != since:
            slots = [slot for slot, number in enumerate(self.index) if number >= since]
            if not slots:
                return None
            lowest, highest = self.lowest, self.highest
            low, high = (
                min([lowest[slot] for slot in slots]),
                max([highest[slot] for slot in slots]),
            )
            known = self._span = since, low, high
        return known[1], known[2]
