"""One engine's counters over time: what was added since the last scrape, and when they started over.

A counter that falls, or a family whose creation stamp moves, is a restart: its counts begin again. Several
API servers behind one address answer in turn with their own counts, which looks like restarts that are
taken back; that is recognised, and nothing is added up while it lasts.
"""

from collections import deque
from dataclasses import dataclass, field

from specpanel.core.engine.metrics import EngineSeries
from specpanel.core.speculation.buckets import Buckets

# Signs of several processes within so many scrapes, and how many of them settle it. A counter that falls
# without a new creation stamp is one sign; one that comes back, or a stamp that moves back, counts twice.
SIGNS_SCRAPES = 10
SIGNS_NEEDED = 4
RETURN_SCRAPES = 5
CALM_SCRAPES = 30  # without a further sign, counting begins anew

POSITION = "accepted at "  # flat name of a position's counter, followed by its index


@dataclass(slots=True)
class Counts:
    """Counters and histograms by figure, added up."""

    counters: dict[str, int] = field(default_factory=dict)
    histograms: dict[str, Buckets] = field(default_factory=dict)

    def add(self, other: "Counts") -> None:
        for name, value in other.counters.items():
            self.counters[name] = self.counters.get(name, 0) + value
        for name, buckets in other.histograms.items():
            known = self.histograms.get(name)
            self.histograms[name] = buckets if known is None else known.plus(buckets)

    def copy(self) -> "Counts":
        return Counts(dict(self.counters), dict(self.histograms))


@dataclass(frozen=True, slots=True)
class Step:
    """What one scrape added. ``restarted``: no figure may reach across it, and ``added`` is empty."""

    added: Counts
    restarted: bool


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """The books before counters started over, to go back to when that was no restart."""

    scrape: int
    closed: dict[str, int]
    values: dict[str, int]
    stamped: bool  # creation stamps moved with the counters, so a rise is no return


