"""An index over a growing log, whatever its size: any line at once, and memory that stays flat.

The file is cut into blocks of whole lines, about 64 KiB each, outward from an anchor: forward to the end
that grows, backward to the start. Of a block only its edge and running counts are kept (40 bytes, so
1.3 MB for 2 GB), and a line is found by bisection and by reading its block again. Lines that the filter
lets through are numbered from the anchor, negative before it, so the lines around the anchor can be shown
before the rest has been looked at.

Nothing here runs by itself: ``advance`` works for a given time and is called in a thread, one at a time.
"""

import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Literal

from specpanel.core.engine.log_blocks import Block, Side, line_starts
from specpanel.core.engine.log_filter import (
    SHOW_ALL,
    LogFilter,
    Matches,
    Selection,
    Severity,
    lines_of,
    severity_of,
)
from specpanel.core.engine.log_source import LogSource
from specpanel.core.engine.logline import LogLine, parse_line

_BLOCK = 1 << 16
_STRIDE = 1 << 20  # read at once while looking for the end of a very long line
_CACHED_BLOCKS = 8
_HEAD = 64  # first bytes that tell a file from one written in its place

Anchor = Literal["start", "end"] | int


@dataclass(frozen=True, slots=True)
class Entry:
    """A line that is shown. ``number`` counts every line from the anchor; ``offset`` is where it begins."""

    ordinal: int
    number: int
    offset: int
    line: LogLine
    severity: Severity | None


@dataclass(frozen=True, slots=True)
class LogState:
    """What is known of the log now. Ordinals of shown lines run from ``first`` to before ``end``.

    ``lines_before`` is how many lines stand before the anchor, None while that is not known.
    ``generation`` changes when the file was replaced or cut short: ordinals begin anew.
    """

    first: int = 0
    end: int = 0
    lines: int = 0
    hits: int = 0
    folded: int = 0
    notable: int = 0
    size: int = 0
    indexed: int = 0
    lines_before: int | None = None
    at_end: bool = False  # nothing after what is indexed
    exists: bool = False
    generation: int = 0

    @property
    def complete(self) -> bool:
        return self.at_end and self.lines_before is not None

    @property
    def progress(self) -> float:
        """Share of the bytes that have been looked at."""
        return 1.0 if self.complete or not self.size else min(1.0, self.indexed / self.size)


