"""Acceptance of a stretch of time from counters that were read along it. Pure."""

from collections.abc import Sequence
from itertools import pairwise

from specpanel.core.engine.metrics import EngineCounters
from specpanel.core.monitor.frame import Interval
from specpanel.core.session.measurement import counter_delta
from specpanel.core.speculation.intervals import bootstrap

FEWEST_WINDOWS = 5


def windowed_length(readings: Sequence[EngineCounters]) -> Interval | None:
    """Acceptance length with an interval from resampled windows between successive readings.

    Drafts of one moment share its requests, so windows are the units and not drafts. None with fewer than
    ``FEWEST_WINDOWS`` windows that drafted anything.
    """
    found = [counter_delta(before, after) for before, after in pairwise(readings)]
    windows = [delta for delta in found if delta is not None and delta.drafts > 0]
    if len(windows) < FEWEST_WINDOWS:
        return None
    columns = [
        [float(window.accepted_tokens) for window in windows],
        [float(window.drafts) for window in windows],
    ]
    return bootstrap(columns, lambda sums: 1 + sums[0] / sums[1] if sums[1] else None)
