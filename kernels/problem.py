"""One batch of MLA attention, the same for every way to compute it, and made-up ones to try them on."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from specpanel.kernels.dims import MLADims
from specpanel.kernels.errors import MLAError

Pattern = Literal["random", "recency", "clustered"]
PATTERNS: tuple[Pattern, ...] = ("random", "recency", "clustered")


@dataclass(frozen=True, slots=True)
class Problem:
    """A ragged batch of T new tokens over N keys (cached context and the new tokens themselves).

    Request ``r`` owns queries ``query_starts[r]:query_starts[r+1]`` and keys alike; its queries are the last
    of its keys. Shapes::

        q        [T, heads, nope + rope]
        latent   [N, lora]                  key and value of every head, compressed
        k_pe     [N, rope]                  the rotary part of a key, shared by the heads
        w_uk     [lora, heads, nope]        what decompresses keys
        w_uv     [lora, heads, v]           and values
        topk     [T, topk] int32            ids within the request, in any order; None: dense

    ``topk`` is a *set* a row: -1, ids at or beyond the request's keys, ids of the future and repetitions
    count for nothing. A row that selects nothing gives 0 with a log-sum-exp of minus infinity.
    """

    dims: MLADims
    q: torch.Tensor
    latent: torch.Tensor
    k_pe: torch.Tensor
    w_uk: torch.Tensor
    w_uv: torch.Tensor
    query_starts: tuple[int, ...]
    key_starts: tuple[int, ...]
    topk: torch.Tensor | None = None

    def __post_init__(self) -> None:
        if len(self.query_starts) != len(self.key_starts):
            raise MLAError("queries and keys are of different numbers of requests")
        if any(query > key for query, key in zip(self.query_lens, self.key_lens, strict=True)):
            raise MLAError("a request has more new tokens than keys")
        if self.query_starts[-1] != self.q.shape[0] or self.key_starts[-1] != self.latent.shape[0]:
            raise MLAError("the starts of the requests do not fit the tensors")

    @property
    def requests(self) -> int:
        return len(self.query_starts) - 1

    @property
    def query_lens(self) -> tuple[int, ...]:
        return _lengths(self.query_starts)

    @property
    def key_lens(self) -> tuple[int, ...]:
        return _lengths(self.key_starts)

    def spans(self) -> list[tuple[slice, slice]]:
        """Each request's queries and keys."""
        return [
            (
                slice(self.query_starts[at], self.query_starts[at + 1]),
                slice(self.key_starts[at], self.key_starts[at + 1]),
            )
            for at in range(self.requests)
        ]

    def selected(self) -> torch.Tensor:
        """``topk``, which a masked or sparse path cannot do without."""
        if self.topk is None:
            raise MLAError("there is no selection of tokens to mask or gather by")
        return self.topk

    def to(self, dtype: torch.dtype, device: str | torch.device | None = None) -> "Problem":
        """The same batch with its floats rounded to ``dtype``."""
        tensors = {
            name: getattr(self, name).to(device=device, dtype=dtype)
            for name in ("q", "latent", "k_pe", "w_uk", "w_uv")
        }
        topk = None if self.topk is None else self.topk.to(device=device)
        return replace(self, **tensors, topk=topk)


def random_problem(
    dims: MLADims,
    query_lens: Sequence[int],
    context_lens: Sequence[int],
    *,
    seed: int = 0,
    pattern: Pattern | None = "random",
    dtype: torch.dtype = torch.float64,
    device: str | torch.device = "cpu",
) -> Problem:
    """A batch of unit-variance normal numbers; weights are scaled so that keys and values are, too.

    Args:
        pattern: how ``topk`` selects; None leaves it out. Positive numbers alone would hide errors of sign.
    """
    make = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=make, dtype=torch.float32).to(
            device=device, dtype=dtype
        )

    lengths = [new + old for new, old in zip(query_lens, context_lens, strict=True)]
    queries, keys = _starts(query_lens), _starts(lengths)
    weight = dims.lora**-0.5
    topk = None
    if pattern is not None:
        if dims.topk is None:
            raise MLAError("this geometry has no indexer to select by")
        topk = random_topk(dims.topk, query_lens, context_lens, seed=seed, pattern=pattern)
        topk = topk.to(device)
    return Problem(
        dims=dims,
        q=normal(queries[-1], dims.heads, dims.qk),
        latent=normal(keys[-1], dims.lora),
        k_pe=normal(keys[-1], dims.rope),
        w_uk=normal(dims.lora, dims.heads, dims.nope) * weight,
        w_uv=normal(dims.lora, dims.heads, dims.v) * weight,
        query_starts=queries,
        key_starts=keys,
        topk=topk,
    )


def random_topk(
    topk: int,
    query_lens: Sequence[int],
    context_lens: Sequence[int],
    *,
    seed: int = 0,
    pattern: Pattern = "random",
) -> torch.Tensor:
    """Selections [T, topk] int32 that keep to the past; -1 where a row has fewer keys than ``topk``.

    ``random`` takes any past token alike; ``recency`` a quarter of the newest, half of tokens that all
    queries of the request favour, the rest at random; ``clustered`` spans of 64 neighbours that change
    slowly from one query to the next.
    """
    make = torch.Generator().manual_seed(seed)
    rows = [
        _request_topk(topk, new, old, make, pattern)
        for new, old in zip(query_lens, context_lens, strict=True)
    ]
    return torch.cat(rows) if rows else torch.empty(0, topk, dtype=torch.int32)


def _request_topk(
    topk: int, new: int, old: int, make: torch.Generator, pattern: Pattern
) -> torch.Tensor:
    keys = new + old
    favour = torch.rand(keys, generator=make)
    spans = torch.rand(keys // 64 + 1, generator=make).repeat_interleave(64)[:keys]
    width = min(topk, keys)
    rows = torch.full((new, topk), -1, dtype=torch.int32)
    # In blocks of queries: a score a query and key, of which the highest are taken, as the indexer does.
    for first in range(0, new, 256):
        last = min(first + 256, new)
        at = torch.arange(old + first, old + last)
        score = torch.rand(last - first, keys, generator=make)
        if pattern == "recency":
            score = score * 0.25
            score += torch.where(favour > 0.5, 0.5 + favour * 0.25, 0.0)[None]
            age = at[:, None] - torch.arange(keys)[None]
            score += (age < max(1, topk // 4)) * 2.0
        elif pattern == "clustered":
            drift = torch.sin(at[:, None] / 4096.0 + spans[None] * 6.283)
            score = score * 0.05 + spans[None] * 0.5 + drift
        score = score.masked_fill(torch.arange(keys)[None] > at[:, None], -1e9)
        best = score.topk(width, dim=1)
        rows[first:last, :width] = torch.where(
            best.values > -1e8, best.indices, torch.full_like(best.indices, -1)
        ).to(torch.int32)
    return rows


def _lengths(starts: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(after - before for before, after in itertools.pairwise(starts))


def _starts(lengths: Sequence[int]) -> tuple[int, ...]:
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + length)
    return tuple(starts)
