"""What the three paths cost: operations, bytes, an estimate of time, and where they cross. Pure.

Everything is per layer and rank, for ``q`` new tokens after ``c`` cached ones, with ``h`` local heads and the
letters L = lora, P = nope, R = rope, V = v, K = top-k::

    pairs, causal   q c + q (q + 1) / 2
    pairs, top-k    sum over i = 1..q of min(c + i, K)
    dense MHA       2 L h (P + V) (q + c)  to decompress, 2 (P + R + V) h pairs-causal  to attend
    masked MHA      the same: every causal tile is computed (see ``masks.occupancy`` for why)
    sparse MQA      2 L h (P + V) q  to absorb and expand, 2 (2 L + R) h pairs-top-k  to attend

Estimates explain and rank. They never set a threshold: only measurements do (``calibrate``).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from specpanel.kernels.dims import MLADims
from specpanel.kernels.gpus import GPU, Constant
from specpanel.kernels.vllm_rules import Tier

MASKED_TO_MQA_RATE = Constant(
    0.64,
    "assumed",
    "FLOP/s of FlashAttention 4 with a mask over those of FlashMLA's sparse kernel; with it the closed form "
    "gives 7,733 tokens for 128 heads, and vLLM's published B200 plot crosses at 7,740",
)
BF16_BYTES = 2


@dataclass(frozen=True, slots=True)
class Work:
    """Floating-point operations and bytes of memory traffic of one path, a layer and rank."""

    flop: float
    bytes_moved: float

    @property
    def intensity(self) -> float:
        """FLOP a byte; above the GPU's ridge (``ridge``) the arithmetic binds, below it the memory."""
        return self.flop / self.bytes_moved


def causal_pairs(query: int, context: int) -> float:
    """(query, key) pairs of a causal prefill."""
    return query * context + query * (query + 1) / 2


def selected_pairs(query: int, context: int, topk: int) -> float:
    """(query, key) pairs after the indexer: each query keeps at most ``topk``."""
    short = max(0, min(query, topk - context))
    return short * context + short * (short + 1) / 2 + (query - short) * topk


def attention_ratio(dims: MLADims) -> float:
    """Operations of MQA over MHA for one (query, key, head): the "3.4x" of DeepSeek.

    A key costs MHA a product of P + R for the score and V for the value, and MQA one of L + R and of L:
    (2 L + R) / (P + R + V) = (1024 + 64) / (128 + 64 + 128) = 1088 / 320 = 3.40. It is attention alone:
    with the projections, which cost both sides alike, the totals differ less, and above top-k MQA does
    fewer pairs.
    """
    return (2 * dims.lora + dims.rope) / (dims.qk + dims.v)


def cache_ratio(dims: MLADims, *, built_keys: bool = False) -> float:
    """Cached numbers of plain MHA over those of MLA: the "57x" of DeepSeek.

    Keys and values of 128 heads with 128 each against one latent row: 2 * 128 * 128 / 576 = 56.9.
    ``built_keys`` counts the keys that MHA mode really builds, with their rotary part:
    128 * (192 + 128) / 576 = 71.1. It compares sizes of caches; vLLM
    decompresses into a buffer that lives for one layer.
    """
    key = dims.qk if built_keys else dims.nope
    return dims.total_heads * (key + dims.v) / dims.latent


def crossing_tokens(
    dims: MLADims, *, rate: float = MASKED_TO_MQA_RATE.value, head_tile: int = 1
) -> float:
    """Prompt length up to which masked MHA beats sparse MQA in a pure prefill, in closed form; 0: never.

    The projections cost both sides alike, so masked MHA wins while (P + R + V) S^2 < (2 L + R) (2 K S - K^2)
    times the padding of heads and ``rate``, the FLOP/s of masked MHA over those of MQA. With
    r = attention_ratio * padding * rate, the larger root is S = K (r + sqrt(r^2 - r)). DeepSeek at 128 heads:
    rate 1 gives 12,813 tokens, rate 0.64 gives 7,733.
    """
    if dims.topk is None:
        return math.inf
    ratio = attention_ratio(dims) * _padding(dims, head_tile) * rate
    return dims.topk * (ratio + math.sqrt(ratio * ratio - ratio)) if ratio > 1 else 0.0


def work(dims: MLADims, tier: Tier, query: int, context: int) -> Work:
    """Operations (without padding) and bytes of a prefill on ``tier``. ``dims`` is a rank's."""
    heads, keys = dims.heads, query + context
    project = 2.0 * dims.lora * heads * (dims.nope + dims.v)
    weights = dims.lora * heads * (dims.nope + dims.v)
    if tier == "sparse_mqa":
        pairs = selected_pairs(query, context, _topk(dims))
        flop = project * query + 2 * (2 * dims.lora + dims.rope) * heads * pairs
        moved = heads * (2 * dims.lora + dims.rope) * query + weights + dims.latent * keys
        return Work(flop, BF16_BYTES * (moved + dims.latent * pairs) + _index_bytes(dims, query))
    flop = project * keys + 2 * (dims.qk + dims.v) * heads * causal_pairs(query, context)
    built = heads * (2 * (dims.nope + dims.v) + dims.rope) * keys
    moved = heads * (dims.qk + dims.v) * query + dims.latent * keys + built + weights
    extra = 0.0
    if tier == "masked_mha":
        extra = 2.0 * mask_bytes(query, context) + _index_bytes(dims, query)
    return Work(flop, BF16_BYTES * moved + extra)


