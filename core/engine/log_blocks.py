"""Where the blocks of a log lie on one side of an anchor, and what was counted in them. Pure."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from specpanel.core.engine.log_filter import Selection


class Side:
    """Blocks in one direction from the anchor: edges, and counts up to each edge (40 bytes a block)."""

    def __init__(self, anchor: int) -> None:
        self.edges = array("Q", [anchor])
        self.lines = array("Q", [0])
        self.hits = array("Q", [0])
        self.notable = array("Q", [0])
        self.folded = array("Q", [0])

    def __len__(self) -> int:
        return len(self.edges) - 1

    def add(self, edge: int, chosen: Selection) -> None:
        self.edges.append(edge)
        self.lines.append(self.lines[-1] + chosen.lines)
        self.hits.append(self.hits[-1] + len(chosen.hits))
        self.notable.append(self.notable[-1] + len(chosen.notable))
        self.folded.append(self.folded[-1] + chosen.folded)

    def drop_last(self) -> None:
        for counts in (self.edges, self.lines, self.hits, self.notable, self.folded):
            counts.pop()

    def bounds(self, block: int) -> tuple[int, int]:
        one, other = self.edges[block], self.edges[block + 1]
        return min(one, other), max(one, other)

    def holding(self, hit: int) -> int:
        """The block of a hit, both counted from the anchor; ``len`` where no block holds it yet."""
        return bisect_right(self.hits, hit) - 1

    def notable_outward(self, block: int) -> int | None:
        """The first block from ``block`` on, away from the anchor, that holds a warning or an error."""
        if block >= len(self):
            return None
        found = bisect_right(self.notable, self.notable[block])
        return found - 1 if found < len(self.notable) else None

    def notable_inward(self, block: int) -> int | None:
        """The last such block before ``block``, towards the anchor."""
        found = bisect_left(self.notable, self.notable[block])
        return found - 1 if found > 0 else None


@dataclass(frozen=True, slots=True)
class Block:
    """The lines of one block and what the filter chose of them.

    ``starts`` are the lines' offsets; ``first_ordinal`` is that of its first hit, ``first_number`` that of
    its first line.
    """

    lines: Sequence[bytes]
    chosen: Selection
    starts: Sequence[int]
    first_ordinal: int
    first_number: int


def line_starts(lines: Sequence[bytes], begin: int) -> list[int]:
    """Where each of ``lines`` begins, the first at ``begin``, each followed by one line end."""
    return list(accumulate((len(line) + 1 for line in lines[:-1]), initial=begin))
