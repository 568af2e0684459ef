"""A selection of tokens as bit words, as lists of key tiles, and as rows to gather.

A bit word is an int32 whose bit ``j`` stands for key ``32 * word + j``. There is one row of words a query
token (vLLM pads each request to its longest query instead). Words hold the selection *and* causality, so a
kernel may use them alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from specpanel.kernels.problem import Problem

WORD_BITS = 32
_WORDS_A_LOAD = 4  # kernels load 128 bits at once
_ROWS_AT_ONCE = 512


def word_count(keys: int) -> int:
    """Words a row for ``keys`` keys, a multiple of four."""
    words = -(-keys // WORD_BITS)
    return max(_WORDS_A_LOAD, -(-words // _WORDS_A_LOAD) * _WORDS_A_LOAD)


def bit_words(problem: Problem) -> torch.Tensor:
    """The selection of every query as words: [T, words] int32, ids within the request."""
    topk = problem.selected()
    count = word_count(max(problem.key_lens, default=0))
    words = torch.zeros(topk.shape[0], count, dtype=torch.int32, device=topk.device)
    for rows, seen in _selected_blocks(problem, count * WORD_BITS):
        words[rows] = pack(seen)
    return words


def pack(seen: torch.Tensor) -> torch.Tensor:
    """Bools [rows, 32 * words] as int32 words [rows, words]."""
    bits = seen.view(seen.shape[0], -1, WORD_BITS).to(torch.int64)
    weight = torch.ones(WORD_BITS, dtype=torch.int64, device=seen.device)
    weight = weight << torch.arange(WORD_BITS, device=seen.device)
    total = (bits * weight).sum(dim=-1)
    return torch.where(total >= 2**31, total - 2**32, total).to(torch.int32)


def unpack(words: torch.Tensor, keys: int) -> torch.Tensor:
    """Words [rows, words] as bools [rows, keys]."""
    shift = torch.arange(WORD_BITS, dtype=torch.int32, device=words.device)
    bits = (words[..., None] >> shift) & 1
    return bits.bool().flatten(start_dim=-2)[..., :keys]


def gather_rows(problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    """What sparse MQA gathers: (rows [T, K] int32 into ``latent``, length [T] int32).

    Valid rows stand first, ascending and each once, because gathering kernels would count a repetition
    twice. The rest is -1.
    """
    topk = problem.selected().long()
    position, offset = _positions(problem, topk.device)
    beyond = torch.iinfo(torch.int64).max
    valid = (topk >= 0) & (topk <= position[:, None])
    ids, _ = torch.where(valid, topk, beyond).sort(dim=1)
    repeated = torch.zeros_like(ids, dtype=torch.bool)
    repeated[:, 1:] = ids[:, 1:] == ids[:, :-1]
    ids, _ = torch.where(repeated, beyond, ids).sort(dim=1)
    valid = ids != beyond
    rows = torch.where(valid, ids + offset[:, None], -1).to(torch.int32)
    return rows, valid.sum(dim=1).to(torch.int32)


@dataclass(frozen=True, slots=True)
class BlockLists:
    """Key tiles that each query tile must visit: ``count [tiles]`` and ``index [tiles, widest]``, ascending.

    ``request [tiles]`` and ``first [tiles]`` say whose query tile it is and at which packed row it begins.
    Key tiles count from the request's first key. All int32.
    """

    request: torch.Tensor
    first: torch.Tensor
    count: torch.Tensor
    index: torch.Tensor


def query_tiles(problem: Problem, tile: int) -> tuple[list[int], list[int]]:
    """(request, first packed row) of every query tile; a tile never spans two requests."""
    request: list[int] = []
    first: list[int] = []
    for at, (queries, _) in enumerate(problem.spans()):
        starts = range(queries.start, queries.stop, tile)
        request.extend([at] * len(starts))
        first.extend(starts)
    return request, first


def block_lists(
    problem: Problem, words: torch.Tensor, query_tile: int, key_tile: int
) -> BlockLists:
    """The key tiles with at least one selected pair; ``key_tile`` is a multiple of 32."""
    request, first = query_tiles(problem, query_tile)
    span = key_tile // WORD_BITS
    tiles = -(-words.shape[1] // span)
    padded = torch.nn.functional.pad(words, (0, tiles * span - words.shape[1]))
    touched = (padded.view(padded.shape[0], tiles, span) != 0).any(dim=2)
    counts: list[int] = []
    index = torch.zeros(max(1, len(first)), max(1, tiles), dtype=torch.int32)
    for at, (owner, begin) in enumerate(zip(request, first, strict=True)):
        end = min(begin + query_tile, problem.query_starts[owner + 1])
        found = touched[begin:end].any(dim=0).nonzero()[:, 0].to("cpu", torch.int32)
        counts.append(found.numel())
        index[at, : found.numel()] = found
    whole = {"dtype": torch.int32, "device": words.device}
    return BlockLists(
        torch.tensor(request, **whole),
        torch.tensor(first, **whole),
        torch.tensor(counts, **whole),
        index.to(words.device),
    )


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How much of the causal past a selection fills.

    ``pairs`` is the share of causal (query, key) pairs that are selected, ``tiles`` the share of causal tiles
    with at least one of them: what a block list cannot skip. None when there is no pair at all.
    """

    pairs: float | None
    tiles: float | None


