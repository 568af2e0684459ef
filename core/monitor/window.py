"""The newest scrapes as the figures of a Frame: windowed rates, quantiles, totals and epochs. No I/O.

Rates are over the caller's monotonic clock. A window reaches back to the newest scrape that is at least
its length old, so it is full as soon as it can be; its real length stands beside every figure. When an
engine's counters start over, a new epoch begins and no figure reaches across it.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from specpanel.core.engine.metrics import EngineCounters, EngineSeries
from specpanel.core.monitor.counting import Counts, EngineTrack, positions_of
from specpanel.core.monitor.frame import EngineSample, LatencySample, SpeculationSample, Totals
from specpanel.core.monitor.reasons import (
    CACHE_USAGE_WRONG,
    FIRST_SCRAPE,
    INCONSISTENT,
    NO_COUNT,
    NO_DRAFTER,
    NO_DRAFTS_LATELY,
    NO_DRAFTS_YET,
)
from specpanel.core.speculation.acceptance import (
    acceptance_length,
    counter_notes,
    draft_acceptance_rate,
    position_rates,
)
from specpanel.core.speculation.buckets import Buckets
from specpanel.core.speculation.quantiles import bucket_counts, bucket_quantiles

_T = TypeVar("_T")

WINDOW_S = 10.0
LATENCY_WINDOW_S = 60.0
MOST_SCRAPES = 1024  # kept in memory; at ten a second still more than a minute

# Tokens made without one draft before that is worth a word: first tokens and short answers have none.
TOKENS_WITHOUT_DRAFT = 64

TOKENS_BUT_NO_DRAFTS = (
    "tokens but no drafts: requests may be opting out of speculation, "
    "or the drafter finds nothing to propose"
)


# A drafter that proposes on fewer of the steps than this is worth a word: n-gram and suffix ones do.
SHARE_OF_STEPS_DRAFTED = 0.9
SOME_STEPS_UNDRAFTED = (
    "only {share:.0%} of steps had a draft; the others yield one token and are not in this figure"
)


@dataclass(frozen=True, slots=True)
class _Point:
    """Everything that was added in this epoch up to a scrape."""

    time_s: float
    counts: Counts


@dataclass(frozen=True, slots=True)
class _Span:
    """What was added in the last ``length_s`` seconds; ``None`` for a counter not seen twice."""

    length_s: float
    first: Counts
    last: Counts

    def counter(self, name: str) -> int | None:
        end = self.last.counters.get(name)
        return None if end is None else end - self.first.counters.get(name, 0)

    def counters(self) -> dict[str, int]:
        return {
            name: end - self.first.counters.get(name, 0) for name, end in self.last.counters.items()
        }

    def per_s(self, name: str) -> float | None:
        added = self.counter(name)
        return added / self.length_s if added is not None and self.length_s > 0 else None

    def histogram(self, name: str) -> Buckets | None:
        end, start = self.last.histograms.get(name), self.first.histograms.get(name)
        return end if end is None or start is None else end.minus(start)


class _Basis(NamedTuple):
    """What the figures of a window are made of."""

    newest: EngineCounters | None
    first: Counts
    last: Counts
    length_s: float | None  # None over a whole window without a change
    is_span: bool

    def is_that_of(self, other: "_Basis") -> bool:
        """Compared by identity: who adds to counts makes new ones."""
        return all(mine is theirs for mine, theirs in zip(self[:3], other[:3], strict=True)) and (
            self[3:] == other[3:]
        )


class Window:
    """Takes scrapes and gaps in, gives the newest figures out. Memory and work a scrape are bounded."""

    def __init__(
        self, window_s: float = WINDOW_S, latency_window_s: float = LATENCY_WINDOW_S
    ) -> None:
        self.window_s = window_s
        self.latency_window_s = latency_window_s
        self.epoch = 0
        self._tracks: dict[str, EngineTrack] = {}
        self._points: deque[_Point] = deque(maxlen=MOST_SCRAPES)
        self._added = Counts()
        self._newest: EngineCounters | None = None
        self._in_gap = False
        self._stands_still = False  # the newest two scrapes were the same
        self._totals: Totals | None = None  # as of the newest scrape, once asked for
        self._made: dict[
            str, tuple[_Basis, Any]
        ] = {}  # the newest samples and what they are made of

    def add(self, time_s: float, counters: EngineCounters) -> None:
        """Take in a good scrape, made at ``time_s`` on the caller's monotonic clock."""
        if self._points:
            last_s = self._points[-1].time_s
            time_s = max(time_s, last_s)
            if self._in_gap and time_s - last_s > self.window_s:
                self._forget()  # too long ago to share a window with
        same = counters is self._newest and bool(self._points) and not self.inconsistent
        if same and self._stands_still:
            for series in counters.engines:
                self._tracks[series.engine].stand_still(time_s)
            self._keep(_Point(time_s, self._points[-1].counts))
            return
        self._stands_still = same
        self._totals = None
        since_s = self._points[0].time_s if self._points else time_s
        restarted = False
        for series in counters.engines:
            track = self._tracks.setdefault(series.engine, EngineTrack())
            step = track.take(series, time_s, since_s)
            self._added.add(step.added)
            restarted = restarted or step.restarted
        if restarted:
            self.epoch += 1
            self._forget()
        self._newest = counters
        self._keep(_Point(time_s, self._added.copy()))

    def _keep(self, point: _Point) -> None:
        self._points.append(point)
        while len(self._points) > 1 and self._points[1].time_s <= point.time_s - self._longest_s:
            self._points.popleft()
        self._in_gap = False

    def gap(self, time_s: float) -> None:
        """Note that the scrape at ``time_s`` failed."""
        self._in_gap = True

    def engine(self) -> EngineSample | None:
        """The scheduler and the cache; ``None`` before the first scrape and while scrapes fail."""
        newest = self._fresh()
        if newest is None:
            return None
        span = self._span(self.window_s)
        return self._once("engine", span, self.window_s, lambda: self._engine(newest, span))

    def speculation(self) -> SpeculationSample | None:
        """Acceptance; ``None`` before the first scrape and while scrapes fail."""
        newest = self._fresh()
        if newest is None:
            return None
        span = self._span(self.window_s)
        return self._once(
            "speculation",
            span,
            self.window_s,
            lambda: self._speculation(newest, span, self.totals()),
        )

    def latency(self) -> LatencySample | None:
        """Latencies; ``None`` before the first scrape and while scrapes fail."""
        if self._fresh() is None:
            return None
        span = self._span(self.latency_window_s)
        return self._once("latency", span, self.latency_window_s, lambda: _latency(span))

    def _once(self, name: str, span: _Span, whole_s: float, make: Callable[[], _T]) -> _T:
        """The sample made before, the same object, where it is made of the same.

        While nothing moves over a whole window, what was said of one goes on to hold: whether it reached
        back to the tenth scrape or the eleventh is no news.
        """
        rests = span.first is span.last and span.length_s >= whole_s
        length_s = None if rests else span.length_s
        basis = _Basis(self._newest, span.first, span.last, length_s, len(self._points) > 1)
        kept = self._made.get(name)
        if kept is not None and basis.is_that_of(kept[0]):
            found: _T = kept[1]
            return found
        sample = make()
        self._made[name] = basis, sample
        return sample

    def totals(self) -> Totals | None:
        """Counters over all epochs; they stay while scrapes fail."""
        if not self._tracks:
            return None
        if self._totals is None:
            sums = _sum(track.session_totals() for track in self._tracks.values())
            self._totals = Totals(
                drafts=sums.get("drafts"),
                draft_tokens=sums.get("draft_tokens"),
                accepted_tokens=sums.get("accepted_tokens"),
                accepted_by_position=positions_of(sums),
                prompt_tokens=sums.get("prompt_tokens"),
                generation_tokens=sums.get("generation_tokens"),
            )
        return self._totals

    @property
    def inconsistent(self) -> bool:
        """Whether several processes answer in turn, so that nothing can be added up."""
        return any(track.inconsistent for track in self._tracks.values())

    @property
    def _longest_s(self) -> float:
        return max(self.window_s, self.latency_window_s)

    def _fresh(self) -> EngineCounters | None:
        return None if self._in_gap else self._newest

    def _forget(self) -> None:
        self._points.clear()
        self._added = Counts()

    def _span(self, length_s: float) -> _Span:
        last = self._points[-1]
        first = last
        for first in reversed(self._points):
            if first.time_s <= last.time_s - length_s:
                break
        if self.inconsistent:
            return _Span(0.0, Counts(), Counts())
        return _Span(last.time_s - first.time_s, first.counts, last.counts)

    def _engine(self, newest: EngineCounters, span: _Span) -> EngineSample:
        queries, hits = span.counter("prefix_cache_queries"), span.counter("prefix_cache_hits")
        current = _sum(track.current() for track in self._tracks.values())
        return EngineSample(
            engines=len(newest.engines),
            running=newest.total.running,
            waiting=newest.total.waiting,
            kv_cache_usage=newest.total.kv_cache_usage,
            prompt_tokens_per_s=span.per_s("prompt_tokens"),
            generation_tokens_per_s=span.per_s("generation_tokens"),
            preemptions=current.get("preemptions"),
            prefix_cache_hit_rate=hits / queries if queries and hits is not None else None,
            requests_finished=current.get("requests_finished"),
            kv_cache_usage_absent=_no_usage(newest.total),
            kv_cache_usages=(
                tuple(one.kv_cache_usage for one in newest.engines)
                if len(newest.engines) > 1
                else ()
            ),
        )

    def _speculation(
        self, newest: EngineCounters, span: _Span, totals: Totals | None
    ) -> SpeculationSample:
        drafts = span.counter("drafts") or 0
        accepted = span.counter("accepted_tokens")
        draft_tokens = span.counter("draft_tokens")
        by_position = positions_of(span.counters())
        absent = self._no_acceptance(newest, span, totals)
        notes = counter_notes(drafts, draft_tokens, accepted, by_position) if drafts else ()
        notes = (*_undrafted_steps(drafts, span), *notes)
        if _tokens_but_no_drafts(newest, span, totals):
            notes = (TOKENS_BUT_NO_DRAFTS, *notes)
        if self.inconsistent:
            notes = (INCONSISTENT,)
        lifetime = None
        if totals is not None and totals.drafts and totals.accepted_tokens is not None:
            lifetime = acceptance_length(totals.drafts, totals.accepted_tokens)
        return SpeculationSample(
            window_s=span.length_s,
            drafts=drafts,
            draft_tokens=draft_tokens or 0,
            accepted_tokens=accepted or 0,
            acceptance_length=acceptance_length(drafts, accepted) if accepted is not None else None,
            draft_acceptance_rate=(
                draft_acceptance_rate(draft_tokens, accepted)
                if draft_tokens and accepted is not None
                else None
            ),
            positions=position_rates(drafts, by_position),
            lifetime_drafts=(totals.drafts if totals else None) or 0,
            lifetime_acceptance_length=lifetime,
            absent=absent,
            note="; ".join(notes) or None,
        )

    def _no_acceptance(
        self, newest: EngineCounters, span: _Span, totals: Totals | None
    ) -> str | None:
        """Why there is no acceptance length; ``None`` when there is one."""
        if not newest.speculates:
            return NO_DRAFTER
        if self.inconsistent:
            return INCONSISTENT
        if totals is None or totals.drafts is None or totals.accepted_tokens is None:
            return NO_COUNT
        if totals.drafts == 0:
            return NO_DRAFTS_YET
        if len(self._points) < 2:
            return FIRST_SCRAPE
        if not span.counter("drafts"):
            return NO_DRAFTS_LATELY.format(seconds=span.length_s)
        return None if span.counter("accepted_tokens") is not None else NO_COUNT


