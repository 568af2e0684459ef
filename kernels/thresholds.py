"""Thresholds out of measured cells: the ranges that lose least time, and when none can be believed. Pure."""

import itertools
from collections.abc import Iterable, Sequence

from specpanel.kernels.cells import Cell
from specpanel.kernels.vllm_rules import Ranges

# What another range must save, in shares of a cell's time: fewer than so much is noise that was learnt.
_WORTH_A_RANGE = 0.02

_Losses = tuple[int, float, float]
"""A cell's query, and the share of time lost there by its MHA form and by MQA."""


def contradiction(cells: Sequence[Cell], margin: float) -> str | None:
    """Why no threshold describes ``cells`` of one number of heads, or None.

    In one row of growing queries MHA may lose, then win, then lose, and no more.
    """
    for context, group in itertools.groupby(cells, key=lambda cell: cell.context):
        clear = [cell for cell in group if cell.outcome(margin)]
        runs = [outcome for outcome, _ in itertools.groupby(cell.outcome(margin) for cell in clear)]
        if runs.count(1) > 1:
            told = ", ".join(f"{cell.query}: {cell.gain:.2f}x" for cell in clear)
            after = f" after {context} cached tokens" if context else ""
            return f"MHA wins, loses and wins again as queries grow{after} ({told})"
    return None


def pure_ranges(cells: Sequence[Cell], margin: float) -> Ranges:
    """Without context a query is the whole sequence: one range from the first win to the last."""
    wins = [cell.query for cell in cells if cell.outcome(margin) > 0]
    if not wins:
        return ()
    return ((max(wins), 0 if min(wins) == cells[0].query else min(wins)),)


def context_ranges(cells: Iterable[Cell], margin: float) -> Ranges:
    """With context: the ranges of length, each with its shortest query, that lose the least time.

    What MQA loses counts where MHA won beyond doubt, what MHA loses always: doubt is for MQA.
    Every measured length may end a range, and every measured query of a range may be its shortest. The
    cheapest division is found exactly, by length from the shortest on; another range must be worth it.
    """
    by_length: dict[int, list[_Losses]] = {}
    for cell in cells:
        by_mqa = cell.regret("sparse_mqa") if cell.outcome(margin) > 0 else 0.0
        losses = (cell.query, cell.regret(cell.mha), by_mqa)
        by_length.setdefault(cell.step.seq_len, []).append(losses)
    lengths = sorted(by_length)
    # best[n]: the loss of the first n lengths, and the ranges that have it.
    best: list[tuple[float, Ranges]] = [(0.0, ())]
    for end, longest in enumerate(lengths, start=1):
        inside: list[_Losses] = []
        choices = []
        for begin in range(end - 1, -1, -1):
            inside += by_length[lengths[begin]]
            loss, shortest = _shortest_query(inside, longest)
            before, ranges = best[begin]
            choices.append((before + loss + _WORTH_A_RANGE, (*ranges, (longest, shortest))))
        best.append(min(choices, key=lambda choice: choice[0]))
    found = list(best[-1][1])
    while found and found[-1][1] > found[-1][0]:
        found.pop()
    return tuple(found)


def _shortest_query(cells: Sequence[_Losses], longest: int) -> tuple[float, int]:
    """The loss of ``cells`` and the shortest query with which it is least; beyond ``longest`` for never."""
    least = loss = sum(by_mqa for _, _, by_mqa in cells)
    shortest = longest + 1
    # From the longest query on. Of equals the first: MQA is right always, MHA where it was seen to win.
    for query, group in itertools.groupby(sorted(cells, reverse=True), key=lambda cell: cell[0]):
        loss += sum(by_mha - by_mqa for _, by_mha, by_mqa in group)
        if loss < least:
            least, shortest = loss, query
    return least, shortest