def mask_bytes(query: int, context: int) -> int:
    """One bit a (query, key) pair, in words of 32 keys."""
    return 4 * query * -(-(query + context) // 32)


def ridge(gpu: GPU) -> float:
    """FLOP a byte at which the GPU's arithmetic and memory take equal time."""
    return gpu.peak_flop_per_s.value / gpu.memory_byte_per_s.value


def estimate_s(dims: MLADims, gpu: GPU, tier: Tier, query: int, context: int) -> float:
    """Seconds of a prefill on ``tier``, a layer and rank, by the constants of ``gpu``. ``dims``: a rank's."""
    bandwidth = gpu.memory_byte_per_s.value * gpu.bandwidth_share.value
    gemm = gpu.peak_flop_per_s.value * gpu.gemm_share.value
    if tier == "sparse_mqa":
        return _mqa_s(dims, gpu, query, context, gemm, bandwidth)
    share = gpu.masked_share if tier == "masked_mha" else gpu.dense_share
    done = work(dims, tier, query, context)
    project = 2.0 * dims.lora * dims.heads * (dims.nope + dims.v) * (query + context)
    time_s = project / gemm + (done.flop - project) / (gpu.peak_flop_per_s.value * share.value)
    launches = 3
    if tier == "masked_mha":
        extra = 2.0 * mask_bytes(query, context) + _index_bytes(dims, query)
        time_s += (0.5 * (done.bytes_moved - extra) + extra) / bandwidth
        launches += 2
    else:
        time_s += 0.5 * done.bytes_moved / bandwidth
    if context:  # gather the latents out of the cache, and merge two partial results
        time_s += (4 * dims.latent * context + 12 * dims.heads * dims.v * query) / bandwidth
        launches += 3
    return time_s + launches * gpu.launch_s.value


def estimates_ms(dims: MLADims, gpu: GPU, query: int, context: int) -> Mapping[Tier, float | None]:
    """Milliseconds of each path; None where a path would give another answer (dense beyond top-k)."""
    fits = dims.topk is None or query + context <= dims.topk
    return {
        "dense_mha": estimate_s(dims, gpu, "dense_mha", query, context) * 1e3 if fits else None,
        "masked_mha": estimate_s(dims, gpu, "masked_mha", query, context) * 1e3,
        "sparse_mqa": estimate_s(dims, gpu, "sparse_mqa", query, context) * 1e3,
    }


def estimated_crossing(
    dims: MLADims, gpu: GPU, *, context: int = 0, longest: int = 262_144
) -> int | None:
    """The longest prompt, to about 1 %, whose MHA form is estimated to beat MQA; None if there is none."""
    last, query = None, 64
    while query + context <= longest:
        tier: Tier = "dense_mha"
        if dims.topk is not None and query + context > dims.topk:
            tier = "masked_mha"
        mha = estimate_s(dims, gpu, tier, query, context)
        if mha <= estimate_s(dims, gpu, "sparse_mqa", query, context):
            last = query + context
        query = int(query * 1.01) + 1
    return last


def _mqa_s(
    dims: MLADims, gpu: GPU, query: int, context: int, gemm: float, bandwidth: float
) -> float:
    padding = _padding(dims, gpu.head_tile)
    pairs = selected_pairs(query, context, _topk(dims))
    project = 2.0 * dims.lora * dims.heads * (dims.nope + dims.v)
    attend = 2.0 * (2 * dims.lora + dims.rope) * dims.heads * pairs * padding
    compute_s = attend / (gpu.peak_flop_per_s.value * gpu.mqa_share.value)
    # Latents that stay in the last cache level are taken to come twice as fast (assumed).
    latents = BF16_BYTES * dims.latent * (query + context)
    faster = 2.0 if latents < gpu.cache_bytes.value else 1.0
    blocks = max(1.0, dims.heads * padding / 128)
    gather_s = BF16_BYTES * dims.latent * pairs * blocks / (bandwidth * faster)
    io = dims.heads * (3 * dims.lora + dims.rope) * query + dims.lora * dims.heads * (
        dims.nope + dims.v
    )
    stream = 0.5 * BF16_BYTES * io + 0.5 * BF16_BYTES * dims.latent * (query + context)
    other_s = (stream + _index_bytes(dims, query)) / bandwidth
    return project * query / gemm + max(compute_s, gather_s) + other_s + 4 * gpu.launch_s.value


def _padding(dims: MLADims, head_tile: int) -> float:
    return -(-dims.heads // head_tile) * head_tile / dims.heads


def _topk(dims: MLADims) -> int:
    return 10**9 if dims.topk is None else dims.topk


def _index_bytes(dims: MLADims, query: int) -> float:
    return 8.0 * query * (dims.topk or 0)