def _no_usage(total: EngineSeries) -> str | None:
    wrong = total.kv_cache_usage_wrong
    if wrong is None or total.kv_cache_usage is not None:
        return None
    return CACHE_USAGE_WRONG.format(value=wrong)


def _sum(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(total)


def _latency(span: _Span) -> LatencySample:
    return LatencySample(
        window_s=span.length_s,
        ttft=bucket_quantiles(span.histogram("ttft")),
        tpot=bucket_quantiles(span.histogram("tpot")),
        end_to_end=bucket_quantiles(span.histogram("end_to_end")),
        live_tpot_ms=_live_tpot_ms(span),
        ttft_buckets=bucket_counts(span.histogram("ttft")),
        tpot_buckets=bucket_counts(span.histogram("tpot")),
    )


def _live_tpot_ms(span: _Span) -> float | None:
    """Time between output events / tokens that came with them.

    A request's first token is no such event: its time is the time to first token.
    """
    events, firsts = span.histogram("itl"), span.histogram("ttft")
    generated = span.counter("generation_tokens")
    if events is None or events.sum_s is None or firsts is None or generated is None:
        return None
    tokens = generated - firsts.count
    return events.sum_s * 1000 / tokens if tokens > 0 and events.sum_s > 0 else None


def _undrafted_steps(drafts: int, span: _Span) -> tuple[str, ...]:
    """A note when many output events came from steps that had no draft."""
    events = span.histogram("itl")
    if not drafts or events is None or drafts >= SHARE_OF_STEPS_DRAFTED * events.count:
        return ()
    return (SOME_STEPS_UNDRAFTED.format(share=drafts / events.count),)


def _tokens_but_no_drafts(newest: EngineCounters, span: _Span, totals: Totals | None) -> bool:
    if not newest.speculates or totals is None or totals.drafts is None:
        return False
    made = span.counter("generation_tokens") or 0
    if totals.drafts == 0:
        made = max(made, totals.generation_tokens or 0)
    return made >= TOKENS_WITHOUT_DRAFT and not span.counter("drafts")
