"""How the figures of past runs are written, on the command line and in the panel. Pure."""

import time

from specpanel.core.printable import one_line
from specpanel.core.session.history import PastRun
from specpanel.core.session.history_figures import Value

ABSENT = "n/a"


def number_text(value: float) -> str:
    """Three significant digits or more, never an exponent."""
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{digits}f}"


def value_text(value: Value | None, *, interval: bool = True, digits: int | None = None) -> str:
    """A figure, with its 95 % interval where it has one."""
    if value is None:
        return ABSENT

    def text(number: float) -> str:
        return number_text(number) if digits is None else f"{number:.{digits}f}"

    shown = (">" if value.beyond else "") + text(value.value)
    if not interval or (value.low is None and value.high is None):
        return shown
    low = "?" if value.low is None else text(value.low)
    high = "?" if value.high is None else text(value.high)
    return f"{shown} ({low} … {high})"


def drafter_text(run: PastRun) -> str:
    if run.drafter is None:
        return ABSENT
    name = "not known" if run.drafter == "unknown" else one_line(run.drafter, 24)
    return name + (f" K={run.draft_tokens}" if run.draft_tokens else "")


def started_text(started_unix: float | None, form: str = "%Y-%m-%d %H:%M") -> str:
    """Local time; n/a where it is not known or is none."""
    if started_unix is None:
        return ABSENT
    try:
        return time.strftime(form, time.localtime(started_unix))
    except (ValueError, OverflowError, OSError):
        return ABSENT


def duration_text(seconds: float | None) -> str:
    if seconds is None:
        return ABSENT
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"


def size_text(size_bytes: int) -> str:
    """A size as a person reads it: 812 B, 236 kB, 1.4 MB."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    for unit, scale in (("kB", 1e3), ("MB", 1e6)):
        if size_bytes < 1000 * scale:
            value = size_bytes / scale
            return f"{value:.1f} {unit}" if value < 9.95 else f"{value:.0f} {unit}"
    return f"{size_bytes / 1e9:.1f} GB"
