"""Value axes: nice ticks, linear and logarithmic, and a range that does not jump about."""

import math
from collections.abc import Callable
from dataclasses import dataclass

_STEPS = (1.0, 2.0, 5.0, 10.0)
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to a fraction of the axis: 0 at ``low``, 1 at ``high``."""

    low: float
    high: float
    log: bool = False

    def fraction(self, value: float) -> float:
        if self.log:
            low, high = math.log10(self.low), math.log10(self.high)
            return (math.log10(max(value, _TINY)) - low) / (high - low)
        return (value - self.low) / (self.high - self.low)

    def dot(self, value: float, dots: int) -> int:
        """The row of dots, 0 at the top, where ``value`` is drawn; clamped to the axis."""
        row = round((1.0 - self.fraction(value)) * (dots - 1))
        return min(dots - 1, max(0, row))

    def rows_of(self, dots: int) -> Callable[[float], int]:
        """``dot`` for many values: what does not depend on the value is worked out once."""
        last, low, high, log10 = dots - 1, self.low, self.high, math.log10
        if self.log:
            low, high = log10(low), log10(high)
        factor = last / (high - low)

        def linear(value: float) -> int:
            row = round((high - value) * factor)
            return 0 if row < 0 else min(row, last)

        def logarithmic(value: float) -> int:
            row = round((high - log10(max(value, _TINY))) * factor)
            return 0 if row < 0 else min(row, last)

        return logarithmic if self.log else linear

    def ticks(self, wanted: int) -> tuple[float, ...]:
        """About ``wanted`` round values, lowest first."""
        if self.log:
            return log_ticks(self.low, self.high, wanted)
        return linear_ticks(self.low, self.high, wanted)


def nice_step(span: float, wanted: int) -> float:
    """The smallest of 1, 2, 5 times a power of ten that divides ``span`` into at most ``wanted`` parts."""
    raw = max(span, _TINY) / max(1, wanted)
    power = 10.0 ** math.floor(math.log10(raw))
    return next(step * power for step in _STEPS if step * power >= raw * (1 - 1e-9))


def linear_ticks(low: float, high: float, wanted: int) -> tuple[float, ...]:
    step = nice_step(high - low, wanted)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(number * step for number in range(first, last + 1))


def log_ticks(low: float, high: float, wanted: int) -> tuple[float, ...]:
    """1-2-5 ticks; where they are too many, 1-10 ones, and then every second, third … decade."""
    decades = range(math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9) + 1)
    for mantissas in ((1.0, 2.0, 5.0), (1.0,)):
        ticks = [mantissa * 10.0**decade for decade in decades for mantissa in mantissas]
        inside = [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if 2 <= len(inside) <= max(2, wanted):
            return tuple(inside)
    return tuple(inside[:: max(1, math.ceil(len(inside) / max(1, wanted)))])


def round_out(low: float, high: float, *, log: bool, wanted: int) -> tuple[float, float]:
    """The smallest range with round ends that holds ``low`` and ``high``."""
    if log:
        low = max(low, _TINY)
        return _log_floor(low), _log_ceil(max(high, low * 1.01))
    if high - low <= _TINY * max(1.0, abs(high)):
        high = low + max(abs(low) * 0.1, 1.0)
    step = nice_step(high - low, wanted)
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


def _log_floor(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value) + 1e-9)
    return max(step * power for step in _STEPS if step * power <= value * (1 + 1e-9))


def _log_ceil(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value) + 1e-9)
    return min(step * power for step in _STEPS if step * power >= value * (1 - 1e-9))


class RangeKeeper:
    """The range of a value axis: grows at once, shrinks only when it was too large for ``hold_s``.

    ``low`` and ``high`` fix the ends: the axis starts at ``low`` and reaches at least ``high``.
    """

    def __init__(
        self,
        *,
        low: float | None = None,
        high: float | None = None,
        log: bool = False,
        hold_s: float = 10.0,
    ) -> None:
        self._low = low
        self._high = high
        self._log = log
        self._hold_s = hold_s
        self._scale: Scale | None = None
        self._too_large_since_s: float | None = None

    def update(self, span: tuple[float, float] | None, now_s: float, wanted: int) -> Scale:
        """The scale that shows ``span`` (lowest and highest value, ``None`` without data) at ``now_s``."""
        wanted_scale = self._wanted(span, wanted)
        current = self._scale
        if current is None:
            self._scale = wanted_scale
        elif wanted_scale.low < current.low or wanted_scale.high > current.high:
            low, high = min(wanted_scale.low, current.low), max(wanted_scale.high, current.high)
            self._scale = Scale(low, high, self._log)
            self._too_large_since_s = None
        elif wanted_scale == current:
            self._too_large_since_s = None
        elif self._too_large_since_s is None:
            self._too_large_since_s = now_s
        elif now_s - self._too_large_since_s >= self._hold_s:
            self._scale = wanted_scale
            self._too_large_since_s = None
        return self._scale or wanted_scale

    @property
    def shrinks_at_s(self) -> float:
        """When the scale changes with time alone; infinity where it does not."""
        since_s = self._too_large_since_s
        return math.inf if since_s is None else since_s + self._hold_s

    def forget(self) -> None:
        self._scale = None
        self._too_large_since_s = None

    def _wanted(self, span: tuple[float, float] | None, wanted: int) -> Scale:
        if span is None:
            low = self._low if self._low is not None else (1.0 if self._log else 0.0)
            span = (
                low,
                self._high if self._high is not None else low + (9.0 if self._log else 1.0),
            )
        low, high = span
        if self._low is not None:
            low = self._low
        if self._high is not None:
            high = max(high, self._high)
        low, high = round_out(low, high, log=self._log, wanted=wanted)
        return Scale(self._low if self._low is not None else low, high, self._log)


_LARGE = ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))
_SMALL = ((1e-3, 1e-3, "m"), (1e-6, 1e-6, "u"), (1e-10, 1e-9, "n"))


def tick_label(value: float) -> str:
    """A tick in at most five characters: 0.05, 2.5, 40, 1.5k, 2M, 5m (thousandths)."""
    magnitude = abs(value)
    for limit, divisor, suffix in _LARGE:
        if magnitude >= limit:
            return f"{value / divisor:.3g}{suffix}"
    if magnitude >= 1:
        return f"{value:.4g}"
    if magnitude >= 0.01:
        return f"{value:.2g}"
    for limit, divisor, suffix in _SMALL:
        if magnitude >= limit:
            scaled = value / divisor
            return f"{scaled:.3g}{suffix}" if magnitude >= divisor else f"{scaled:.2g}{suffix}"
    return "0"
