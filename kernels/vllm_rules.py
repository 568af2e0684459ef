"""The decision of vLLM 0.32.0 for a step of sparse MLA, exactly, as functions of numbers. Pure.

Read from ``vllm/model_executor/layers/attention/mla_attention.py`` (``_MASKED_MHA_THRESHOLDS``,
``_use_masked_mha``, ``MLAAttention._use_sparse_mha``) and ``sparse_mla_attention.py`` beside it
(``_is_masked_mha_available``, ``_use_dense_mha_prefill``, ``_topk_mask_shape``,
``_masked_mha_workspace_fits``). ``vllm_source`` compares what is mirrored here with the installed vLLM.

One decision is taken a step and holds for all its prefills together: the longest of them decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from specpanel.kernels.dims import MLADims
from specpanel.kernels.gpus import GPU

VLLM_VERSION = "0.32.0"

Tier = Literal["dense_mha", "masked_mha", "sparse_mqa"]
TIER_TITLES: Mapping[Tier, str] = {
    "dense_mha": "dense MHA",
    "masked_mha": "masked MHA",
    "sparse_mqa": "sparse MQA",
}

Ranges = tuple[tuple[int, int], ...]
"""(longest sequence, shortest query) in ascending order; the first that the sequence fits into decides."""

Thresholds = Mapping[tuple[int, int], Mapping[str, Mapping[int, tuple[Ranges, Ranges | None]]]]
"""(key width, value width) → backend → tensor-parallel size → (ranges, ranges with cached context).

None in place of the second: the first holds with cached context, too.
"""

_K = 1024

THRESHOLDS: Thresholds = {
    (192, 128): {
        "FLASHMLA_SPARSE": {
            1: (((2048, 1536), (4096, 4096)), None),
            2: (((2048, 512), (4096, 1024), (8192, 4096)), None),
            4: (((2048, 512), (4096, 1024), (8192, 1536), (16384, 8192)), None),
            8: (((2048, 512), (4096, 512), (8192, 1024), (16384, 2048), (32768, 16384)), None),
        },
        "FLASHINFER_MLA_SPARSE": {
            8: (((2048, 512), (4096, 1024), (8192, 1024), (16384, 2048), (32768, 32768)), None),
        },
    },
    (256, 256): {
        "FLASHMLA_SPARSE": {
            1: (((8 * _K, 0),), ()),
            2: (((20 * _K, 0),), ((6 * _K, 4 * _K), (10 * _K, 8 * _K))),
            4: (
                ((48 * _K, 0),),
                ((8 * _K, 4 * _K), (16 * _K, 8 * _K), (24 * _K, 16 * _K), (34 * _K, 32 * _K)),
            ),
            8: (
                ((112 * _K, 0),),
                ((8 * _K, 4 * _K), (16 * _K, 8 * _K), (32 * _K, 16 * _K), (48 * _K, 32 * _K)),
            ),
        },
        "FLASHINFER_MLA_SPARSE": {
            4: (
                ((36 * _K, 0),),
                ((12 * _K, 4 * _K), (16 * _K, 8 * _K), (24 * _K, 16 * _K), (28 * _K, 24 * _K)),
            ),
            8: (
                ((64 * _K, 0),),
                (
                    (20 * _K, 4 * _K),
                    (24 * _K, 8 * _K),
                    (32 * _K, 16 * _K),
                    (48 * _K, 32 * _K),
                    (56 * _K, 40 * _K),
                    (64 * _K, 48 * _K),
                    (72 * _K, 56 * _K),
                ),
            ),
        },
    },
}
"""``_MASKED_MHA_THRESHOLDS`` of vLLM 0.32.0."""

MASKED_GEOMETRIES = frozenset(
    {(128, 512, 128, 64, 128), (64, 512, 192, 64, 256), (64, 512, 256, 0, 256)}
)
"""(heads of the model, lora, nope, rope, v) for which vLLM's masked kernel exists."""

MASK_BUDGET_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Deployment:
    """How a model is served, as far as it decides the tier.

    Args:
        dims: the layer of the whole model, not of a rank.
        backend: the sparse MLA backend that vLLM chose (see ``vllm_backends``).
        kv_dtype: as ``--kv-cache-dtype`` names it, after vLLM's own substitutions.
        decode_threshold: prompts of up to so many new tokens in a step count as decoding.
        prefill_backend: whether some kernel for dense MHA exists for this geometry and GPU.
        flash_attention: the version that vLLM would call for the masked form; None: none.
        force_mqa: ``--attention-config.sparse_mla_force_mqa``, or a model that sets it.
        context_parallel: ``--decode-context-parallel-size``; ``prefill_context_parallel`` likewise.
        host_cache: HiSparse keeps the KV cache on the host.
    """

    dims: MLADims
    gpu: GPU
    tensor_parallel: int
    kv_dtype: str
    backend: str
    decode_threshold: int
    prefill_backend: bool = True
    flash_attention: int | None = 4
    force_mqa: bool = False
    context_parallel: int = 1
    prefill_context_parallel: int = 1
    host_cache: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """The prefills of one scheduler step: the longest query and sequence among them.

    ``context_chunk`` is the longest piece of cached context that is decompressed at once (0: no context).
    """

    query_len: int
    seq_len: int
    requests: int = 1
    context_chunk: int = 0

    @property
    def has_context(self) -> bool:
        return self.context_chunk > 0


