"""The three forms in plain torch on any device, with memory that does not grow with the square of the length.

They compute in float32 (float64 stays float64) whatever the inputs are, take queries and keys in chunks, and
join what belongs together by its log-sum-exp. Results are ``(out [T, heads, v], lse [T, heads])`` in that
dtype.
"""

from dataclasses import dataclass

import torch

from specpanel.kernels.masks import gather_rows
from specpanel.kernels.problem import Problem
from specpanel.kernels.reference import Result, merge

_FEWEST_QUERIES = 16  # in fewer nothing is gained by doing them together
_FAR = -1e30  # a running maximum that stays finite, so that an empty row gives 0 and not NaN


@dataclass(frozen=True, slots=True)
class Chunks:
    """How much is worked on at once: queries and keys of the MHA forms, queries of the gathering one.

    The MHA forms take fewer queries where their scores would need more than ``score_bytes``. Chunks are as
    large as that allows: each is a dozen steps in which threads wait for each other.
    """

    queries: int = 512
    keys: int = 8192
    gathered: int = 64
    score_bytes: int = 64 << 20


DEFAULT_CHUNKS = Chunks()


def dense(problem: Problem, chunks: Chunks = DEFAULT_CHUNKS) -> Result:
    """MHA over decompressed keys and values, every query over its whole past."""
    return _mha(problem, None, chunks)


def masked(problem: Problem, chunks: Chunks = DEFAULT_CHUNKS) -> Result:
    """MHA over decompressed keys and values, with everything that was not selected masked away."""
    return _mha(problem, problem.selected(), chunks)


def sparse(problem: Problem, chunks: Chunks = DEFAULT_CHUNKS) -> Result:
    """MQA in the latent space over gathered rows; peak memory ``chunks.gathered * topk`` rows."""
    dims, dtype = problem.dims, _accumulator(problem.q)
    rows, length = gather_rows(problem)
    cache = torch.cat([problem.latent, problem.k_pe], dim=-1).to(dtype)
    out = problem.q.new_zeros((problem.q.shape[0], dims.heads, dims.v), dtype=dtype)
    lse = problem.q.new_zeros((problem.q.shape[0], dims.heads), dtype=dtype)
    w_uk = problem.w_uk.to(dtype).permute(1, 2, 0)  # [heads, nope, lora]
    w_uv = problem.w_uv.to(dtype).permute(1, 0, 2)  # [heads, lora, v]
    for begin in range(0, problem.q.shape[0], chunks.gathered):
        part = slice(begin, begin + chunks.gathered)
        width = int(length[part].max()) if rows.shape[1] else 0
        ids = rows[part, :width].long()
        empty = ids < 0
        picked = cache[ids.clamp(min=0)]  # [chunk, width, lora + rope]
        q = problem.q[part].to(dtype) * dims.scale
        absorbed = torch.bmm(q[..., : dims.nope].transpose(0, 1), w_uk).transpose(0, 1)
        query = torch.cat([absorbed, q[..., dims.nope :]], dim=-1)
        scores = torch.bmm(query, picked.transpose(1, 2))
        weights, total, top = _exponentials(scores, ~empty[:, None])
        value = torch.bmm(weights, picked[..., : dims.lora]) / _nonzero(total)
        out[part] = torch.bmm(value.transpose(0, 1), w_uv).transpose(0, 1)
        lse[part] = (top + total.log())[..., 0]
    return out, lse