class EngineTrack:
    """Follows one engine. ``closed`` are counts of earlier epochs, ``values`` the newest of this one."""

    def __init__(self) -> None:
        self._closed: dict[str, int] = {}
        self._values: dict[str, int] = {}
        self._last: dict[str, int] = {}  # newest scrape; differs from values while inconsistent
        self._seen_s: dict[str, float] = {}
        self._histograms: dict[str, Buckets] = {}
        self._created: dict[str, float] = {}
        self._present: tuple[str, ...] = ()  # what the newest scrape held
        self._scrape = 0
        self._signs: deque[int] = deque(maxlen=SIGNS_NEEDED)  # scrapes at which signs were seen
        self._checkpoint: _Checkpoint | None = None
        self.inconsistent = False

    def take(self, series: EngineSeries, time_s: float, since_s: float) -> Step:
        """Take a scrape in.

        Args:
            time_s: when it was made, on the caller's monotonic clock.
            since_s: the start of the caller's history; growth since an older value is not given back,
                because nobody knows when it happened.
        """
        self._scrape += 1
        values = flat(series)
        was_inconsistent = self.inconsistent
        restarted = self._started_over(series, values)
        added = Counts()
        if was_inconsistent:
            restarted = self._leaves_when_calm(values)
        elif not restarted:
            added = self._growth(series, values, since_s)
        if not self.inconsistent:
            self._values.update(values)
        self._last.update(values)
        self._histograms.update(series.histograms())
        self._created.update(series.created)
        self._present = (*values, *series.histograms())
        self._seen_s.update(dict.fromkeys(self._present, time_s))
        return Step(added, restarted)

    def stand_still(self, time_s: float) -> None:
        """Take in once more what the last two scrapes were; nothing is added. Not while inconsistent."""
        self._scrape += 1
        self._seen_s.update(dict.fromkeys(self._present, time_s))

    def session_totals(self) -> dict[str, int]:
        """Counts since the first scrape's own counters began, over all epochs."""
        names = self._closed.keys() | self._values.keys()
        return {name: self._closed.get(name, 0) + self._values.get(name, 0) for name in names}

    def current(self) -> dict[str, int]:
        """The newest value of each counter in this epoch."""
        return dict(self._values)

    def _growth(self, series: EngineSeries, values: dict[str, int], since_s: float) -> Counts:
        """What grew since each counter's last value, as far as that value lies within the history."""
        known_positions = POSITION + "0" in self._values
        added = Counts()
        for name, value in values.items():
            before = self._values.get(name)
            if before is None and known_positions and name.startswith(POSITION):
                before = 0  # a look-alike server exports a position from its first acceptance on
            elif before is None or self._seen_s[name] < since_s:
                continue
            added.counters[name] = value - before
        for name, buckets in series.histograms().items():
            known = self._histograms.get(name)
            if known is not None and self._seen_s[name] >= since_s:
                added.histograms[name] = buckets.minus(known)
        return added

    def _started_over(self, series: EngineSeries, values: dict[str, int]) -> bool:
        """Notice that the counts began again, and keep the books: what was counted stays counted."""
        common = series.created.keys() & self._created.keys()
        moved = [name for name in common if series.created[name] != self._created[name]]
        moved_back = any(series.created[name] < self._created[name] for name in moved)
        fell = self._fell(series, values)
        if self.inconsistent:
            if moved or fell:
                self._sign(1)
            return False
        if moved_back or (not fell and self._came_back(values)):
            self._sign(2)
            self._take_back(values)
        elif fell or moved:
            if not moved:
                self._sign(1)
            self._close(stamped=bool(moved))
            if self.inconsistent:
                self._take_back(values)
        else:
            return False
        for old in (self._last, self._histograms, self._created):
            old.clear()
        return True

    def _fell(self, series: EngineSeries, values: dict[str, int]) -> bool:
        if any(value < self._last.get(name, 0) for name, value in values.items()):
            return True
        return any(
            buckets.count < known.count
            for name, buckets in series.histograms().items()
            if (known := self._histograms.get(name)) is not None
        )

    def _came_back(self, values: dict[str, int]) -> bool:
        """Whether counters that fell a few scrapes ago, with no new stamp, are all up again."""
        before = self._checkpoint
        if before is None or before.stamped or not before.values or self._outdated(before):
            return False
        return all(name in values and values[name] >= old for name, old in before.values.items())

    def _outdated(self, checkpoint: _Checkpoint) -> bool:
        return self._scrape - checkpoint.scrape > RETURN_SCRAPES

    def _sign(self, weight: int) -> None:
        self._signs.extend([self._scrape] * weight)
        recent = [scrape for scrape in self._signs if self._scrape - scrape < SIGNS_SCRAPES]
        self.inconsistent = self.inconsistent or len(recent) >= SIGNS_NEEDED

    def _close(self, *, stamped: bool) -> None:
        """Begin an epoch. Of several in a row the first checkpoint is kept."""
        if self._checkpoint is None or self._outdated(self._checkpoint):
            self._checkpoint = _Checkpoint(self._scrape, self._closed, self._values, stamped)
        self._closed = self.session_totals()
        self._values = {}

    def _take_back(self, values: dict[str, int]) -> None:
        """Go on where the books stood before the epochs that were none."""
        before = self._checkpoint
        self._checkpoint = None
        if before is None or self._outdated(before):
            self._rebase(values)
        else:
            self._closed, self._values = before.closed, before.values

    def _rebase(self, values: dict[str, int]) -> None:
        """Let the totals stand and count on from these values."""
        totals = self.session_totals()
        self._closed = totals | {name: totals.get(name, 0) - new for name, new in values.items()}
        self._values = dict(values)

    def _leaves_when_calm(self, values: dict[str, int]) -> bool:
        if self._scrape - self._signs[-1] <= CALM_SCRAPES:
            return False
        self.inconsistent = False
        self._signs.clear()
        self._rebase(values)
        return True


def flat(series: EngineSeries) -> dict[str, int]:
    """All counters of a series in one mapping, positions included."""
    positions = series.accepted_by_position or ()
    return series.counters() | {f"{POSITION}{n}": count for n, count in enumerate(positions)}


def positions_of(counters: dict[str, int]) -> tuple[int, ...]:
    """The positions of a flat mapping, in order, up to the first that is absent."""
    found: list[int] = []
    while (value := counters.get(f"{POSITION}{len(found)}")) is not None:
        found.append(value)
    return tuple(found)