def occupancy(problem: Problem, query_tile: int = 128, key_tile: int = 128) -> Occupancy:
    """Occupancy of tiles of ``query_tile`` queries by ``key_tile`` keys (a multiple of 32)."""
    words = bit_words(problem)
    lists = block_lists(problem, words, query_tile, key_tile)
    causal_tiles = causal_pairs = 0
    for owner, begin in zip(lists.request.tolist(), lists.first.tolist(), strict=True):
        end = min(begin + query_tile, problem.query_starts[owner + 1])
        last = _position(problem, owner, end - 1)
        causal_tiles += last // key_tile + 1
    for queries, keys in zip(problem.query_lens, problem.key_lens, strict=True):
        causal_pairs += queries * (keys - queries) + queries * (queries + 1) // 2
    picked = sum(int(unpack(part, part.shape[1] * WORD_BITS).sum()) for part in words.split(512))
    if not causal_pairs:
        return Occupancy(None, None)
    return Occupancy(picked / causal_pairs, int(lists.count.sum()) / causal_tiles)


def _selected_blocks(problem: Problem, width: int) -> Iterator[tuple[slice, torch.Tensor]]:
    """Blocks of packed rows with what they select: [rows, width] bool."""
    topk = problem.selected().long()
    position, _ = _positions(problem, topk.device)
    for begin in range(0, topk.shape[0], _ROWS_AT_ONCE):
        rows = slice(begin, min(begin + _ROWS_AT_ONCE, topk.shape[0]))
        ids = topk[rows]
        valid = (ids >= 0) & (ids <= position[rows, None])
        seen = torch.zeros(ids.shape[0], width + 1, dtype=torch.bool, device=ids.device)
        seen.scatter_(1, torch.where(valid, ids, width), True)
        yield rows, seen[:, :width]


def _positions(problem: Problem, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Each packed query's position within its request, and its request's first key."""
    position: list[torch.Tensor] = []
    offset: list[torch.Tensor] = []
    for queries, keys in problem.spans():
        new, length = queries.stop - queries.start, keys.stop - keys.start
        position.append(torch.arange(length - new, length, device=device))
        offset.append(torch.full((new,), keys.start, dtype=torch.int64, device=device))
    if not position:
        empty = torch.empty(0, dtype=torch.int64, device=device)
        return empty, empty
    return torch.cat(position), torch.cat(offset)


def _position(problem: Problem, request: int, row: int) -> int:
    queries = problem.query_lens[request]
    return problem.key_lens[request] - queries + row - problem.query_starts[request]
