"""What is wrong with the acceptance of a running server: findings with evidence, from its counters. Pure.

Each is raised only where the counts leave no room for chance, and withdrawn when they change. What may be
behind a finding, and how to tell the possibilities apart, stands in ``pathology_causes``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Literal

from specpanel.core.monitor.frame import Frame
from specpanel.core.speculation.counted import (
    Counted,
    CountedEpoch,
    accepted_a_draft,
    careful_rate,
    counted,
)
from specpanel.core.speculation.pathology_causes import LikelyCause, likely_causes
from specpanel.core.speculation.stalling import Stall

# Findings whose evidence grows with time alone. All else follows from the counts.
_TELL_TIME = frozenset({"no-drafts", "nothing-proposed"})

Severity = Literal["error", "warning", "note"]

# Drafters that may find nothing to propose; all others draft on every step.
SOMETIMES_SILENT = frozenset({"ngram", "ngram_gpu", "suffix", "custom", "custom_class"})

TOKENS_WITHOUT_DRAFT = 64  # of a drafter that always has one
TOKENS_WITHOUT_DRAFT_SILENT = 1024  # of one that may find nothing, or is not known
DRAFTS_ALL_REJECTED = 200
LOW_LENGTH = 1.15
DRAFTS_FOR_LOW_LENGTH = 500
RECENT_DRAFTS = 1000
LOW_WINDOWS = (RECENT_DRAFTS, 3 * RECENT_DRAFTS)  # that a low length is told from
FALL_WINDOWS = (200, 400, 800)  # recent drafts, compared with all before them
FALL_DRAFTS_BEFORE = 300
FALL_RATIO = 0.3
FALL_RATE = 0.1  # of recent drafts that had a token accepted, at most
FALL_REQUESTS = 3  # finished meanwhile; one odd request is no fall
CLIFF_DRAFTS = 4000
CLIFF_RATIO = 0.4
SUM_TOLERANCE = 0.01
SUM_ACCEPTED = 200
SUM_POINTS = 3  # in a row: one scrape may see counters that are a step apart
MISREAD_FACTOR = 1.2
MISREAD_TOKENS = 500


@dataclass(frozen=True, slots=True)
class Pathology:
    """One finding. ``sentence`` has no full stop; ``evidence`` are the counts behind it.

    ``causes`` are likely ones, the likeliest first.
    """

    code: str
    severity: Severity
    sentence: str
    evidence: tuple[str, ...]
    causes: tuple[LikelyCause, ...]


def pathology(code: str, severity: Severity, sentence: str, *evidence: str) -> Pathology:
    """A finding with the causes that the table has for its code."""
    return Pathology(code, severity, sentence, evidence, likely_causes(code))


class PathologyWatch:
    """Takes Frames of one server after another; ``found`` is what is wrong now, the worst first."""

    def __init__(self) -> None:
        self._epoch = CountedEpoch()
        self._number: tuple[int, str] | None = None
        self._uncounted: tuple[int, int] | None = None  # generation tokens, first and newest
        self._stall = Stall()
        self._judged: tuple[Counted, str | None] | None = None  # what `_counted` was found from
        self._counted: tuple[Pathology, ...] = ()
        self.found: tuple[Pathology, ...] = ()

    def take(self, frame: Frame) -> tuple[Pathology, ...]:
        """Take the next Frame; gives back ``found``."""
        number = (frame.epoch, frame.server.url)
        if number != self._number:
            self._number, self._epoch, self._uncounted = number, CountedEpoch(), None
            self._counted, self._judged = (), None
        point = counted(frame)
        if point is not None:
            self._epoch.add(point)
            basis = replace(point, time_s=0.0), frame.server.drafter
            if basis != self._judged or any(one.code in _TELL_TIME for one in self._counted):
                self._judged = basis
                self._counted = counter_pathologies(self._epoch, frame.server.drafter)
        elif frame.scrape.state == "ok" and frame.totals is not None:
            self._counted, self._judged = self._without_counters(frame), None
        self._stall.take(frame)
        self.found = (*_stalled(self._stall), *self._counted)
        return self.found

    def _without_counters(self, frame: Frame) -> tuple[Pathology, ...]:
        """A drafter was asked for, and the server counts no drafts at all."""
        made = None if frame.totals is None else frame.totals.generation_tokens
        if frame.server.drafter in (None, "none", "unknown") or made is None:
            return ()
        first = made if self._uncounted is None else self._uncounted[0]
        self._uncounted = (first, made)
        if made - first < TOKENS_WITHOUT_DRAFT:
            return ()
        return (
            pathology(
                "no-drafts",
                "error",
                "Tokens are made and none is drafted: this server counts no drafts at all",
                f"{made - first} tokens generated; /metrics has no vllm:spec_decode counters",
            ),
        )


def _stalled(stall: Stall) -> Iterator[Pathology]:
    if stall.stalled:
        yield pathology(
            "stalled",
            "error",
            f"The server says it is well, and nothing has moved for {stall.seconds:.0f} s",
            f"{stall.running} requests running, {stall.waiting} waiting; no token, no prompt, no request "
            "finished meanwhile",
        )


def counter_pathologies(epoch: CountedEpoch, drafter: str | None) -> tuple[Pathology, ...]:
    """What the counters of one epoch show, errors first.

    Args:
        drafter: specpanel's name of the method, ``None`` where it is not known.
    """
    found = [
        *_no_drafts(epoch, drafter),
        *_acceptance(epoch),
        *_cliff(epoch),
        *_sums(epoch),
        *_misread(epoch),
    ]
    rank = {"error": 0, "warning": 1, "note": 2}
    return tuple(sorted(found, key=lambda one: rank[one.severity]))


def _no_drafts(epoch: CountedEpoch, drafter: str | None) -> Iterator[Pathology]:
    span = epoch.since_last_draft()
    tokens = None if span is None else span.decoded_tokens
    if span is None or tokens is None:
        return
    silent = drafter is None or drafter in SOMETIMES_SILENT
    limit = TOKENS_WITHOUT_DRAFT_SILENT if silent else TOKENS_WITHOUT_DRAFT
    if tokens < limit:
        return
    evidence = f"{tokens} tokens after the first of each request, in {span.time_s:.0f} s: 0 drafts"
    if drafter in SOMETIMES_SILENT:
        yield pathology(
            "nothing-proposed",
            "note",
            f"The drafter {drafter} has found nothing to propose for {tokens} tokens",
            evidence,
        )
        return
    yield pathology(
        "no-drafts",
        "warning",
        f"Tokens are made and none is drafted: no draft for {tokens} tokens",
        evidence,
    )


def _acceptance(epoch: CountedEpoch) -> Iterator[Pathology]:
    """Nothing accepted at all, a fall to nothing, or too little: the first that holds."""
    whole = epoch.whole
    if whole is None or not whole.drafts:
        return
    if whole.accepted_tokens == 0:
        if whole.drafts >= DRAFTS_ALL_REJECTED:
            yield _all_rejected(whole)
        return
    fall = next((one for size in FALL_WINDOWS for one in _fall(epoch, size)), None)
    if fall is not None:
        yield fall
        return
    low = (one for size in LOW_WINDOWS for one in _low(epoch.last_drafts(size) or whole))
    yield from islice(low, 1)


def _low(span: Counted) -> Iterator[Pathology]:
    if span.drafts < DRAFTS_FOR_LOW_LENGTH:
        return
    length = accepted_a_draft(span)
    if 1 + length.high < LOW_LENGTH:
        yield pathology(
            "low-acceptance",
            "warning",
            f"A step yields {1 + length.estimate:.2f} tokens: the drafts are almost never accepted",
            f"{span.accepted_tokens} tokens accepted of {span.drafts} drafts, at most "
            f"{1 + length.high:.2f} a step with chance allowed for",
        )


def _all_rejected(whole: Counted) -> Pathology:
    bound = careful_rate(0, whole.drafts)
    most = 0.0 if bound is None else bound.high
    return pathology(
        "nothing-accepted",
        "error",
        f"No draft token was accepted in {whole.drafts} drafts",
        f"0 accepted of {whole.draft_tokens or 'an unknown number of'} drafted tokens; the true rate "
        f"of drafts with one is below {most:.1%}, chance allowed for",
    )


def _fall(epoch: CountedEpoch, size: int) -> Iterator[Pathology]:
    recent, before = epoch.last_drafts(size), epoch.before_last_drafts(size)
    if recent is None or before is None or before.drafts < FALL_DRAFTS_BEFORE:
        return
    finished = recent.requests_finished
    if recent.drafts < 2 * FALL_WINDOWS[0] and finished is not None and finished < FALL_REQUESTS:
        return
    now = careful_rate(_with_accepted(recent), recent.drafts)
    then = careful_rate(_with_accepted(before), before.drafts)
    if now is None or then is None or now.estimate > FALL_RATE:
        return
    if now.high >= FALL_RATIO * then.low:
        return
    yield pathology(
        "sudden-fall",
        "error",
        f"Acceptance fell to almost nothing: {recent.acceptance_length:.2f} tokens a step over the last "
        f"{recent.drafts} drafts, {before.acceptance_length:.2f} before",
        f"{now.estimate:.1%} of the last {recent.drafts} drafts had a token accepted (at most "
        f"{now.high:.1%}), {then.estimate:.1%} of the {before.drafts} before (at least {then.low:.1%})",
    )


def _with_accepted(span: Counted) -> int:
    """Drafts of which at least one token was accepted; where positions are not told, at most that many."""
    return span.by_position[0] if span.by_position else min(span.accepted_tokens, span.drafts)


def _cliff(epoch: CountedEpoch) -> Iterator[Pathology]:
    span = epoch.last_drafts(CLIFF_DRAFTS) or epoch.whole
    if span is None or not span.full_length:
        return
    reached = (span.drafts, *span.by_position)
    rates = [careful_rate(hits, before) for before, hits in pairwise(reached) if before > 0]
    for position, (left, right) in enumerate(pairwise(rates), start=2):
        if left is None or right is None or right.high >= CLIFF_RATIO * left.low:
            continue
        yield pathology(
            "cliff",
            "warning",
            f"Acceptance breaks off at position {position}: {right.estimate:.0%} after "
            f"{left.estimate:.0%} at position {position - 1}, each given that the one before was accepted",
            f"accepted by position {' '.join(map(str, span.by_position))} of {span.drafts} drafts",
        )
        return


def _sums(epoch: CountedEpoch) -> Iterator[Pathology]:
    points = epoch.newest_points(SUM_POINTS)
    if len(points) < SUM_POINTS:
        return
    newest = points[-1]
    if not newest.by_position or newest.accepted_tokens < SUM_ACCEPTED:
        return
    wrong = [sum(point.by_position) - point.accepted_tokens for point in points]
    apart = all(
        abs(miss) > SUM_TOLERANCE * point.accepted_tokens
        for miss, point in zip(wrong, points, strict=True)
    )
    if apart and (min(wrong) > 0 or max(wrong) < 0):
        yield pathology(
            "sums-differ",
            "warning",
            "Accepted tokens by position do not add up to the accepted tokens",
            f"{sum(newest.by_position)} by position, {newest.accepted_tokens} in all, "
            f"in {SUM_POINTS} scrapes in a row",
        )
        return
    risen = [
        place
        for place, (left, right) in enumerate(pairwise(newest.by_position), start=2)
        if right > left * (1 + SUM_TOLERANCE) and right - left > newest.drafts * SUM_TOLERANCE
    ]
    if risen:
        yield pathology(
            "sums-differ",
            "warning",
            f"Position {risen[0]} counts more accepted tokens than the position before it",
            f"accepted by position {' '.join(map(str, newest.by_position))}",
        )


def _misread(epoch: CountedEpoch) -> Iterator[Pathology]:
    span = epoch.last_drafts(RECENT_DRAFTS) or epoch.whole
    tokens = None if span is None else span.decoded_tokens
    if span is None or tokens is None or tokens < MISREAD_TOKENS:
        return
    steps = tokens - span.accepted_tokens
    if steps <= 0 or tokens / steps < MISREAD_FACTOR:
        return
    factor = tokens / steps
    evidence = f"{tokens} tokens in {steps} steps, {factor:.2f} a step"
    if span.live_tpot_ms is not None:
        evidence += (
            f"; a token takes {span.live_tpot_ms:.1f} ms, so a step about "
            f"{span.live_tpot_ms * factor:.1f} ms"
        )
    yield pathology(
        "itl-misread",
        "note",
        f"vLLM's inter_token_latency reads about {factor:.1f} times the time of a token here",
        evidence,
    )
