"""Sparse MQA in Triton: each query gathers its selected rows of latents once, for a block of heads.

One kernel in two forms. The plain one has heads on the rows of its products and suits 64 heads or
more; the swapped one has keys there and heads on the columns, which needs 16 heads and not 64 to fill a warp
group's product: a rank of a tensor-parallel model has 8 to 32. Rows outside the cache are ignored, and a row
that occurs twice would count twice: ``masks.gather_rows`` gives them once each.
"""

import torch
import triton
import triton.language as tl

from specpanel.kernels.masks import gather_rows
from specpanel.kernels.problem import Problem
from specpanel.kernels.triton_config import FEW_HEADS, Target, Tile, mqa_tile, swapped_tile
from specpanel.kernels.triton_mha import FAR, INTERPRETED, LN_2, LOG2_E, block


@triton.jit
def mqa_kernel(
    q, cache, index, length, out, lse, scale_log2, cached, heads,
    q_row, q_head, cache_row, index_row, out_row, out_head, lse_row,
    lora: tl.constexpr, rope: tl.constexpr, lora_block: tl.constexpr, rope_block: tl.constexpr,
    head_tile: tl.constexpr, key_tile: tl.constexpr, swapped: tl.constexpr, widen: tl.constexpr,
):  # fmt: skip
    # Of a product's two axes, the one that heads are on; keys, or columns of a latent, are on the other.
    head_axis: tl.constexpr = 1 if swapped else 0
    key_axis: tl.constexpr = 0 if swapped else 1
    # Tokens on axis 0: axis 1 of a grid ends at 65,535.
    token = tl.program_id(0).to(tl.int64)
    head_at = tl.program_id(1) * head_tile + tl.arange(0, head_tile)
    head_there = head_at < heads
    lora_at = tl.arange(0, lora_block)
    across_heads = tl.expand_dims(head_at, key_axis)
    across_lora = tl.expand_dims(lora_at, head_axis)
    block_there = tl.expand_dims(head_there, key_axis) & tl.expand_dims(lora_at < lora, head_axis)
    q_at = q + token * q_row + across_heads * q_head
    q_l = tl.load(q_at + across_lora, mask=block_there, other=0.0)
    if widen:
        q_l = q_l.to(tl.float32)
    if rope > 0:
        rope_at = tl.arange(0, rope_block)
        rope_there = tl.expand_dims(rope_at < rope, head_axis)
        q_r = tl.load(
            q_at + lora + tl.expand_dims(rope_at, head_axis),
            mask=tl.expand_dims(head_there, key_axis) & rope_there,
            other=0.0,
        )
        if widen:
            q_r = q_r.to(tl.float32)

    top = tl.full([head_tile], FAR, tl.float32)
    total = tl.zeros([head_tile], tl.float32)
    if swapped:
        acc = tl.zeros([lora_block, head_tile], tl.float32)
    else:
        acc = tl.zeros([head_tile, lora_block], tl.float32)
    count = tl.load(length + token)
    for begin in range(0, count, key_tile):
        at = begin + tl.arange(0, key_tile)
        row = tl.load(index + token * index_row + at, mask=at < count, other=-1)
        there = (row >= 0) & (row < cached)
        cache_at = tl.where(there, row, 0).to(tl.int64) * cache_row
        # Loaded once, used as keys and as values.
        latent = tl.load(
            cache + cache_at[:, None] + lora_at[None, :],
            mask=there[:, None] & (lora_at < lora)[None, :],
            other=0.0,
        )
        if widen:
            latent = latent.to(tl.float32)
        if swapped:
            scores = tl.dot(latent, q_l, input_precision="ieee")
        else:
            scores = tl.dot(q_l, tl.trans(latent), input_precision="ieee")
        key_there = tl.expand_dims(there, head_axis)
        if rope > 0:
            k_r = tl.load(
                cache
                + tl.expand_dims(cache_at, head_axis)
                + lora
                + tl.expand_dims(rope_at, key_axis),
                mask=key_there & tl.expand_dims(rope_at < rope, key_axis),
                other=0.0,
            )
            if widen:
                k_r = k_r.to(tl.float32)
            if swapped:
                scores += tl.dot(k_r, q_r, input_precision="ieee")
            else:
                scores += tl.dot(q_r, k_r, input_precision="ieee")
        scores = tl.where(key_there, scores * scale_log2, FAR)
        higher = tl.maximum(top, tl.max(scores, key_axis))
        shrink = tl.exp2(top - higher)
        weights = tl.exp2(scores - tl.expand_dims(higher, key_axis))
        weights = tl.where(key_there, weights, 0.0)
        acc = acc * tl.expand_dims(shrink, key_axis)
        if swapped:
            acc += tl.dot(tl.trans(latent), weights.to(latent.dtype), input_precision="ieee")
        else:
            acc += tl.dot(weights.to(latent.dtype), latent, input_precision="ieee")
        total = total * shrink + tl.sum(weights, key_axis)
        top = higher

    some = total > 0
    safe = tl.where(some, total, 1.0)
    tl.store(
        out + token * out_row + across_heads * out_head + across_lora,
        (acc / tl.expand_dims(safe, key_axis)).to(out.dtype.element_ty),
        mask=block_there,
    )
    natural = (top + tl.log2(safe)) * LN_2
    tl.store(
        lse + token * lse_row + head_at, tl.where(some, natural, float("-inf")), mask=head_there
    )


