"""Whether acceptance falls with the length of the context, from requests' own steps. Pure.

Only requests that report their steps can tell; counters cannot. Steps are put in order of the context that
they saw, and the shorter half is compared with the longest quarter. Requests are resampled whole, since the
steps of one request are alike.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from specpanel.core.speculation.intervals import bootstrap
from specpanel.core.speculation.pathologies import Pathology, pathology
from specpanel.core.traffic.records import RequestRecord

FEWEST_REQUESTS = 10  # on each side
FEWEST_STEPS = 120  # on each
LOST_SHARE = 0.4  # of the accepted tokens a draft, at least, for a finding
CONFIDENCE = 0.999


@dataclass(frozen=True, slots=True)
class ContextRange:
    """Steps that saw a context of ``low`` to ``high`` tokens."""

    low: int
    high: int
    drafts: int
    requests: int
    acceptance_length: float


@dataclass(frozen=True, slots=True)
class _Step:
    request: int
    context: int
    accepted: int


def context_ranges(records: Iterable[RequestRecord]) -> tuple[ContextRange, ...]:
    """Acceptance length over the shorter half, the next quarter and the longest; empty below four steps."""
    steps = _steps(records)
    return () if len(steps) < 4 else tuple(_range(part) for part in _parts(steps))


def context_decay(records: Iterable[RequestRecord], *, seed: int = 0) -> Pathology | None:
    """A finding where long contexts lose at least two fifths of the accepted tokens, chance allowed for."""
    steps = _steps(records)
    if len(steps) < 4 * FEWEST_STEPS:
        return None
    short, _, long = _parts(steps)
    ranges = tuple(_range(part) for part in _parts(steps))
    sides = (ranges[0], ranges[-1])
    if any(one.requests < FEWEST_REQUESTS or one.drafts < FEWEST_STEPS for one in sides):
        return None
    kept = bootstrap(_columns(short, long), _kept_share, confidence=CONFIDENCE, seed=seed)
    if kept is None or kept.high > 1 - LOST_SHARE:
        return None
    near, far = sides
    return pathology(
        "context-decay",
        "warning",
        f"Acceptance falls with the length of the context: {near.acceptance_length:.2f} tokens a step up "
        f"to {near.high} tokens of context, {far.acceptance_length:.2f} from {far.low} on",
        f"{near.drafts} drafts of {near.requests} requests against {far.drafts} of {far.requests}; "
        f"accepted tokens keep {kept.estimate:.0%} (at most {kept.high:.0%}, 99.9 % interval)",
        "tokens a step by context: "
        + ", ".join(f"{one.acceptance_length:.2f} at {one.low} to {one.high}" for one in ranges),
    )


def _steps(records: Iterable[RequestRecord]) -> list[_Step]:
    """Steps with a draft in the order of the context they saw, which grows by what each step yields."""
    found: list[_Step] = []
    for number, record in enumerate(records):
        if (
            not record.ok
            or record.warmup
            or record.accepted is None
            or record.prompt_tokens is None
        ):
            continue
        drafted: Sequence[int | None] = record.drafted or (None,) * len(record.accepted)
        if len(drafted) != len(record.accepted):
            continue
        context = record.prompt_tokens + 1
        for tokens, accepted in zip(drafted, record.accepted, strict=True):
            if tokens != 0:
                found.append(_Step(number, context, accepted))
            context += 1 + accepted
    return sorted(found, key=lambda step: step.context)


def _parts(steps: Sequence[_Step]) -> tuple[Sequence[_Step], ...]:
    half, quarter = len(steps) // 2, len(steps) // 4
    return steps[:half], steps[half:-quarter], steps[-quarter:]


def _range(steps: Sequence[_Step]) -> ContextRange:
    return ContextRange(
        low=steps[0].context,
        high=steps[-1].context,
        drafts=len(steps),
        requests=len({step.request for step in steps}),
        acceptance_length=1 + sum(step.accepted for step in steps) / len(steps),
    )


def _columns(short: Sequence[_Step], long: Sequence[_Step]) -> tuple[tuple[float, ...], ...]:
    """Accepted and drafts in the short and in the long part, one entry a request."""
    sums: dict[int, list[float]] = {}
    for offset, part in ((0, short), (2, long)):
        for step in part:
            entry = sums.setdefault(step.request, [0.0, 0.0, 0.0, 0.0])
            entry[offset] += step.accepted
            entry[offset + 1] += 1
    return tuple(zip(*sums.values(), strict=True))


def _kept_share(sums: tuple[float, ...]) -> float | None:
    """Accepted tokens a draft at long contexts over those at short ones."""
    near, near_drafts, far, far_drafts = sums
    if not near or not near_drafts or not far_drafts:
        return None
    return (far / far_drafts) / (near / near_drafts)
