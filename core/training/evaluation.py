"""From records of served prompts to what a checkpoint is worth, beside what its trainer foretold. Pure."""

from collections.abc import Iterable, Sequence
from statistics import fmean

from specpanel.core.speculation.acceptance import step_acceptance
from specpanel.core.speculation.contrast import sums_of
from specpanel.core.traffic.records import RequestRecord
from specpanel.core.training.progress import WALKED
from specpanel.core.training.records import (
    Acceptance,
    Evaluation,
    PositionServed,
    Prediction,
)


def acceptance_of(records: Sequence[RequestRecord], prediction: Prediction | None) -> Acceptance:
    """What was accepted of each answer's drafts; intervals from resampled prompts."""
    foretold = (
        {one.position: one.unconditional for one in prediction.positions} if prediction else {}
    )
    lengths = [one.output_tokens for one in records if one.ok and one.output_tokens]
    steps = step_acceptance(records)
    return Acceptance(
        prompts=len(records),
        failed=sum(not one.ok for one in records),
        drafts=steps.steps if steps else 0,
        acceptance_length=steps.acceptance_length if steps else None,
        interval=steps.acceptance_length_interval if steps else None,
        positions=tuple(
            PositionServed(one.position - 1, one.rate, foretold.get(one.position - 1))
            for one in (steps.positions if steps else ())
        ),
        answer_tokens=fmean(lengths) if lengths else None,
        token_weighted=token_weighted(records),
    )


def token_weighted(records: Iterable[RequestRecord]) -> float | None:
    """The prompts' acceptance lengths, each counted by the tokens that its drafts yielded.

    A trainer averages over tokens. Serving averages over drafts, and what is hard to draft takes more of
    them: with an acceptance length of 1 on half of the tokens and 3 on the other, the trainer's average is 2
    and serving's 1.5.
    """
    weighted, tokens = 0.0, 0
    for record in records:
        sums = sums_of([record])
        if sums.drafts:
            yielded = sums.drafts + sums.accepted
            weighted += yielded * yielded / sums.drafts
            tokens += yielded
    return weighted / tokens if tokens else None


def gap(served: float | None, predicted: float | None) -> float | None:
    """How far serving is from what was foretold, relative to it; negative where it is worse."""
    return None if served is None or not predicted else served / predicted - 1


def by_tokens(prediction: Prediction | None) -> bool:
    """Whether the trainer averaged over tokens; where it walked answers draft by draft, it did not."""
    return prediction is not None and prediction.formula != WALKED


def best_served(evaluations: Iterable[Evaluation]) -> Evaluation | None:
    """The one that accepted most on held-out prompts, the newest of several; None where none was measured."""
    measured = [one for one in evaluations if length_of(one) is not None]
    return max(measured, key=lambda one: (length_of(one) or 0.0, one.step), default=None)


def length_of(evaluation: Evaluation) -> float | None:
    """Acceptance length on held-out prompts."""
    return None if evaluation.heldout is None else evaluation.heldout.acceptance_length