@dataclass(frozen=True, slots=True)
class Condition:
    """One predicate of a tier: whether it holds, and the sentence that says so with its numbers."""

    name: str
    holds: bool
    text: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The tier of a step, and every condition of the tiers that need one."""

    tier: Tier
    decoding: bool
    dense: tuple[Condition, ...]
    masked: tuple[Condition, ...]

    def failed(self, tier: Tier) -> tuple[Condition, ...]:
        """Why the step does not take ``tier``; empty for the one that it takes."""
        conditions = {"dense_mha": self.dense, "masked_mha": self.masked, "sparse_mqa": ()}[tier]
        if tier == self.tier:
            return ()
        return tuple(condition for condition in conditions if not condition.holds)


def quantized(kv_dtype: str) -> bool:
    """``is_quantized_kv_cache`` of vLLM."""
    return kv_dtype.startswith(("fp8", "nvfp4")) or kv_dtype.endswith("per_token_head")


def mask_shape(requests: int, query_len: int, key_len: int) -> tuple[int, int, int]:
    """(requests, padded queries, words) of vLLM's mask: queries padded to 128 or 256, words to 4."""
    tile = 128 if query_len <= 128 else 256
    words = -(-key_len // 32)
    return requests, -(-query_len // tile) * tile, -(-words // 4) * 4


def mask_bytes(step: Step) -> int:
    """Bytes of the largest mask that vLLM must hold for ``step`` (without its optional global one)."""
    requests, queries, words = mask_shape(
        step.requests, step.query_len, max(step.query_len, step.context_chunk)
    )
    return requests * queries * words * 4


def use_masked_mha(
    *,
    backend: str,
    tensor_parallel: int,
    qk: int,
    v: int,
    query_len: int,
    seq_len: int,
    has_context: bool,
    table: Thresholds = THRESHOLDS,
) -> bool:
    """What the table alone says."""
    ranges = ranges_for(backend, tensor_parallel, qk, v, has_context, table)
    for longest, shortest_query in ranges or ():
        if seq_len <= longest:
            return query_len >= shortest_query
    return False


def ranges_for(
    backend: str,
    tensor_parallel: int,
    qk: int,
    v: int,
    has_context: bool,
    table: Thresholds = THRESHOLDS,
) -> Ranges | None:
    """The table's ranges for a backend and tensor-parallel size; None where it has no such row."""
    row = table.get((qk, v), {}).get(backend, {}).get(tensor_parallel)
    if row is None:
        return None
    ranges, with_context = row
    return with_context if has_context and with_context is not None else ranges


def ranges_of(deployment: Deployment, table: Thresholds, has_context: bool) -> Ranges | None:
    """The table's ranges for a deployment; None where it has no such row."""
    dims = deployment.dims
    return ranges_for(
        deployment.backend, deployment.tensor_parallel, dims.qk, dims.v, has_context, table
    )


def decide(deployment: Deployment, step: Step, table: Thresholds = THRESHOLDS) -> Decision:
    """Which tier the prefills of ``step`` take, and why they take no other."""
    topk = deployment.dims.topk
    decoding = step.query_len <= deployment.decode_threshold
    common = (_not_decoding(deployment, step), *_common_conditions(deployment))
    dense = (*common, _fits_top_k(step, topk), *_dense_conditions(deployment))
    masked = (
        *common,
        *_masked_gates(deployment),
        _table_condition(deployment, step, table),
        _mask_condition(step),
    )
    tier: Tier = "sparse_mqa"
    if all(condition.holds for condition in dense):
        tier = "dense_mha"
    elif all(condition.holds for condition in masked):
        # forward_mha calls the dense kernel for a sequence within top-k even where only the table said MHA.
        tier = "dense_mha" if topk is None or step.seq_len <= topk else "masked_mha"
    return Decision(tier, decoding, dense, masked)


def skips_indexer(deployment: Deployment, step: Step, decode_tokens: int) -> bool:
    """Whether vLLM leaves the indexer's scoring out of a step: dense MHA takes all of it, so nobody reads it.

    One token that decodes in the same step needs its selection: with the scoring left out it would attend to
    nothing (vLLM #52512 was that bug). On NVIDIA alone (``models/deepseek_v32/attention.py``).
    """
    whole = decode_tokens == 0 and deployment.prefill_context_parallel == 1
    return whole and not deployment.gpu.is_amd and decide(deployment, step).tier == "dense_mha"


def _not_decoding(deployment: Deployment, step: Step) -> Condition:
    limit = deployment.decode_threshold
    prefill = step.query_len > limit
    sign = ">" if prefill else "<="
    counts = "a prefill" if prefill else "decoding, which is always sparse MQA"
    text = f"{step.query_len} new tokens {sign} {limit}: the step counts as {counts}"
    return Condition("prefill", prefill, text)


def _common_conditions(deployment: Deployment) -> tuple[Condition, ...]:
    forced = deployment.force_mqa
    return (
        Condition(
            "not forced",
            not forced,
            "sparse_mla_force_mqa is set" if forced else "sparse_mla_force_mqa is not set",
        ),
        Condition(
            "cache on the GPU",
            not deployment.host_cache,
            "HiSparse keeps the KV cache on the host"
            if deployment.host_cache
            else "the KV cache is on the GPU",
        ),
        Condition(
            "prefill kernel",
            deployment.prefill_backend,
            "a dense MHA prefill kernel exists for this geometry"
            if deployment.prefill_backend
            else "vLLM has no dense MHA prefill kernel here",
        ),
    )


def _fits_top_k(step: Step, topk: int | None) -> Condition:
    if topk is None:
        return Condition("within top-k", True, "there is no indexer: everything is selected")
    fits = step.seq_len <= topk
    sign = "<=" if fits else ">"
    return Condition("within top-k", fits, f"sequence {step.seq_len} {sign} top-k {topk}")


def _dense_conditions(deployment: Deployment) -> tuple[Condition, ...]:
    both = deployment.prefill_context_parallel > 1 and deployment.context_parallel > 1
    text = "prefill and decode context parallelism " + (
        "are both on" if both else "are not both on"
    )
    return (Condition("no double context parallelism", not both, text),)


def _masked_gates(deployment: Deployment) -> tuple[Condition, ...]:
    dims, gpu = deployment.dims, deployment.gpu
    blackwell = gpu.capability == 10
    geometry = (dims.total_heads, dims.lora, dims.nope, dims.rope, dims.v)
    known = geometry in MASKED_GEOMETRIES
    full = not quantized(deployment.kv_dtype)
    version = deployment.flash_attention
    alone = deployment.context_parallel <= 1
    shown = f"{dims.total_heads} heads of {dims.nope}+{dims.rope}/{dims.v} over {dims.lora}"
    return (
        Condition(
            "SM100",
            blackwell,
            f"{gpu.name} is {gpu.architecture}"
            + ("" if blackwell else "; the masked kernel exists for the SM100 family alone"),
        ),
        Condition(
            "geometry",
            known,
            f"{shown} " + ("has a masked kernel" if known else "has no masked kernel"),
        ),
        Condition(
            "FlashAttention 4",
            version == 4,
            "FlashAttention 4 is used"
            if version == 4
            else f"FlashAttention {version or 'is not'} {'is ' if version else ''}used, 4 is needed",
        ),
        Condition(
            "unquantised KV cache",
            full,
            f"KV cache dtype {deployment.kv_dtype} is "
            + ("not quantised" if full else "quantised"),
        ),
        Condition(
            "no decode context parallelism",
            alone,
            f"decode context parallel size is {deployment.context_parallel}",
        ),
    )


def _table_condition(deployment: Deployment, step: Step, table: Thresholds) -> Condition:
    ranges = ranges_of(deployment, table, step.has_context)
    where = f"{deployment.backend} at TP{deployment.tensor_parallel}"
    if ranges is None:
        return Condition("table", False, f"vLLM's table has no row for {where}")
    if not ranges:
        return Condition(
            "table", False, f"vLLM's table never masks with cached context for {where}"
        )
    for longest, shortest_query in ranges:
        if step.seq_len <= longest:
            holds = step.query_len >= shortest_query
            sign = ">=" if holds else "<"
            text = (
                f"for sequences up to {longest:,} vLLM masks from {shortest_query:,} new tokens on: "
                f"{step.query_len:,} {sign} {shortest_query:,}"
            )
            return Condition("table", holds, text)
    text = f"sequence {step.seq_len} > {ranges[-1][0]}, the longest that vLLM masks for {where}"
    return Condition("table", False, text)


def _mask_condition(step: Step) -> Condition:
    need = mask_bytes(step)
    fits = need <= MASK_BUDGET_BYTES
    text = f"the mask takes {need / 2**20:.1f} MiB of {MASK_BUDGET_BYTES // 2**20}"
    return Condition("mask fits", fits, text)
