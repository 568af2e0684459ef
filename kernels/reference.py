"""The three forms of MLA attention in float64, written to be read: what everything else is compared with.

All three answer the same question about the same ``Problem``. ``masked`` and ``sparse`` give equal results
for any selection (they agree to about 1e-15), and equal ``dense`` where every query selects its whole past.
Results are ``(out [T, heads, v], lse [T, heads])``, both float64; ``lse`` is the natural logarithm of the sum
of exponentials.
"""

import torch

from specpanel.kernels.problem import Problem

Result = tuple[torch.Tensor, torch.Tensor]


def dense(problem: Problem) -> Result:
    """MHA over decompressed keys and values, every query over its whole past."""
    return _mha(problem, masked=False)


def masked(problem: Problem) -> Result:
    """MHA over decompressed keys and values, with everything that was not selected masked away."""
    return _mha(problem, masked=True)


def sparse(problem: Problem) -> Result:
    """MQA in the latent space: the query absorbs ``w_uk`` and attends to its selected rows alone."""
    dims, topk = problem.dims, problem.selected()
    out = torch.zeros(problem.q.shape[0], dims.heads, dims.v, dtype=torch.float64)
    lse = torch.full(out.shape[:2], float("-inf"), dtype=torch.float64)
    w_uk, w_uv = problem.w_uk.double(), problem.w_uv.double()
    for queries, keys in problem.spans():
        q, latent = problem.q[queries].double(), problem.latent[keys].double()
        absorbed = torch.einsum("qhp,lhp->qhl", q[..., : dims.nope], w_uk)
        absorbed = torch.cat([absorbed, q[..., dims.nope :]], dim=-1)
        rows = torch.cat([latent, problem.k_pe[keys].double()], dim=-1)
        first = latent.shape[0] - q.shape[0]
        for at in range(q.shape[0]):
            ids = _past(topk[queries][at], first + at)
            if not ids.numel():
                continue
            scores = torch.einsum("hd,kd->hk", absorbed[at], rows[ids]) * dims.scale
            total = torch.logsumexp(scores, dim=-1)
            value = torch.exp(scores - total[:, None]) @ latent[ids]
            out[queries.start + at] = torch.einsum("hl,lhv->hv", value, w_uv)
            lse[queries.start + at] = total
    return out, lse


def allowed(topk: torch.Tensor | None, queries: int, keys: int) -> torch.Tensor:
    """Which of ``keys`` each of the last ``queries`` tokens may see: [queries, keys] bool.

    Causality, and the selection [queries, K] as a set; None selects everything.
    """
    position = torch.arange(keys - queries, keys)[:, None]
    seen = torch.arange(keys)[None] <= position
    if topk is None:
        return seen
    chosen = torch.zeros(queries, keys, dtype=torch.bool)
    for at in range(queries):
        chosen[at, _past(topk[at], keys - queries + at)] = True
    return seen & chosen


def merge(first: Result, second: Result) -> Result:
    """Attention over the union of two disjoint sets of keys, from the results over each.

    A set that a row selects nothing of (minus infinity) adds nothing; two of them leave 0 and minus infinity.
    """
    (out_a, lse_a), (out_b, lse_b) = first, second
    lse = torch.logaddexp(lse_a, lse_b)
    safe = torch.where(torch.isfinite(lse), lse, torch.zeros_like(lse))
    weight_a, weight_b = torch.exp(lse_a - safe), torch.exp(lse_b - safe)
    return out_a * weight_a[..., None] + out_b * weight_b[..., None], lse


def _mha(problem: Problem, *, masked: bool) -> Result:
    dims = problem.dims
    w_uk, w_uv = problem.w_uk.double(), problem.w_uv.double()
    outs, totals = [], []
    for queries, keys in problem.spans():
        q, latent = problem.q[queries].double(), problem.latent[keys].double()
        k_pe = problem.k_pe[keys].double()[:, None].expand(-1, dims.heads, -1)
        k = torch.cat([torch.einsum("kl,lhp->khp", latent, w_uk), k_pe], dim=-1)
        v = torch.einsum("kl,lhv->khv", latent, w_uv)
        seen = allowed(problem.selected()[queries] if masked else None, q.shape[0], latent.shape[0])
        scores = torch.einsum("qhd,khd->hqk", q, k) * dims.scale
        scores = scores.masked_fill(~seen, float("-inf"))
        total = torch.logsumexp(scores, dim=-1)
        weights = torch.exp(scores - total[..., None]).masked_fill(~seen, 0.0)
        outs.append(torch.einsum("hqk,khd->qhd", weights, v))
        totals.append(total.T)
    return torch.cat(outs), torch.cat(totals)


def _past(ids: torch.Tensor, position: int) -> torch.Tensor:
    """The distinct ids of a row that are keys at or before ``position``."""
    return torch.unique(ids[(ids >= 0) & (ids <= position)].long())
