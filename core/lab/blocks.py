"""Blocks of prompts, and what a side did in them, added up by block and by class of prompt. Pure."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from specpanel.core.errors import ConfigurationError
from specpanel.core.lab.servers import Block
from specpanel.core.speculation.contrast import Sums, sums_of
from specpanel.core.traffic.records import Prompt


def blocks_of(prompts: Sequence[Prompt], size: int) -> tuple[tuple[Prompt, ...], ...]:
    """The prompts in blocks of ``size``, in order; what does not fill a block is left out.

    Raises:
        ConfigurationError: there are not enough for one block.
    """
    count = len(prompts) // size
    if count == 0:
        raise ConfigurationError(
            f"{len(prompts)} prompts do not fill a block of {size}",
            "Bring more prompts, or make the blocks smaller.",
        )
    return tuple(tuple(prompts[n * size : (n + 1) * size]) for n in range(count))


def warmup_prompts(blocks: Sequence[Sequence[Prompt]], count: int) -> tuple[Prompt, ...]:
    """Prompts to warm up with: the last ones, which a short experiment never measures."""
    backwards = [prompt for block in reversed(blocks) for prompt in reversed(block)]
    return tuple(backwards[n % len(backwards)] for n in range(count))


Cell = tuple[int, str]  # group, and a prompt's id


@dataclass(slots=True)
class Tally:
    """What one side did, prompt by prompt; the same prompt again goes to the same sums.

    ``broken`` are prompts that failed at least once: a comparison leaves them out on every side, for what
    one side did in them has no counterpart.
    """

    cells: dict[Cell, Sums] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)  # of a prompt
    elapsed_s: dict[int, float] = field(default_factory=dict)
    broken: set[Cell] = field(default_factory=set)
    requests: int = 0
    failed: int = 0

    def add(self, group: int, block: Block) -> None:
        """Add a block."""
        self.elapsed_s[group] = self.elapsed_s.get(group, 0.0) + block.elapsed_s
        for record in block.records:
            cell = (group, record.prompt_id)
            self.kinds[record.prompt_id] = record.kind
            self.cells.setdefault(cell, Sums()).add(sums_of([record]))
            if not record.ok:
                self.broken.add(cell)
                self.failed += 1
        self.requests += len(block.records)

    def whole(self, without: Collection[Cell] = ()) -> dict[int, Sums]:
        """Sums by group, some prompts left out. A group that lost one tells no throughput."""
        torn = {group for group, _ in without}
        found = self._summed(self.cells, without)
        for group, sums in found.items():
            if group in torn:
                sums.output_tokens = 0
            else:
                sums.elapsed_s = self.elapsed_s[group]
        return found

    def by_class(self, without: Collection[Cell] = ()) -> dict[str, dict[int, Sums]]:
        """The same for each class of prompt, without throughput: classes run together."""
        return {
            kind: self._summed(
                [cell for cell in self.cells if self.kinds[cell[1]] == kind], without
            )
            for kind in sorted(set(self.kinds.values()))
        }

    def _summed(self, cells: Iterable[Cell], without: Collection[Cell]) -> dict[int, Sums]:
        found: dict[int, Sums] = {}
        for cell in cells:
            if cell not in without:
                found.setdefault(cell[0], Sums()).add(self.cells[cell])
        return found
