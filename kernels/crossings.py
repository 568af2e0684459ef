"""Where in a row of growing queries MHA begins or ceases to win: brackets, and what is measured next. Pure.

A row has the cells of one number of heads and one context. A *bracket* is two neighbours of which one is a
win. It is halved until the two are 5 % apart; beside a neighbour that is too noisy to tell it cannot be,
since what lies there is within the noise.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from specpanel.kernels.cells import Cell, settled
from specpanel.kernels.thresholds import contradiction

REFINE_TO = 1.05

Place = tuple[int, int, int]
"""Heads, query, context."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """MHA begins (or ceases) to win by more than the margin between ``after`` and ``until`` new tokens.

    ``state``: ``refined`` to 5 %; ``noise``: a side of it is undecided; ``cut short``: it was not halved on.
    """

    heads: int
    context: int
    after: int
    until: int
    begins: bool
    state: Literal["refined", "noise", "cut short"]


def rows_of(cells: Iterable[Cell]) -> Iterator[list[Cell]]:
    """The rows of ``cells``, each by growing query."""
    ordered = sorted(cells, key=lambda cell: (cell.heads, cell.context, cell.query))
    for _, row in itertools.groupby(ordered, key=lambda cell: (cell.heads, cell.context)):
        yield list(row)


def crossings(cells: Iterable[Cell], margin: float) -> list[Crossing]:
    """Every crossing that the cells show, by heads, context and query."""
    return [
        Crossing(
            left.heads,
            left.context,
            left.query,
            right.query,
            right.outcome(margin) > 0,
            "refined"
            if _close(left, right)
            else "cut short"
            if settled(left, margin) and settled(right, margin)
            else "noise",
        )
        for row in rows_of(cells)
        for left, right in _brackets(row, margin)
    ]


def to_halve(cells: Iterable[Cell], margin: float) -> list[Place]:
    """The steps in the middle of each bracket that is wider than 5 % and whose sides are beyond doubt.

    Each lies strictly between the sides, so that halving comes to its end.
    """
    return [
        (left.heads, max(left.query + 1, math.isqrt(left.query * right.query)), left.context)
        for row in rows_of(cells)
        for left, right in _brackets(row, margin)[:2]
        if settled(left, margin) and settled(right, margin) and not _close(left, right)
    ]


def in_doubt(cells: Iterable[Cell], margin: float) -> list[Place]:
    """The steps to measure again: undecided ones, and rows that contradict themselves."""
    return [
        (cell.heads, cell.query, cell.context)
        for row in rows_of(cells)
        for odd in [contradiction(row, margin) is not None]
        for cell in row
        if odd or not settled(cell, margin)
    ]


def _brackets(row: Sequence[Cell], margin: float) -> list[tuple[Cell, Cell]]:
    return [
        (left, right)
        for left, right in itertools.pairwise(row)
        if (left.outcome(margin) > 0) != (right.outcome(margin) > 0)
    ]


def _close(left: Cell, right: Cell) -> bool:
    return right.query <= left.query * REFINE_TO or right.query - left.query <= 1
