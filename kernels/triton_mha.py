"""MHA over decompressed keys and values in Triton: dense, masked by bit words, or over listed key tiles.

One program is a tile of one request's queries and one head. Key and value keep their parts apart:
``k_nope`` by head and ``k_pe`` shared, in two products, so that no width has to be padded from 192 to 256 and
nothing is concatenated. A running maximum that starts finite, and weights that are set to 0 where a key may
not be seen, keep rows without any key at 0 and minus infinity.

Under ``TRITON_INTERPRET=1`` (set before this module is imported) the kernel runs on CPU tensors. The
interpreter cannot compute in bfloat16, so halves are widened right after loading there.
"""

import itertools
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from specpanel.kernels.errors import MLAError
from specpanel.kernels.masks import BlockLists, bit_words, block_lists, query_tiles
from specpanel.kernels.problem import Problem
from specpanel.kernels.triton_config import Target, Tile, mha_tile

INTERPRETED = bool(triton.knobs.runtime.interpret)
LOG2_E = 1.4426950408889634
LN_2 = tl.constexpr(0.6931471805599453)
FAR = tl.constexpr(-1.0e30)


@triton.jit
def mha_kernel(
    q, k_nope, k_pe, v, words, out, lse,
    tile_request, tile_first, query_starts, key_starts, block_count, block_index,
    scale_log2,
    q_row, q_head, kn_row, kn_head, kp_row, v_row, v_head, word_row, out_row, out_head, lse_row, index_row,
    nope: tl.constexpr, rope: tl.constexpr, value: tl.constexpr,
    nope_block: tl.constexpr, rope_block: tl.constexpr, value_block: tl.constexpr,
    query_tile: tl.constexpr, key_tile: tl.constexpr,
    masked: tl.constexpr, listed: tl.constexpr, widen: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    head = tl.program_id(1)
    request = tl.load(tile_request + tile)
    first = tl.load(tile_first + tile)
    query_start = tl.load(query_starts + request)
    query_end = tl.load(query_starts + request + 1)
    key_start = tl.load(key_starts + request)
    keys = tl.load(key_starts + request + 1) - key_start
    context = keys - (query_end - query_start)

    rows = first + tl.arange(0, query_tile)
    row_there = rows < query_end
    position = context + rows - query_start
    long_rows = rows.to(tl.int64)
    nope_at = tl.arange(0, nope_block)
    value_at = tl.arange(0, value_block)
    q_at = q + long_rows[:, None] * q_row + head * q_head
    q_n = tl.load(
        q_at + nope_at[None, :], mask=row_there[:, None] & (nope_at < nope)[None, :], other=0.0
    )
    if widen:
        q_n = q_n.to(tl.float32)
    if rope > 0:
        rope_at = tl.arange(0, rope_block)
        q_p = tl.load(
            q_at + nope + rope_at[None, :],
            mask=row_there[:, None] & (rope_at < rope)[None, :],
            other=0.0,
        )
        if widen:
            q_p = q_p.to(tl.float32)

    top = tl.full([query_tile], FAR, tl.float32)
    total = tl.zeros([query_tile], tl.float32)
    acc = tl.zeros([query_tile, value_block], tl.float32)
    # Keys behind the newest query of the tile are never visited.
    reach = tl.minimum(keys, context + tl.minimum(first + query_tile, query_end) - query_start)
    blocks = tl.cdiv(reach, key_tile)
    if listed:
        blocks = tl.load(block_count + tile)
    for number in range(blocks):
        block = number
        if listed:
            block = tl.load(block_index + tile * index_row + number)
        columns = block * key_tile + tl.arange(0, key_tile)
        column_there = columns < keys
        k_at = (key_start + columns).to(tl.int64)
        k_n = tl.load(
            k_nope + k_at[None, :] * kn_row + head * kn_head + nope_at[:, None],
            mask=column_there[None, :] & (nope_at < nope)[:, None],
            other=0.0,
        )
        if widen:
            k_n = k_n.to(tl.float32)
        scores = tl.dot(q_n, k_n, input_precision="ieee")
        if rope > 0:
            k_p = tl.load(
                k_pe + k_at[None, :] * kp_row + rope_at[:, None],
                mask=column_there[None, :] & (rope_at < rope)[:, None],
                other=0.0,
            )
            if widen:
                k_p = k_p.to(tl.float32)
            scores += tl.dot(q_p, k_p, input_precision="ieee")
        seen = row_there[:, None] & column_there[None, :] & (columns[None, :] <= position[:, None])
        if masked:
            word = tl.load(
                words + long_rows[:, None] * word_row + (columns >> 5)[None, :],
                mask=row_there[:, None] & column_there[None, :],
                other=0,
            )
            seen = seen & (((word >> (columns & 31)[None, :]) & 1) != 0)
        scores = tl.where(seen, scores * scale_log2, FAR)
        higher = tl.maximum(top, tl.max(scores, 1))
        shrink = tl.exp2(top - higher)
        weights = tl.where(seen, tl.exp2(scores - higher[:, None]), 0.0)
        values = tl.load(
            v + k_at[:, None] * v_row + head * v_head + value_at[None, :],
            mask=column_there[:, None] & (value_at < value)[None, :],
            other=0.0,
        )
        if widen:
            values = values.to(tl.float32)
        acc = acc * shrink[:, None]
        acc += tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        total = total * shrink + tl.sum(weights, 1)
        top = higher

    some = total > 0
    safe = tl.where(some, total, 1.0)
    tl.store(
        out + long_rows[:, None] * out_row + head * out_head + value_at[None, :],
        (acc / safe[:, None]).to(out.dtype.element_ty),
        mask=row_there[:, None] & (value_at < value)[None, :],
    )
    natural = (top + tl.log2(safe)) * LN_2
    tl.store(
        lse + long_rows * lse_row + head, tl.where(some, natural, float("-inf")), mask=row_there
    )


@dataclass(frozen=True, slots=True)
class Decompressed:
    """Keys and values of every head: ``k_nope [N, heads, nope]``, ``v [N, heads, v]``."""

    k_nope: torch.Tensor
    v: torch.Tensor


def decompress(problem: Problem) -> Decompressed:
    """Latents times ``w_uk`` and ``w_uv``: what ``kv_b_proj`` does in vLLM."""
    lora, heads = problem.dims.lora, problem.dims.heads
    k_nope = problem.latent @ problem.w_uk.reshape(lora, -1)
    v = problem.latent @ problem.w_uv.reshape(lora, -1)
    return Decompressed(
        k_nope.view(-1, heads, problem.dims.nope), v.view(-1, heads, problem.dims.v)
    )


def dense(problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    """The whole dense path: decompress and attend to the past."""
    return attend(problem, decompress(problem))


def masked(problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    """The whole masked path: decompress, build the mask, attend."""
    return attend(problem, decompress(problem), words=bit_words(problem))


def attend(
    problem: Problem,
    built: Decompressed,
    *,
    words: torch.Tensor | None = None,
    listed: bool = False,
    tile: Tile | None = None,
    out_dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend to the past, or to what ``words`` select of it.

    Args:
        words: [T, words] int32 of ``masks.bit_words``.
        listed: visit only key tiles with a selected key; needs ``words``. The result is the same bits.
        tile: sizes; None takes the table's for this device and geometry.
        out_dtype: of ``out``; None: that of ``problem.q``.

    Returns:
        out [T, heads, v] and lse [T, heads] float32.
    """
    if listed and words is None:
        raise MLAError("a list of key tiles comes from bit words, and there are none")
    dims, device = problem.dims, problem.q.device
    chosen = tile or mha_tile(dims, Target.of(device))
    tokens = problem.q.shape[0]
    q = problem.q if problem.q.stride(-1) == 1 else problem.q.contiguous()
    out = torch.empty(tokens, dims.heads, dims.v, dtype=out_dtype or q.dtype, device=device)
    lse = torch.empty(tokens, dims.heads, dtype=torch.float32, device=device)
    lists = _lists(problem, words if listed else None, chosen, device)
    if not lists.first.numel():
        return out, lse
    none = lists.count[:1, None]
    bits = none if words is None else words
    mha_kernel[(lists.first.numel(), dims.heads)](
        q, built.k_nope, problem.k_pe, built.v, bits, out, lse,
        lists.request, lists.first, _int32(problem.query_starts, device),
        _int32(problem.key_starts, device), lists.count, lists.index,
        dims.scale * LOG2_E,
        q.stride(0), q.stride(1), built.k_nope.stride(0), built.k_nope.stride(1),
        problem.k_pe.stride(0), built.v.stride(0), built.v.stride(1), bits.stride(0),
        out.stride(0), out.stride(1), lse.stride(0), lists.index.stride(0),
        nope=dims.nope, rope=dims.rope, value=dims.v,
        nope_block=block(dims.nope), rope_block=block(dims.rope), value_block=block(dims.v),
        query_tile=chosen.rows, key_tile=chosen.keys,
        masked=words is not None, listed=listed, widen=INTERPRETED,
        num_warps=chosen.warps, num_stages=chosen.stages,
    )  # fmt: skip
    return out, lse


def block(width: int) -> int:
    """``width`` as the kernels load it: a power of two, at least the 16 that a product needs."""
    return max(16, int(triton.next_power_of_2(max(1, width))))


def _lists(
    problem: Problem, words: torch.Tensor | None, tile: Tile, device: torch.device
) -> BlockLists:
    if words is not None:
        return block_lists(problem, words, tile.rows, tile.keys)
    request, first = query_tiles(problem, tile.rows)
    unused = torch.zeros(max(1, len(first)), 1, dtype=torch.int32, device=device)
    return BlockLists(_int32(request, device), _int32(first, device), unused[:, 0], unused)


def _int32(values: "list[int] | tuple[int, ...]", device: torch.device) -> torch.Tensor:
    return torch.tensor(list(itertools.chain(values)), dtype=torch.int32, device=device)
