"""The counters of speculation over one epoch, thinned to what tells something. Pure.

A Frame carries totals that only grow within an epoch; this keeps one point a change and gives back what was
added over the last so many drafts. Bounds are wider than a textbook's: steps of one request resemble each
other, so they count as fewer independent ones.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from specpanel.core.monitor.frame import Frame, Interval
from specpanel.core.speculation.intervals import wilson

MOST_POINTS = 1200
DESIGN_EFFECT = 3.0  # steps of one request are alike: three of them tell about as much as one
Z = 3.0  # a look every second is many looks
CONFIDENCE = 0.9973  # of Z


@dataclass(frozen=True, slots=True)
class Counted:
    """Counters at one moment; ``by_position[0]`` belongs to the first draft token.

    ``first_tokens`` is how many requests can have made their first token, which comes without a draft.
    """

    time_s: float
    drafts: int
    draft_tokens: int | None
    accepted_tokens: int
    by_position: tuple[int, ...]
    generation_tokens: int | None
    requests_finished: int | None
    running: int | None
    live_tpot_ms: float | None = None

    def since(self, before: "Counted") -> "Counted":
        """What was added after ``before``; positions that came later count from zero."""
        earlier = before.by_position + (0,) * len(self.by_position)
        return Counted(
            time_s=self.time_s - before.time_s,
            drafts=self.drafts - before.drafts,
            draft_tokens=_minus(self.draft_tokens, before.draft_tokens),
            accepted_tokens=self.accepted_tokens - before.accepted_tokens,
            by_position=tuple(
                late - early for late, early in zip(self.by_position, earlier, strict=False)
            ),
            generation_tokens=_minus(self.generation_tokens, before.generation_tokens),
            requests_finished=_minus(self.requests_finished, before.requests_finished),
            running=self.running,
            live_tpot_ms=self.live_tpot_ms,
        )

    @property
    def acceptance_length(self) -> float:
        return 1 + self.accepted_tokens / self.drafts

    @property
    def decoded_tokens(self) -> int | None:
        """Tokens that steps made which could have had a draft; ``None`` where that cannot be told."""
        if self.generation_tokens is None or self.requests_finished is None:
            return None
        return max(0, self.generation_tokens - self.requests_finished - (self.running or 0))

    @property
    def full_length(self) -> bool:
        """Whether every step drafted all K tokens, so that rates by position are unbiased."""
        whole = self.drafts * len(self.by_position)
        return self.draft_tokens is not None and whole > 0 and self.draft_tokens >= 0.99 * whole


def _minus(late: int | None, early: int | None) -> int | None:
    return None if late is None or early is None else late - early


def counted(frame: Frame) -> Counted | None:
    """The Frame's counters; ``None`` while there are none or speculation is not counted."""
    totals = frame.totals
    if frame.scrape.state != "ok" or totals is None:
        return None
    if totals.drafts is None or totals.accepted_tokens is None:
        return None
    engine, latency = frame.engine, frame.latency
    return Counted(
        time_s=frame.elapsed_s,
        drafts=totals.drafts,
        draft_tokens=totals.draft_tokens,
        accepted_tokens=totals.accepted_tokens,
        by_position=totals.accepted_by_position,
        generation_tokens=totals.generation_tokens,
        requests_finished=None if engine is None else engine.requests_finished,
        running=None if engine is None else engine.running,
        live_tpot_ms=None if latency is None else latency.live_tpot_ms,
    )


class CountedEpoch:
    """Points of one epoch, oldest first. At most ``MOST_POINTS``: when full, every second one goes."""

    def __init__(self) -> None:
        self._points: list[Counted] = []

    def add(self, point: Counted) -> None:
        """Take a point; one that falls behind the last begins the epoch anew."""
        if self._points:
            last = self._points[-1]
            if point.drafts < last.drafts or point.accepted_tokens < last.accepted_tokens:
                self._points.clear()
            elif (point.drafts, point.generation_tokens) == (last.drafts, last.generation_tokens):
                self._points[-1] = point if len(self._points) > 1 else last
                return
        if len(self._points) >= MOST_POINTS:
            self._points[1:-1] = self._points[1:-1:2]
        self._points.append(point)

    @property
    def newest(self) -> Counted | None:
        return self._points[-1] if self._points else None

    @property
    def whole(self) -> Counted | None:
        """What was added since the epoch was first seen; ``None`` before a second point."""
        return self._points[-1].since(self._points[0]) if len(self._points) > 1 else None

    def last_drafts(self, drafts: int) -> Counted | None:
        """What the newest ``drafts`` drafts (or a few more) brought; ``None`` where there are fewer."""
        split = self._before_last(drafts)
        return None if split is None else self._points[-1].since(self._points[split])

    def before_last_drafts(self, drafts: int) -> Counted | None:
        """What came before the newest ``drafts`` drafts; ``None`` where nothing did."""
        split = self._before_last(drafts)
        return None if not split else self._points[split].since(self._points[0])

    def since_last_draft(self) -> Counted | None:
        """What was added after the drafts stopped growing; ``None`` before a second point."""
        if len(self._points) < 2:
            return None
        newest = self._points[-1]
        first = bisect_right(self._points, newest.drafts - 1, key=lambda point: point.drafts)
        return newest.since(self._points[first])

    def newest_points(self, count: int) -> Sequence[Counted]:
        """The newest points, each as what was added since the epoch was first seen."""
        start = max(1, len(self._points) - count)
        return [point.since(self._points[0]) for point in self._points[start:]]

    def _before_last(self, drafts: int) -> int | None:
        """Index of the newest point that is at least ``drafts`` drafts old."""
        if not self._points:
            return None
        limit = self._points[-1].drafts - drafts
        index = bisect_right(self._points, limit, key=lambda point: point.drafts) - 1
        return index if index >= 0 else None


def accepted_a_draft(span: Counted) -> Interval:
    """Accepted tokens a draft with careful bounds; ``span`` has drafts.

    The variance comes from the positions: a draft that reaches position k adds 2k - 1 to the sum of squares.
    The last term keeps the bounds apart where nothing, or everything, was accepted (Bernstein's).
    """
    mean = span.accepted_tokens / span.drafts
    k = max(1, len(span.by_position))
    squares = sum((2 * n - 1) * hits for n, hits in enumerate(span.by_position, start=1))
    if not squares:
        squares = k * span.accepted_tokens  # the most that it can be
    variance = max(0.0, squares / span.drafts - mean * mean)
    drafts = span.drafts / DESIGN_EFFECT
    half = Z * math.sqrt(variance / drafts) + Z * Z / (3 * drafts)
    return Interval(mean, max(0.0, mean - half), mean + half)


def careful_rate(successes: int, trials: int) -> Interval | None:
    """A proportion of steps with Wilson's bounds, as of a third of the trials."""
    fewer = int(trials / DESIGN_EFFECT)
    found = wilson(
        min(fewer, round(min(successes, trials) / DESIGN_EFFECT)), fewer, confidence=CONFIDENCE
    )
    return None if found is None else Interval(successes / trials, found.low, found.high)
