"""Whether one drafter is better than another, from what requests report on the same prompts. Pure.

Prompts are the units that are resampled: steps of one answer are not independent of each other.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from specpanel.core.monitor.frame import Interval
from specpanel.core.speculation.contrast import LENGTH, Sums, contrast, sums_of
from specpanel.core.traffic.records import RequestRecord

MARGIN = 0.02  # acceptance length; below that a swap is not worth the prefix cache that it costs

LARGEST_GAP = 0.05  # of the prediction; below that it is noise and the difference of prompts

Outcome = Literal["better", "worse", "not shown"]


@dataclass(frozen=True, slots=True)
class Gain:
    """Acceptance length of a candidate against the drafter that was there, on the prompts of both.

    ``difference`` is candidate minus before, its interval 95 %; None with ``absent`` saying why.
    """

    prompts: int
    before: float | None
    candidate: float | None
    difference: float | None
    interval: Interval | None
    absent: str | None = None


def gain(before: Iterable[RequestRecord], candidate: Iterable[RequestRecord]) -> Gain:
    """What the candidate gains over the drafter before it."""
    found = contrast(LENGTH, _by_prompt(before), _by_prompt(candidate))
    return Gain(found.groups, found.a, found.b, found.value, found.interval, found.absent)


def outcome(found: Gain, margin: float = MARGIN) -> tuple[Outcome, str]:
    """What is shown, and the sentence that says so.

    Better: the lower bound of the difference is above the margin. Worse: the difference itself is below
    minus the margin, since going back must not wait for certainty.
    """
    if found.difference is None:
        return "not shown", f"the difference is not known: {found.absent or 'no drafts'}"
    shown = (
        f"acceptance length {found.before:.2f} → {found.candidate:.2f} on {found.prompts} prompts"
    )
    if found.difference < -margin:
        return "worse", f"{shown}: lower by more than the margin of {margin:g}"
    if found.interval is None:
        return "not shown", f"{shown}, without an interval: {found.absent or 'too few prompts'}"
    bound = f"the difference is at least {found.interval.low:+.2f} (95 %)"
    if found.interval.low > margin:
        return "better", f"{shown}: {bound}, above the margin of {margin:g}"
    return "not shown", f"{shown}: {bound}, not above the margin of {margin:g}"


def train_to_serve(predicted: float | None, found: Gain) -> str | None:
    """What is to be said of the acceptance that the trainer foretold; None where it foretold none.

    The trainer predicts on its validation rows, serving is measured on held-out prompts.
    """
    if predicted is None or found.candidate is None:
        return None
    gap = found.candidate / predicted - 1
    shown = (
        f"the trainer foretold {predicted:.2f}, serving shows {found.candidate:.2f} ({gap:+.0%})"
    )
    if gap >= -LARGEST_GAP:
        return shown
    return (
        f"{shown}: look whether chat template, answers of the target itself, answer lengths, quantisation "
        "and draft vocabulary were the same in training"
    )


def _by_prompt(records: Iterable[RequestRecord]) -> dict[int, Sums]:
    """Sums by prompt. A prompt's place among all ids stands for it, so both sides agree on it."""
    found: dict[int, Sums] = {}
    for record in records:
        key = _number(record.prompt_id)
        found.setdefault(key, Sums()).add(sums_of([record]))
    return {key: sums for key, sums in found.items() if sums.drafts}


def _number(prompt_id: str) -> int:
    """The id as a number: contrasts count groups, and an id is short."""
    return int.from_bytes(prompt_id.encode(), "big")
