"""What a comparison found, as records that can be shown and stored. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from specpanel.core.lab.arms import Arm, what_differs
from specpanel.core.lab.blocks import Cell, Tally
from specpanel.core.session.switching import Change
from specpanel.core.speculation.contrast import (
    FIGURES,
    LENGTH,
    TPOT,
    TTFT,
    Contrast,
    Sums,
    by_start,
    contrast,
)
from specpanel.core.speculation.cost import Cost, PowerFound, cost_of
from specpanel.core.speculation.few_units import FEWEST
from specpanel.core.speculation.verdict import Word, word_of

_BY_CLASS = (TPOT, TTFT, LENGTH)  # a class has no throughput of its own: classes run together


@dataclass(frozen=True, slots=True)
class ArmFound:
    """One side: what it did and cost. ``failed`` requests count nowhere else.

    ``acceptance_length`` is of steps with a draft, None where there was none; ``tokens_a_step`` of all.
    """

    arm: str
    drafter: str
    draft_tokens: int | None
    requests: int
    failed: int
    acceptance_length: float | None
    tokens_a_step: float | None
    cost: Cost


@dataclass(frozen=True, slots=True)
class Pairing:
    """``b`` against ``a``, in every figure, and by class of prompt.

    ``by_start``: the ratio of times per output token that each start of the servers found by itself.
    """

    a: str
    b: str
    differs: tuple[Change, ...]
    overall: tuple[Contrast, ...]
    by_class: dict[str, tuple[Contrast, ...]]
    word: Word | None  # a verdict on speculation where ``a`` drafts nothing and ``b`` does
    sentence: str
    by_start: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CompareFound:
    """A comparison. ``stopped`` says why it ended; ``arrangement`` how its servers stood."""

    arms: tuple[ArmFound, ...]
    pairings: tuple[Pairing, ...]
    blocks: int
    starts: int  # of each server
    block_prompts: int
    passes: int
    concurrency: int
    elapsed_s: float
    arrangement: str
    stopped: str
    notes: tuple[str, ...]


Measured = Mapping[int, Sums]


@dataclass(frozen=True, slots=True)
class Side:
    """What one side did in all its blocks, and start by start of its server."""

    tally: Tally
    starts: Sequence[Tally]


def pairing(
    a: Arm, b: Arm, sides: tuple[Side, Side], broken: Collection[Cell], seed: int
) -> Pairing:
    """``b`` against ``a`` from what both did in the same blocks, without what is ``broken``."""
    whole = tuple(side.tally.whole(broken) for side in sides)
    starts = [
        (one.whole(broken), other.whole(broken))
        for one, other in zip(sides[0].starts, sides[1].starts, strict=True)
    ]
    overall = tuple(
        contrast(figure, whole[0], whole[1], starts=starts, seed=seed) for figure in FIGURES
    )
    classes = [side.tally.by_class(broken) for side in sides]
    classes_by_start = [
        (one.by_class(broken), other.by_class(broken))
        for one, other in zip(sides[0].starts, sides[1].starts, strict=True)
    ]
    by_class = {
        kind: tuple(
            contrast(
                *(figure, classes[0][kind], classes[1][kind]),
                starts=[
                    (one.get(kind, {}), other.get(kind, {})) for one, other in classes_by_start
                ],
                seed=seed,
            )
            for figure in _BY_CLASS
        )
        for kind in sorted(classes[0].keys() & classes[1].keys())
    }
    judged = a.profile.drafter.method == "none" != b.profile.drafter.method
    return Pairing(
        a=a.name,
        b=b.name,
        differs=what_differs(a.profile, b.profile),
        overall=overall,
        by_class=by_class,
        word=_word(overall[0]) if judged else None,
        sentence=sentence(a.name, b.name, overall[0]),
        by_start=by_start(TPOT, starts),
    )


def arm_found(
    arm: Arm,
    sums: Measured,
    requests: int,
    failed: int,
    devices: int | None,
    power: PowerFound,
) -> ArmFound:
    """What one side did in all its blocks."""
    total = Sums()
    for one in sums.values():
        total.add(one)
    drafter = arm.profile.drafter
    return ArmFound(
        arm.name,
        drafter.method,
        drafter.draft_tokens,
        requests,
        failed,
        1 + total.accepted / total.drafts if total.drafts else None,
        total.decode_tokens / total.steps if total.steps else None,
        cost_of(total, devices=devices, mean_power_w=power.mean_w, power_absent=power.absent),
    )


def sentence(a: str, b: str, found: Contrast) -> str:
    """What the time per output token shows, in words, without a full stop at its end."""
    if found.value is None:
        return f"{b} against {a}: unknown, {found.absent}"
    figures = f"{found.value:.3f} times the time per output token of {a}"
    if found.interval is None:
        return f"{b}: {figures}; no interval ({found.absent})"
    interval = f"95 % interval {found.interval.low:.3f} to {found.interval.high:.3f}"
    if found.shown == "no difference shown":
        return f"{b}: no difference shown, {figures} ({interval})"
    faster = "faster" if found.shown == "better" else "slower"
    return f"{b} is {faster}: {figures} ({interval})"


def _word(found: Contrast) -> Word:
    """What the ratio shows of speculation."""
    return "unknown" if found.interval is None else word_of(found.interval)


def conclusion(pairings: Sequence[Pairing]) -> str:
    """All pairings in one line."""
    return "; ".join(one.sentence for one in pairings) or "nothing was compared"


def notes_of(
    groups: int, passes: int, failed: int, *, starts: int, in_turn: bool, remembers: bool
) -> tuple[str, ...]:
    """What a reader of the intervals should know.

    Args:
        starts: of each server.
        remembers: whether one of the drafters drafts from answers that its server gave before.
    """
    found: list[str] = []
    if groups < FEWEST:
        found.append(f"only {groups} blocks were measured on all sides; an interval needs {FEWEST}")
    if passes > 1 and not in_turn:
        found.append(
            f"prompts were sent {passes} times: from the second time on their beginnings may lie in "
            "the prefix cache, so times to first token mix both"
        )
    if passes > 1 and remembers and not in_turn:
        found.append(
            "the suffix drafter remembers the answers that its server gave: prompts that were sent again "
            "are drafted better than new ones would be"
        )
    if starts < 2:
        how = "one after the other and were" if in_turn else "side by side and were"
        found.append(
            f"the servers ran {how} started once: by how much two starts of one configuration differ is "
            "not in the intervals (--rounds 2 starts them again)"
        )
    if failed:
        found.append(f"{failed} requests failed: their prompts are left out on every side")
    return tuple(found)