class LogIndex:
    """The lines of a log that a filter lets through.

    Args:
        source: where the bytes are.
        shown: the filter; another filter is another index, cheapest anchored where one is looking.
        anchor: from where to look: the end, the start, or the offset of a line.
        matches: what searches lines for the filter's regex; it may refuse, and then so do all methods.
    """

    def __init__(
        self,
        source: LogSource,
        shown: LogFilter = SHOW_ALL,
        anchor: Anchor = "end",
        matches: Matches | None = None,
    ) -> None:
        self.source = source
        self.shown = shown
        self._matches = matches
        self.state = LogState()
        self._anchor = anchor
        self._identity: object = None
        self._head = b""
        self._later = Side(0)
        self._earlier = Side(0)
        self._open = False  # the last block ended with the file and may grow
        self._tail = b""  # the last line, while it has no line end
        self._tail_chosen = Selection(0, ())
        self._searched = (-1, 0)  # a line without an end so far: its start, and how far was looked
        self._cache: OrderedDict[tuple[int, int], Block] = OrderedDict()

    # Growing

    def advance(self, budget_s: float = 0.05) -> bool:
        """Look at more of the log for about ``budget_s``; True while there is more to look at."""
        deadline = time.monotonic() + budget_s
        status = self.source.status()
        if status is None:
            self.state = replace(self.state, exists=False, at_end=True)
            return False
        identity, size = status
        if identity != self._identity or size < self._later.edges[-1] or not self._same_head():
            self._begin(identity, size)
        more = self._step(size)
        while more and time.monotonic() < deadline:
            more = self._step(size)
        self._take_tail(size)
        self._tell(size, at_end=not more or self._later.edges[-1] + len(self._tail) >= size)
        return more

    @property
    def unread_bytes(self) -> int:
        """What has been written after the last line that was looked at."""
        return max(0, self.state.size - self._later.edges[-1] - len(self._tail))

    def _begin(self, identity: object, size: int) -> None:
        replaced = self._identity is not None
        offset = self._anchor_offset("end" if replaced else self._anchor, size)
        self._identity = identity
        self._head = self.source.read(0, _HEAD)
        self._later, self._earlier = Side(offset), Side(offset)
        self._open, self._searched = False, (-1, 0)
        self._tail, self._tail_chosen = b"", Selection(0, ())
        self._cache.clear()
        self.state = LogState(generation=self.state.generation + (1 if replaced else 0))

    def _anchor_offset(self, anchor: Anchor, size: int) -> int:
        if isinstance(anchor, int):
            return min(anchor, size)
        return 0 if anchor == "start" else self._line_start(size)

    def _same_head(self) -> bool:
        head = self.source.read(0, _HEAD)
        same = head.startswith(self._head)
        if same:
            self._head = head
        return same

    def _step(self, size: int) -> bool:
        forward = self._forward(size)
        return self._backward() or forward

    def _forward(self, size: int) -> bool:
        """One block towards the end; False when there is none."""
        later = self._later
        known = later.edges[-1]
        if size <= known:
            return False
        start = later.edges[-2] if self._open else known
        data = self.source.read(start, _BLOCK)
        full = len(data) == _BLOCK
        end = start + data.rfind(b"\n") + 1
        if end <= known and self._open:
            self._open = not full
            return full
        if end == start:
            if not full:
                return False
            found = self._line_end(start, size)
            if found is None:
                return self._searched[1] < size
            end = found
        if self._open:
            later.drop_last()
        later.add(end, self._select(data[: end - start]))
        self._open = not full
        return True

    def _line_end(self, start: int, size: int) -> int | None:
        """Where the very long line that begins at ``start`` ends; None when not found in one stride."""
        looked = self._searched[1] if self._searched[0] == start else start + _BLOCK
        data = self.source.read(looked, min(_STRIDE, max(0, size - looked)))
        place = data.find(b"\n")
        self._searched = (start, looked + len(data) if data else size)
        return None if place < 0 else looked + place + 1

    def _line_start(self, end: int) -> int:
        """Where the line begins that the byte before ``end`` belongs to; ``end`` after a line end."""
        while end > 0:
            begin = max(0, end - _STRIDE)
            place = self.source.read(begin, end - begin).rfind(b"\n")
            if place >= 0:
                return begin + place + 1
            end = begin
        return 0

    def _backward(self) -> bool:
        """One block towards the start; False when there is none."""
        end = self._earlier.edges[-1]
        if end == 0:
            return False
        begin = max(0, end - _BLOCK)
        data = self.source.read(begin, end - begin)
        if len(data) < end - begin:
            return False  # cut short a moment ago: the next call begins anew
        place = data.find(b"\n") + 1
        if begin == 0:
            start = 0
        elif 0 < place < len(data):
            start, data = begin + place, data[place:]
        else:
            start = self._line_start(begin)
            data = self.source.read(start, min(_BLOCK, end - start))
        self._earlier.add(start, self._select(data))
        return True

    def _select(self, block: bytes) -> Selection:
        return self.shown.select(block, self._matches)

    def _take_tail(self, size: int) -> None:
        known = self._later.edges[-1]
        tail = self.source.read(known, min(_BLOCK, size - known)) if size > known else b""
        if b"\n" in tail:  # whole lines that the time did not suffice for
            tail = b""
        if tail != self._tail:
            self._tail, self._tail_chosen = tail, self._select(tail)

    def _tell(self, size: int, *, at_end: bool) -> None:
        later, earlier, tail = self._later, self._earlier, self._tail_chosen
        hits = len(tail.hits)
        self.state = LogState(
            first=-earlier.hits[-1],
            end=later.hits[-1] + hits,
            lines=earlier.lines[-1] + later.lines[-1] + tail.lines,
            hits=earlier.hits[-1] + later.hits[-1] + hits,
            folded=earlier.folded[-1] + later.folded[-1] + tail.folded,
            notable=earlier.notable[-1] + later.notable[-1] + len(tail.notable),
            size=size,
            indexed=later.edges[-1] - earlier.edges[-1] + len(self._tail),
            lines_before=earlier.lines[-1] if earlier.edges[-1] == 0 else None,
            at_end=at_end,
            exists=True,
            generation=self.state.generation,
        )

    # Reading

    def window(self, first: int, count: int) -> list[Entry]:
        """The shown lines with ordinals ``first`` to ``first + count``, as far as there are any."""
        ordinal = max(first, self.state.first)
        end = min(first + count, self.state.end)
        entries: list[Entry] = []
        while ordinal < end:
            block = self._block_of(ordinal)
            if block is None:
                break
            skip = ordinal - block.first_ordinal
            taken = block.chosen.hits[skip : skip + end - ordinal]
            if not taken:
                break
            for place in taken:
                line = parse_line(block.lines[place])
                entries.append(
                    Entry(
                        ordinal,
                        block.first_number + place,
                        block.starts[place],
                        line,
                        severity_of(line),
                    )
                )
                ordinal += 1
        return entries

    def whole(self, offset: int) -> LogLine:
        """The line that begins at ``offset``, with up to 64 KiB of its text."""
        data = self.source.read(offset, _BLOCK)
        place = data.find(b"\n")
        return parse_line(data if place < 0 else data[:place], _BLOCK)

    def notable_after(self, ordinal: int) -> int | None:
        """The next warning or error after a shown line, among what has been looked at."""
        return self._notable(ordinal, forward=True)

    def notable_before(self, ordinal: int) -> int | None:
        """The warning or error before a shown line, among what has been looked at."""
        return self._notable(ordinal, forward=False)

    def _notable(self, ordinal: int, *, forward: bool) -> int | None:
        here = self._place_of(ordinal)
        if here is None:
            return None
        side, block = here
        if (found := self._notable_in(side, block, ordinal, forward=forward)) is not None:
            return found
        ahead, behind = self._later, self._earlier
        if not forward:
            ahead, behind = behind, ahead
        if side is behind:  # first to the anchor, then away from it
            nearer = side.notable_inward(block)
            if nearer is not None:
                return self._notable_in(side, nearer, None, forward=forward)
            side, block = ahead, -1
        further = side.notable_outward(block + 1)
        return None if further is None else self._notable_in(side, further, None, forward=forward)

    def _notable_in(
        self, side: Side, number: int, ordinal: int | None, *, forward: bool
    ) -> int | None:
        """The nearest warning or error of a block, from ``ordinal`` or from its edge."""
        if number >= len(side):
            return None
        block = self._block(side, number)
        ordinals = [block.first_ordinal + place for place in block.chosen.notable]
        if forward:
            return next((o for o in ordinals if ordinal is None or o > ordinal), None)
        return next((o for o in reversed(ordinals) if ordinal is None or o < ordinal), None)

    def _place_of(self, ordinal: int) -> tuple[Side, int] | None:
        """The side and the block that hold a shown line; the unfinished last line lies after all blocks."""
        if not self.state.first <= ordinal < self.state.end:
            return None
        if ordinal >= 0:
            return self._later, self._later.holding(ordinal)
        return self._earlier, self._earlier.holding(-ordinal - 1)

    def _block_of(self, ordinal: int) -> Block | None:
        here = self._place_of(ordinal)
        if here is None:
            return None
        side, number = here
        return self._tail_block() if number >= len(side) else self._block(side, number)

    def _tail_block(self) -> Block:
        later = self._later
        return Block(
            lines_of(self._tail),
            self._tail_chosen,
            [later.edges[-1]],
            later.hits[-1],
            later.lines[-1],
        )

    def _block(self, side: Side, number: int) -> Block:
        start, end = side.bounds(number)
        block = self._cache.get((start, end))
        if block is None:
            data = self.source.read(start, min(_BLOCK, end - start))
            lines = lines_of(data)
            chosen = self._select(data)
            later = side is self._later
            ordinal = side.hits[number] if later else -side.hits[number + 1]
            line_number = side.lines[number] if later else -side.lines[number + 1]
            block = self._cache[start, end] = Block(
                lines, chosen, line_starts(lines, start), ordinal, line_number
            )
            if len(self._cache) > _CACHED_BLOCKS:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end((start, end))
        return block
