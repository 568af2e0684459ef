"""Whether greedy answers with the drafter are the answers without it, token for token."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from specpanel.core.traffic.records import RequestRecord

Item = TypeVar("Item", int, str)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two answers to one prompt part for the first time.

    ``place`` counts from 0 in ``unit``. ``with_drafter`` and ``without_drafter`` are the token id or the
    character there, ``None`` where that answer had already ended.
    """

    prompt_id: str
    place: int
    unit: Literal["token", "character"]
    with_drafter: int | str | None
    without_drafter: int | str | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """How many answers were compared, how many were identical, and where the others part."""

    compared: int
    identical: int
    differences: tuple[Difference, ...]


def agreement(
    with_drafter: Iterable[RequestRecord], without_drafter: Iterable[RequestRecord]
) -> Agreement:
    """Compare answers prompt by prompt, the first answer to a prompt with the first, and so on.

    Token ids are compared where both have them, texts otherwise. Warm-up and failed requests are left
    out. Only answers at temperature 0 are meant to agree.
    """
    treated, plain = _by_prompt(with_drafter), _by_prompt(without_drafter)
    compared = 0
    differences: list[Difference] = []
    for prompt, answers in treated.items():
        for one, other in zip(answers, plain.get(prompt, ()), strict=False):
            compared += 1
            difference = _first_difference(one, other)
            if difference is not None:
                differences.append(difference)
    return Agreement(compared, compared - len(differences), tuple(differences))


def _by_prompt(records: Iterable[RequestRecord]) -> dict[str, list[RequestRecord]]:
    answers: defaultdict[str, list[RequestRecord]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.index):
        if record.ok and not record.warmup:
            answers[record.prompt_id].append(record)
    return answers


def _first_difference(one: RequestRecord, other: RequestRecord) -> Difference | None:
    if one.token_ids is not None and other.token_ids is not None:
        place = _parting(one.token_ids, other.token_ids)
        if place is None:
            return None
        return Difference(
            one.prompt_id, place, "token", _get(one.token_ids, place), _get(other.token_ids, place)
        )
    place = _parting(one.text, other.text)
    if place is None:
        return None
    return Difference(
        one.prompt_id, place, "character", _get(one.text, place), _get(other.text, place)
    )


def _parting(one: Sequence[object], other: Sequence[object]) -> int | None:
    """The first index at which two sequences differ; ``None`` for equal ones."""
    if one == other:
        return None
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return place
    return min(len(one), len(other))


def _get(items: Sequence[Item], place: int) -> Item | None:
    return items[place] if place < len(items) else None
