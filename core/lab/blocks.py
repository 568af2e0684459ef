"""Blocks of prompts, and what a side did in them, added up by block and by class of prompt. Pure."""

from collections.abc import Sequence
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


@dataclass(slots=True)
class Tally:
    """What one side did. ``whole`` and each of ``by_class`` are sums by block."""

    whole: dict[int, Sums] = field(default_factory=dict)
    by_class: dict[str, dict[int, Sums]] = field(default_factory=dict)
    requests: int = 0
    failed: int = 0

    def add(self, group: int, block: Block) -> None:
        """Add a block; the same group again goes to the same sums."""
        self.whole.setdefault(group, Sums()).add(sums_of(block.records, block.elapsed_s))
        for kind in {record.kind for record in block.records}:
            of_kind = [record for record in block.records if record.kind == kind]
            groups = self.by_class.setdefault(kind, {})
            groups.setdefault(group, Sums()).add(sums_of(of_kind))
        self.requests += len(block.records)
        self.failed += sum(not record.ok for record in block.records)
