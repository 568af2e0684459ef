"""What token rows say about themselves before anything is trained on them. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specpanel.core.session.events import FindingMade

_EDGES = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
_LEAST_COVERAGE = 0.9


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One row: ``loss_mask`` is 1 where the drafter is trained to predict the token."""

    id: str
    input_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]
    finish_reason: str | None = None

    @property
    def trained(self) -> int:
        return sum(self.loss_mask)


@dataclass(frozen=True, slots=True)
class DatasetFacts:
    """``lengths`` is (up to and including, rows); the last edge is the longest row.

    ``mask_share``: trained tokens of all tokens. ``coverage``: share of the trained tokens that are among
    the ``draft_vocab_size`` most frequent; None with a full vocabulary.
    """

    rows: int
    tokens: int
    trained_tokens: int
    mask_share: float | None
    empty_rows: int
    longest: int
    truncated: int
    lengths: tuple[tuple[int, int], ...]
    distinct_tokens: int
    coverage: float | None
    packs: int
    validation_rows: int
    validation_packs: int
    truncated_share: float | None = None


def describe_rows(
    rows: Sequence[TokenRow],
    *,
    seq_length: int,
    pack_length: int,
    validation_share: float,
    draft_vocab_size: int | None,
) -> DatasetFacts:
    """What there is to say about the rows.

    Args:
        seq_length: rows of that length were cut off.
        pack_length: tokens of one training step; packs are counted by filling in order, and the trainer's
            own packing may need a few less.
    """
    lengths = [len(row.input_ids) for row in rows]
    tokens, trained = sum(lengths), sum(row.trained for row in rows)
    count = Counter(
        token
        for row in rows
        for token, mask in zip(row.input_ids, row.loss_mask, strict=True)
        if mask
    )
    coverage = None
    if draft_vocab_size is not None and trained:
        coverage = sum(often for _, often in count.most_common(draft_vocab_size)) / trained
    first_validation = int(len(rows) * (1 - validation_share))
    cut = sum(length >= seq_length for length in lengths)
    return DatasetFacts(
        rows=len(rows),
        tokens=tokens,
        trained_tokens=trained,
        mask_share=trained / tokens if tokens else None,
        empty_rows=sum(row.trained == 0 for row in rows),
        longest=max(lengths, default=0),
        truncated=cut,
        lengths=_histogram(lengths),
        distinct_tokens=len(count),
        coverage=coverage,
        packs=_packs(lengths[:first_validation], pack_length),
        validation_rows=len(rows) - first_validation,
        validation_packs=_packs(lengths[first_validation:], pack_length),
        truncated_share=cut / len(rows) if rows else None,
    )


def _histogram(lengths: Sequence[int]) -> tuple[tuple[int, int], ...]:
    longest = max(lengths, default=0)
    edges = [edge for edge in _EDGES if edge < longest] + ([longest] if longest else [])
    found = Counter(next(edge for edge in edges if length <= edge) for length in lengths)
    return tuple((edge, found[edge]) for edge in edges)


def _packs(lengths: Sequence[int], size: int) -> int:
    packs, room = 0, 0
    for length in lengths:
        if length > room:
            packs, room = packs + 1, size
        room -= min(length, size)
    return packs


def judge_rows(facts: DatasetFacts, *, least_mask_share: float) -> Iterator[FindingMade]:
    """What keeps these rows from being trained on (errors), and what may spoil it (warnings)."""
    if facts.rows == 0 or facts.trained_tokens == 0:
        yield FindingMade(
            "nothing-to-learn",
            "error",
            "no token of the data is trained on: every loss mask is 0, so the loss would look fine and "
            "nothing would be learned",
            "Use data with assistant turns, or let the target answer (data.answers = target).",
            "data.source",
        )
        return
    share = facts.mask_share or 0.0
    if share < least_mask_share:
        yield FindingMade(
            "few-trained-tokens",
            "warning",
            f"only {share:.1%} of the tokens are trained on",
            "Longer answers or shorter prompts make each step teach more.",
            "data.source",
        )
    if facts.empty_rows:
        yield FindingMade(
            "rows-without-answer",
            "warning",
            f"{facts.empty_rows} of {facts.rows} rows have no token to train on",
            "They cost time and teach nothing: look whether their prompts fill data.seq_length.",
            "data.seq_length",
        )
    if facts.validation_packs < 1:
        yield FindingMade(
            "no-validation",
            "error",
            f"of {facts.rows} rows none is left to validate with",
            "Use ten rows or more, or raise data.validation_share.",
            "data.validation_share",
        )
    if facts.packs < 1:
        yield FindingMade(
            "no-training-pack",
            "error",
            "the data does not fill a single pack to train on",
            "Use more rows.",
            "data.limit",
        )
    if facts.coverage is not None and facts.coverage < _LEAST_COVERAGE:
        yield FindingMade(
            "draft-vocabulary-small",
            "warning",
            f"the draft vocabulary covers {facts.coverage:.1%} of the trained tokens: the rest can "
            "never be drafted",
            "Raise algorithm.draft_vocab_size.",
            "algorithm.draft_vocab_size",
        )
    if facts.truncated_share is not None and facts.truncated_share > 0.1:
        yield FindingMade(
            "rows-cut-off",
            "warning",
            f"{facts.truncated} of {facts.rows} rows were cut off at {facts.longest} tokens",
            "Raise data.seq_length and trainer.total_seq_len: a drafter trained on beginnings is weak "
            "further on.",
            "data.seq_length",
        )
