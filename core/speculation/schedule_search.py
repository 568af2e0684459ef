"""K by number of running requests, from measured step times and measured acceptance. Pure.

At one load, time per output token relative to plain decoding is the step's ratio over the tokens that a
step yields: ``required(load, K) / AL(K)``, with ``AL(K) = 1 + c1 + c1 c2 + …`` from the conditional
acceptance of each position. K = 0 is plain decoding, with the ratio 1.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from specpanel.core.monitor.frame import Interval
from specpanel.core.speculation.breakeven import Required

_FOR_EVER = 999_999  # vLLM's ranges have to end somewhere
WORTH = 0.02  # a gain below 2 % is none that would be worth another K


@dataclass(frozen=True, slots=True)
class Candidate:
    """One K at one load. ``ratio`` is time per output token over plain decoding's."""

    concurrency: int
    k: int
    length: float
    ratio: float
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class Choice:
    """The K that was chosen at a load, and why not another where one looked faster."""

    concurrency: int
    k: int
    ratio: float
    fixed_ratio: float | None  # of the profile's own K at this load
    why: str


def length_at(conditional: Sequence[float], k: int) -> float:
    """Mean acceptance length of K draft tokens.

    Args:
        conditional: acceptance of each position, those before it accepted; at least ``k`` of them.
    """
    if k > len(conditional):
        raise ValueError(f"acceptance of position {k} is not known")
    return 1 + sum(math.prod(conditional[:position]) for position in range(1, k + 1))


def candidates(
    points: Sequence[Required],
    conditional: Sequence[float],
    drafting: Mapping[int, float] | None = None,
    *,
    drafted_share: float = 1.0,
) -> tuple[Candidate, ...]:
    """Every load and K that was measured, plain decoding among them.

    Args:
        drafting: what drafting one token adds to a step, in plain steps, by load; nothing where absent.
        drafted_share: of the steps, 0..1; the others take one plain step and yield one token, which pulls
            the ratio of a drafter that drafts now and then towards 1.
    """
    loads = sorted({point.concurrency for point in points})
    found = [Candidate(load, 0, 1.0, 1.0, Interval(1.0, 1.0, 1.0)) for load in loads]
    for point in points:
        if point.k > len(conditional):
            continue
        more = (drafting or {}).get(point.concurrency, 0.0) * point.k
        length = length_at(conditional, point.k)
        between = point.interval

        def ratio(step: float, more: float = more, length: float = length) -> float:
            return (1 + drafted_share * (step + more - 1)) / (1 + drafted_share * (length - 1))

        found.append(
            Candidate(
                point.concurrency,
                point.k,
                length,
                ratio(point.length),
                between and Interval(ratio(point.length), ratio(between.low), ratio(between.high)),
            )
        )
    return tuple(found)


def choose_schedule(found: Sequence[Candidate], fixed_k: int) -> tuple[Choice, ...]:
    """K at each load, from the lowest on.

    K falls as the load grows, for a step's price grows with it. A K above that of the load before is kept
    out unless its interval lies wholly below that of the K before; so is any change that gains less than
    ``WORTH``.
    """
    chosen: list[Choice] = []
    before: int | None = None
    for load in sorted({one.concurrency for one in found}):
        here = {one.k: one for one in found if one.concurrency == load}
        best = min(here.values(), key=lambda one: (one.ratio, one.k))
        why = "the fastest"
        kept = None if before is None else here.get(before)
        if kept is not None and best.k != kept.k:
            if best.k > kept.k and not _below(best, kept):
                best, why = _best_up_to(here, kept.k), f"K={best.k} looked faster by chance"
            if kept.ratio <= best.ratio * (1 + WORTH):
                best, why = kept, f"no other K gains {WORTH:.0%}"
        fixed = here.get(fixed_k)
        chosen.append(Choice(load, best.k, best.ratio, None if fixed is None else fixed.ratio, why))
        before = best.k
    return tuple(chosen)


def words_of(chosen: Sequence[Choice]) -> tuple[str, ...]:
    """The schedule as vLLM's ranges, ``1-4:5``. A load's K holds half-way, by ratio, to the next load."""
    words: list[str] = []
    first = 1
    for number, choice in enumerate(chosen):
        following = chosen[number + 1] if number + 1 < len(chosen) else None
        if following is not None and following.k == choice.k:
            continue
        last = _FOR_EVER if following is None else _border(choice, following)
        words.append(f"{first}-{last}:{choice.k}")
        first = last + 1
    return tuple(words)


def spoken(words: Iterable[str]) -> str:
    """vLLM's ranges for a person: ``1-3:4 4-999999:0`` is K=4 for 1 to 3 requests at a time, then K=0."""
    said = []
    for word in words:
        between, _, k = word.partition(":")
        first, _, last = between.partition("-")
        if last != str(_FOR_EVER):
            said.append(f"K={k} for {first} to {last}" if first != last else f"K={k} for {first}")
        else:
            said.append(f"K={k} from {first} on" if first != "1" else f"K={k} at every load")
    return ", ".join(said)


def _border(choice: Choice, following: Choice) -> int:
    """The last number of requests of the first of two loads; at least the load itself."""
    middle = math.floor(math.sqrt(choice.concurrency * following.concurrency))
    return max(choice.concurrency, min(middle, following.concurrency - 1))


def _below(one: Candidate, other: Candidate) -> bool:
    if one.interval is None or other.interval is None:
        return False
    return one.interval.high < other.interval.low


def _best_up_to(here: Mapping[int, Candidate], k: int) -> Candidate:
    return min((one for one in here.values() if one.k <= k), key=lambda one: (one.ratio, one.k))


def single_best(found: Sequence[Candidate]) -> int:
    """The one K that is best over all loads, by the geometric mean of its ratios; 0 is plain decoding."""
    ks = sorted({one.k for one in found})
    loads = {one.concurrency for one in found}
    whole = [k for k in ks if {one.concurrency for one in found if one.k == k} == loads]
    return min(whole, key=lambda k: sum(math.log(one.ratio) for one in found if one.k == k))
