"""When a tier of figures is due again: its period, or longer where reading it is dear."""

from dataclasses import dataclass

FAST_PERIOD_S = 1.0
SLOW_PERIODS = 2  # power, temperature and clocks: every so many periods of the fast tier
PROCESSES_PERIODS = 5  # one list of processes can hold the driver's lock for milliseconds
DEAR_S = 0.020
# A tier dearer than that takes at most this share of the time, because calls hold the driver's lock.
_SHARE = 0.02
_LONGEST_S = 10.0
# Once is no habit: a driver that was busy for a moment is not asked less because of it.
_HABIT = 3
# A request a little early is on time: the one who asks has a clock of its own.
_EARLY = 0.2  # of the period


@dataclass(slots=True)
class Pace:
    """The pace of one tier. Times are of one monotonic clock, in seconds."""

    period_s: float
    _due_s: float = 0.0
    _took_s: tuple[float, ...] = ()
    slowed_to_s: float | None = None

    def due(self, now_s: float) -> bool:
        return now_s >= self._due_s - _EARLY * self.period_s

    def done(self, began_s: float, took_s: float) -> None:
        """The tier was read; where it was dear, the next reading is put off."""
        self._took_s = (*self._took_s, took_s)[-_HABIT:]
        usual_s = min(self._took_s)
        wait_s = self.period_s
        self.slowed_to_s = None
        if len(self._took_s) == _HABIT and usual_s > DEAR_S and usual_s / _SHARE > self.period_s:
            wait_s = min(_LONGEST_S, usual_s / _SHARE)
            self.slowed_to_s = wait_s
        self._due_s = began_s + wait_s