def attend(
    q: torch.Tensor,
    k_nope: torch.Tensor,
    k_pe: torch.Tensor,
    v: torch.Tensor,
    topk: torch.Tensor | None,
    *,
    scale: float,
    first_query: int = 0,
    first_key: int = 0,
    chunks: Chunks = DEFAULT_CHUNKS,
) -> Result:
    """MHA of one request over a span of its decompressed keys.

    Args:
        q: [queries, heads, nope + rope]; query ``i`` stands at position ``first_query + i``.
        k_nope: [heads, nope, keys]; key ``j`` stands at position ``first_key + j``.
        k_pe: [rope, keys], shared by the heads.
        v: [heads, keys, v].
        topk: [queries, K] positions to select, as a set; None selects all.
        chunks: queries at once, and how much their scores may take.

    Returns:
        out [queries, heads, v] and lse [queries, heads], in the dtype of ``v``.
    """
    queries, heads = q.shape[:2]
    nope, keys = k_nope.shape[1], v.shape[1]
    out = v.new_zeros((queries, heads, v.shape[2]))
    lse = v.new_full((queries, heads), float("-inf"))
    room = chunks.score_bytes // max(1, heads * keys * v.element_size())
    chunk = min(chunks.queries, max(_FEWEST_QUERIES, room))
    for begin in range(0, queries, chunk):
        end = min(begin + chunk, queries)
        # Keys behind the newest query of the chunk are never computed.
        reach = min(keys, first_query + end - first_key)
        if reach <= 0:
            continue
        part = q[begin:end].to(v.dtype).transpose(0, 1) * scale
        scores = torch.matmul(part[..., :nope], k_nope[..., :reach])
        if k_pe.shape[0]:
            rope = torch.matmul(part[..., nope:].reshape(-1, k_pe.shape[0]), k_pe[:, :reach])
            scores += rope.view(scores.shape)
        position = torch.arange(first_query + begin, first_query + end, device=q.device)
        seen = _seen(None if topk is None else topk[begin:end], position, first_key, reach)
        weights, total, top = _exponentials(scores, seen)
        value = torch.matmul(weights, v[:, :reach]).div_(_nonzero(total))
        out[begin:end] = value.transpose(0, 1)
        lse[begin:end] = (top + total.log())[..., 0].T
    return out, lse


def _mha(problem: Problem, topk: torch.Tensor | None, chunks: Chunks) -> Result:
    dims, dtype = problem.dims, _accumulator(problem.q)
    w_uk, w_uv = problem.w_uk.to(dtype), problem.w_uv.to(dtype)
    w_uk = w_uk.permute(1, 2, 0)  # [heads, nope, lora]
    w_uv = w_uv.permute(1, 0, 2)  # [heads, lora, v]
    outs, totals = [], []
    for queries, keys in problem.spans():
        new, length = queries.stop - queries.start, keys.stop - keys.start
        selected = None if topk is None else topk[queries]
        joined: Result | None = None
        for begin in range(0, length, chunks.keys):
            span = slice(keys.start + begin, keys.start + min(begin + chunks.keys, length))
            latent = problem.latent[span].to(dtype)
            found = attend(
                problem.q[queries],
                torch.matmul(w_uk, latent.T),
                problem.k_pe[span].to(dtype).T.contiguous(),
                torch.matmul(latent, w_uv),
                selected,
                scale=dims.scale,
                first_query=length - new,
                first_key=begin,
                chunks=chunks,
            )
            joined = found if joined is None else merge(joined, found)
        if joined is not None:
            outs.append(joined[0])
            totals.append(joined[1])
    if not outs:
        empty = problem.q.new_zeros((0, dims.heads, dims.v), dtype=dtype)
        return empty, empty[..., 0]
    return torch.cat(outs), torch.cat(totals)


def _accumulator(tensor: torch.Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _seen(
    topk: torch.Tensor | None, position: torch.Tensor, first_key: int, keys: int
) -> torch.Tensor:
    """[queries, keys] bool, shared by all heads."""
    causal = torch.arange(first_key, first_key + keys, device=position.device) <= position[:, None]
    if topk is None:
        return causal
    ids = topk.long() - first_key
    ids = torch.where((ids < 0) | (ids >= keys), keys, ids)
    chosen = torch.zeros(topk.shape[0], keys + 1, dtype=torch.bool, device=topk.device)
    return chosen.scatter_(1, ids, True)[:, :keys].logical_and_(causal)


def _exponentials(
    scores: torch.Tensor, seen: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """exp(scores - top) in place, its sum, and the top, each kept as a last axis of one."""
    scores.masked_fill_(~seen, float("-inf"))
    if not scores.shape[-1]:
        empty = scores.new_zeros((*scores.shape[:-1], 1))
        return scores, empty, empty + _FAR
    top = scores.amax(dim=-1, keepdim=True).clamp_(min=_FAR)
    scores.sub_(top).exp_()
    return scores, scores.sum(dim=-1, keepdim=True), top


def _nonzero(total: torch.Tensor) -> torch.Tensor:
    return torch.where(total > 0, total, torch.ones_like(total))