def sparse(problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    """The whole sparse path: absorb, gather and attend, expand. out [T, heads, v] and lse [T, heads]."""
    rows, length = gather_rows(problem)
    cache = torch.cat([problem.latent, problem.k_pe], dim=-1)
    value, lse = attend(problem, absorb(problem), cache, rows, length)
    return expand(problem, value), lse


def absorb(problem: Problem) -> torch.Tensor:
    """Queries in the latent space: [T, heads, lora + rope]."""
    nope = problem.dims.nope
    latent = torch.einsum("thp,lhp->thl", problem.q[..., :nope], problem.w_uk)
    return torch.cat([latent, problem.q[..., nope:]], dim=-1)


def expand(problem: Problem, value: torch.Tensor) -> torch.Tensor:
    """Results of the latent space [T, heads, lora] as values of the heads [T, heads, v]."""
    return torch.einsum("thl,lhv->thv", value, problem.w_uv.to(value.dtype))


def attend(
    problem: Problem,
    absorbed: torch.Tensor,
    cache: torch.Tensor,
    rows: torch.Tensor,
    length: torch.Tensor,
    *,
    swapped: bool | None = None,
    tile: Tile | None = None,
    out_dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend to the first ``length`` of ``rows`` of every token.

    Args:
        absorbed: [T, heads, lora + rope].
        cache: [N, lora + rope]; its first ``lora`` columns are the values.
        rows: [T, K] int32 rows of ``cache``; below 0 or at N and beyond they are ignored.
        length: [T] int32.
        swapped: keys on the rows of the products; None: where there are fewer than 64 heads.

    Returns:
        value [T, heads, lora] and lse [T, heads] float32.
    """
    dims, device = problem.dims, cache.device
    few = dims.heads < FEW_HEADS if swapped is None else swapped
    target = Target.of(device)
    chosen = tile or (swapped_tile(dims, target) if few else mqa_tile(dims, target))
    tokens = absorbed.shape[0]
    dtype = out_dtype or absorbed.dtype
    out = torch.empty(tokens, dims.heads, dims.lora, dtype=dtype, device=device)
    lse = torch.empty(tokens, dims.heads, dtype=torch.float32, device=device)
    if not tokens:
        return out, lse
    mqa_kernel[(tokens, -(-dims.heads // chosen.rows))](
        absorbed, cache, rows, length, out, lse, dims.scale * LOG2_E, cache.shape[0], dims.heads,
        absorbed.stride(0), absorbed.stride(1), cache.stride(0), rows.stride(0),
        out.stride(0), out.stride(1), lse.stride(0),
        lora=dims.lora, rope=dims.rope, lora_block=block(dims.lora), rope_block=block(dims.rope),
        head_tile=chosen.rows, key_tile=chosen.keys, swapped=few, widen=INTERPRETED,
        num_warps=chosen.warps, num_stages=chosen.stages,
    )  # fmt: skip
    return out, lse
