"""Choosing a path by measured thresholds: one answer for every step, steady near a threshold. Pure.

Thresholds have vLLM's shape, ``(longest sequence, shortest query)`` in ascending order, for prompts without
and with cached context, for each number of local heads. They come from ``calibrate``; without them everything
is sparse MQA, which is always right.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from specpanel.kernels.errors import MLAError
from specpanel.kernels.vllm_rules import MASK_BUDGET_BYTES, Ranges, Step, Tier, mask_bytes


@dataclass(frozen=True, slots=True)
class HeadRows:
    """Thresholds of one number of local heads: of pure prefills, and of those with cached context."""

    pure: Ranges
    context: Ranges

    def __post_init__(self) -> None:
        for ranges in (self.pure, self.context):
            lengths = [longest for longest, _ in ranges]
            if lengths != sorted(set(lengths)) or any(shortest < 0 for _, shortest in ranges):
                raise MLAError(
                    "thresholds must have ascending lengths and no negative query",
                    "Calibrate again: specpanel mla calibrate.",
                )


@dataclass(frozen=True, slots=True)
class Choice:
    """The path of a step and why."""

    tier: Tier
    reason: str


def choose(
    rows: Mapping[int, HeadRows],
    heads: int,
    step: Step,
    topk: int | None,
    *,
    mask_budget_bytes: int = MASK_BUDGET_BYTES,
    previous: Tier | None = None,
    band: float = 0.05,
) -> Choice:
    """The path for ``step``.

    Args:
        rows: thresholds by local heads.
        topk: how many tokens the indexer leaves; None: there is none, and everything is dense MHA.
        mask_budget_bytes: masked MHA is never chosen when its mask needs more.
        previous: the path of the last step. It is kept while the step is within ``band`` (a share) of a
            threshold, so that lengths that vary a little do not switch back and forth.
    """
    if topk is None:
        return Choice("dense_mha", "there is no indexer: everything is selected")
    dense = step.seq_len <= topk
    if not dense and mask_bytes(step) > mask_budget_bytes:
        need = mask_bytes(step) / 2**20
        return Choice("sparse_mqa", f"the mask needs {need:.1f} MiB, more than there is")
    found = rows.get(heads)
    if found is None:
        return Choice("sparse_mqa", f"nothing was measured for {heads} heads")
    ranges = found.context if step.has_context else found.pure
    was_mha = previous in ("dense_mha", "masked_mha")
    lean = 0.0 if previous is None else band if was_mha else -band
    if not within(ranges, step, lean):
        return Choice("sparse_mqa", "outside the measured thresholds")
    return Choice("dense_mha" if dense else "masked_mha", "inside the measured thresholds")


def within(ranges: Ranges, step: Step, lean: float = 0.0) -> bool:
    """Whether the first range that fits admits the query; ``lean`` widens (or narrows) every threshold."""
    wide = 1.0 + abs(lean)
    for longest, shortest in ranges:
        limit = longest * wide if lean > 0 else longest / wide
        if step.seq_len <= limit:
            return step.query_len >= (shortest / wide if lean > 0 else shortest * wide)
    return False
