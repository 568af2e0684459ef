"""The state of modules: kept, put back, and exchanged for another without moving any tensor's storage.

CUDA graphs and views point at storages, so new values are copied into the old ones. Knows only torch.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

_HOLDERS = ("_parameters", "_buffers", "_modules")


class State:
    """What modules hold at one moment: a shallow copy, so the tensors themselves are shared with them."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self.of: list[tuple[nn.Module, dict[str, Any]]] = []
        for module in modules:
            kept = dict(module.__dict__)
            for holder in _HOLDERS:
                kept[holder] = dict(kept[holder])
            kept["_non_persistent_buffers_set"] = set(kept["_non_persistent_buffers_set"])
            self.of.append((module, kept))

    def put_back(self) -> None:
        """Make the modules hold this again; may be done more than once."""
        for module, kept in self.of:
            module.__dict__.clear()
            module.__dict__.update(kept)
            for holder in _HOLDERS:
                module.__dict__[holder] = dict(kept[holder])


@dataclass(frozen=True, slots=True)
class _Move:
    """``fresh``'s values go into ``live``'s storage; ``table`` then holds ``live`` under ``name``."""

    table: dict[str, Any]
    name: str
    live: torch.Tensor
    fresh: torch.Tensor


@dataclass(slots=True)
class Exchange:
    """From ``before`` to ``after``, two states of the same modules, and back.

    Raises:
        ValueError: a tensor changed its shape or type, so that its storage cannot take the other.
    """

    before: State
    after: State
    _moves: list[_Move] = field(init=False, default_factory=list)
    _saved: list[tuple[torch.Tensor, torch.Tensor]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        pairs = zip(self.before.of, self.after.of, strict=True)
        for (module, before), (_, after) in pairs:
            kind = type(module).__name__
            for holder in ("_parameters", "_buffers"):
                self._plan(kind, before[holder], after[holder], strict=True)
            self._plan(kind, before, after, strict=False)

    def _plan(
        self, kind: str, before: dict[str, Any], after: dict[str, Any], *, strict: bool
    ) -> None:
        for name, live in before.items():
            fresh = after.get(name)
            if not isinstance(live, torch.Tensor) or fresh is live:
                continue
            fits = (
                isinstance(fresh, torch.Tensor)
                and fresh.shape == live.shape
                and fresh.dtype == live.dtype
                and fresh.device == live.device
            )
            if fits:
                self._moves.append(_Move(after, name, live, fresh))
            elif strict:
                raise ValueError(f"{kind}.{name} became {_words(fresh)}, was {_words(live)}")

    def commit(self) -> None:
        """Take the new values. Where one copy fails, the old ones are put back and the error goes on."""
        try:
            for move in self._moves:
                self._saved.append((move.live, move.live.detach().clone()))
                move.live.data.copy_(move.fresh.data)
        except BaseException:
            self.undo()
            raise
        for move in self._moves:
            move.table[move.name] = move.live
        self._moves = []  # the fresh tensors are not needed any more
        self.after.put_back()

    def undo(self) -> None:
        """Bring back the values and the state of before."""
        for live, saved in reversed(self._saved):
            if not torch.equal(live, saved):  # a copy that failed may have written nothing
                live.data.copy_(saved)
        self.before.put_back()


def _words(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{list(value.shape)} {value.dtype} on {value.device}"
    return f"a {type(value).__name__}"
