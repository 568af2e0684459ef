"""Whether two greedy answers part where the target itself was undecided, or where it was not. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["tie", "difference", "unknown"]

# How far apart two log probabilities may lie and still change places by rounding, in nats. A logit of 16 to
# 32 has steps of 0.125 in bfloat16 and 0.016 in float16; float32 sums of another order differ by 1e-4 or so.
TIE_NATS: dict[str, float] = {"float32": 0.005, "float16": 0.05, "bfloat16": 0.25}
WIDEST_TIE = "bfloat16"


@dataclass(frozen=True, slots=True)
class Parting:
    """Where a pair of answers parts, judged.

    ``gap_nats`` is how much likelier the target finds the one token than the other, at least where
    ``at_least``; ``None`` where it was not told.
    """

    prompt_id: str
    place: int
    with_drafter: int | None
    without_drafter: int | None
    kind: Kind
    gap_nats: float | None
    at_least: bool = False


def judged(
    prompt_id: str,
    place: int,
    with_drafter: int | None,
    without_drafter: int | None,
    logprobs: Mapping[int, float] | None,
    tolerance_nats: float,
) -> Parting:
    """The parting of one pair.

    Args:
        logprobs: of the target's likeliest tokens at that place, by token id; None where it did not say.
    """
    gap, at_least = _gap(with_drafter, without_drafter, logprobs)
    if gap is None:
        kind: Kind = "unknown"
    elif gap <= tolerance_nats and not at_least:
        kind = "tie"
    else:
        kind = "difference"
    return Parting(prompt_id, place, with_drafter, without_drafter, kind, gap, at_least)


def _gap(
    one: int | None, other: int | None, logprobs: Mapping[int, float] | None
) -> tuple[float | None, bool]:
    if not logprobs or one is None or other is None:
        return None, False
    if one in logprobs and other in logprobs:
        return abs(logprobs[one] - logprobs[other]), False
    # One of them is not even among the likeliest that were listed.
    return max(logprobs.values()) - min(logprobs.values()), True


def tolerance_of(dtype: str | None) -> float:
    """The tolerance for a target served in ``dtype``; the widest where that is not known."""
    return TIE_NATS.get(dtype or "", TIE_NATS[WIDEST_TIE])
