"""Which sparse MLA backend vLLM 0.32.0 chooses, and what follows from it. Pure.

Read from ``platforms/cuda.py`` and ``platforms/rocm.py`` (priorities),
``v1/attention/backends/mla/*_sparse*.py`` (what each accepts, decode thresholds), ``mla_attention.py``
(KV dtypes that are substituted), ``platforms/interface.py`` (prefill kernels) and ``engine/arg_utils.py``
(default chunk).
"""

from dataclasses import dataclass, replace

from specpanel.kernels.dims import MLADims
from specpanel.kernels.errors import MLAError
from specpanel.kernels.gpus import GPU
from specpanel.kernels.vllm_rules import Deployment, quantized

FLASHMLA = "FLASHMLA_SPARSE"
FLASHINFER = "FLASHINFER_MLA_SPARSE"
FLASHINFER_SM90 = "FLASHINFER_MLA_SPARSE_SM90"
FLASH_ATTN = "FLASH_ATTN_MLA_SPARSE"
AITER = "ROCM_AITER_MLA_SPARSE"
BACKENDS = (FLASHMLA, FLASHINFER, FLASHINFER_SM90, FLASH_ATTN, AITER)

KV_DTYPES = ("auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_ds_mla", "nvfp4_ds_mla")

_SM100_DECODES = {8: 128, 16: 128, 32: 128, 64: 256, 128: 1024}
_SM90_DECODES = {16: 128, 32: 128, 64: 256, 128: 256}
_PREFILL_HEADS = {(128, 64, 128), (192, 64, 256), (64, 64, 128), (256, 0, 256)}


@dataclass(frozen=True, slots=True)
class Rejection:
    """A backend that comes before the chosen one, and why it was passed over."""

    backend: str
    reason: str


@dataclass(frozen=True, slots=True)
class Serving:
    """What the user chose; everything else of a deployment follows from it."""

    dims: MLADims
    gpu: GPU
    tensor_parallel: int = 1
    kv_dtype: str = "auto"
    backend: str | None = None
    force_mqa: bool = False
    context_parallel: int = 1
    draft_tokens: int = 0


def choose(serving: Serving) -> tuple[Deployment, tuple[Rejection, ...]]:
    """The deployment that vLLM would make of ``serving``, and the backends that it passed over.

    Raises:
        MLAError: vLLM would refuse it; the message says why.
    """
    rank = serving.dims.on_rank(serving.tensor_parallel)
    if serving.kv_dtype == "auto":
        serving = replace(serving, kv_dtype=default_kv_dtype(serving.dims, serving.gpu))
    if serving.dims.topk is None:
        raise MLAError(
            "the model has no indexer (no index_topk): vLLM serves its MLA as dense MHA for prompts and "
            "as MQA over the whole past while decoding, and there is no tier to choose",
            "Give a model with DeepSeek Sparse Attention, for example deepseek-v3.2 or glm-5.",
        )
    order = _priorities(serving, rank.heads)
    if serving.backend is not None:
        if serving.backend not in BACKENDS:
            raise MLAError(
                f"{serving.backend[:60]!r} is no sparse MLA backend of vLLM 0.32",
                f"Known: {', '.join(BACKENDS)}.",
            )
        order = (serving.backend,)
    passed: list[Rejection] = []
    for backend in order:
        reason = _refusal(backend, serving)
        if reason is None:
            return _deployment(backend, serving, rank), tuple(passed)
        passed.append(Rejection(backend, reason))
    reasons = "; ".join(f"{item.backend}: {item.reason}" for item in passed)
    raise MLAError(
        f"vLLM 0.32 has no sparse MLA backend for this on {serving.gpu.name} ({reasons})",
        "Choose another KV cache dtype or backend.",
    )


def default_kv_dtype(dims: MLADims, gpu: GPU) -> str:
    """What vLLM makes of ``--kv-cache-dtype auto`` for a model on a GPU."""
    return "fp8_e4m3" if dims.quantised_by_default and gpu.capability == 10 else "auto"


def default_chunk_tokens(gpu: GPU) -> int:
    """``--max-num-batched-tokens`` of ``vllm serve`` where nobody set it: the longest prefill step."""
    if gpu.memory_gib >= 160:
        return 16384
    return 8192 if gpu.memory_gib >= 70 else 2048


def kv_bytes_per_token(dims: MLADims, kv_dtype: str, backend: str) -> int:
    """Bytes of one cached token a layer: the latent, and for packed formats their scales."""
    if kv_dtype == "nvfp4_ds_mla":
        return 352
    if kv_dtype == "fp8_ds_mla" or (quantized(kv_dtype) and backend == FLASHMLA):
        return 656
    return dims.latent * (1 if quantized(kv_dtype) else 2)


def _priorities(serving: Serving, heads: int) -> tuple[str, ...]:
    gpu = serving.gpu
    if gpu.is_amd:
        return (AITER,)
    if gpu.capability == 10:
        first_flashinfer = quantized(serving.kv_dtype) or heads <= 16
        return (FLASHINFER, FLASHMLA) if first_flashinfer else (FLASHMLA, FLASHINFER)
    if serving.dims.latent == 512:
        return (FLASHINFER_SM90, FLASH_ATTN, FLASHMLA)
    return (FLASH_ATTN, FLASHMLA, FLASHINFER_SM90)


def _refusal(backend: str, serving: Serving) -> str | None:
    """Why ``backend`` would not take this, or None. Optional packages are taken as installed."""
    check = {
        FLASHMLA: _flashmla_refusal,
        FLASHINFER: _flashinfer_refusal,
        FLASHINFER_SM90: _flashinfer_sm90_refusal,
        FLASH_ATTN: _flash_attn_refusal,
        AITER: _aiter_refusal,
    }[backend]
    return check(serving)


def _flashmla_refusal(serving: Serving) -> str | None:
    dims, dtype, capability = serving.dims, serving.kv_dtype, serving.gpu.capability
    if capability not in (9, 10):
        return f"made for compute capability 9 and 10, not {serving.gpu.architecture}"
    if dims.latent not in (512, 576):
        return f"cached rows must be 512 or 576 wide, not {dims.latent}"
    if dtype not in ("auto", "bfloat16", "fp8_ds_mla", "fp8", "nvfp4_ds_mla"):
        return f"KV cache dtype {dtype} is not supported"
    if dims.latent == 512 and (
        capability != 9 or dims.rope or dtype not in ("auto", "bfloat16", "float16", "fp8_ds_mla")
    ):
        return "rows of 512 only on SM90, without a rotary part, in bf16 or fp8_ds_mla"
    if dtype == "nvfp4_ds_mla" and capability != 10:
        return "nvfp4_ds_mla only on SM100"
    return None


def _flashinfer_refusal(serving: Serving) -> str | None:
    dims, dtype = serving.dims, serving.kv_dtype
    if serving.gpu.capability != 10:
        return f"made for compute capability 10, not {serving.gpu.architecture}"
    if dtype not in ("auto", "float16", "bfloat16", "fp8", "fp8_e4m3"):
        return f"KV cache dtype {dtype} is not supported"
    if dims.latent not in (512, 576):
        return f"cached rows must be 512 or 576 wide, not {dims.latent}"
    if dims.rope == 0 and (dims.nope, dims.lora) != (256, 512):
        return "without a rotary part only heads of 256 over a latent of 512"
    if dims.rope and dims.nope not in (128, 192):
        return f"heads of 128 or 192 without position, not {dims.nope}"
    return None


def _flashinfer_sm90_refusal(serving: Serving) -> str | None:
    dims, dtype = serving.dims, serving.kv_dtype
    if serving.gpu.capability != 9:
        return f"made for compute capability 9, not {serving.gpu.architecture}"
    if dims.lora != 512 or dims.rope not in (0, 64):
        return "needs a latent of 512 and a rotary part of 0 or 64"
    if dtype not in ("auto", "float16", "bfloat16", "fp8", "fp8_e4m3"):
        return f"KV cache dtype {dtype} is not supported"
    return None


def _flash_attn_refusal(serving: Serving) -> str | None:
    if serving.gpu.capability != 9:
        return f"made for compute capability 9, not {serving.gpu.architecture}"
    if serving.kv_dtype not in ("auto", "float16", "bfloat16"):
        return "only an unquantised KV cache"
    if serving.context_parallel > 1:
        return "no decode context parallelism"
    return None


def _aiter_refusal(serving: Serving) -> str | None:
    if not serving.gpu.is_amd:
        return f"made for AMD GPUs, not {serving.gpu.name}"
    if serving.kv_dtype not in ("auto", "float16", "bfloat16", "fp8", "fp8_e4m3"):
        return f"KV cache dtype {serving.kv_dtype} is not supported"
    return None


def _has_prefill_kernel(serving: Serving) -> bool:
    dims = serving.dims
    if serving.gpu.is_amd:
        return not dims.sink  # AITER's takes any width of head
    return (dims.nope, dims.rope, dims.v) in _PREFILL_HEADS


def _deployment(backend: str, serving: Serving, rank: MLADims) -> Deployment:
    dims = serving.dims
    kv_dtype = serving.kv_dtype
    if backend == FLASHMLA and quantized(kv_dtype) and kv_dtype != "nvfp4_ds_mla":
        kv_dtype = "fp8_ds_mla"
    # A NoPE cache in fp8_ds_mla has rows too wide for the workspace that dense prefill gathers into.
    packed_nope = backend == FLASHMLA and kv_dtype == "fp8_ds_mla" and dims.rope == 0
    return Deployment(
        dims=dims,
        gpu=serving.gpu,
        tensor_parallel=serving.tensor_parallel,
        kv_dtype=kv_dtype,
        backend=backend,
        decode_threshold=_decode_threshold(backend, serving, rank.heads),
        prefill_backend=_has_prefill_kernel(serving) and not packed_nope,
        flash_attention={10: 4, 9: 3}.get(serving.gpu.capability or 0),
        force_mqa=serving.force_mqa or dims.sink,
        context_parallel=serving.context_parallel,
    )


def _decode_threshold(backend: str, serving: Serving, heads: int) -> int:
    if backend == AITER:
        limit = 1
    elif backend in (FLASHINFER, FLASHINFER_SM90) or serving.gpu.capability == 10:
        limit = _SM100_DECODES.get(heads, 1024)
    else:
        limit = _SM90_DECODES.get(heads, 256)
    if serving.draft_tokens:
        limit = max(limit, 1 + serving.draft_tokens)
    # Of the backends only these two tell vLLM that decoding ragged lengths works under context parallelism.
    if serving.context_parallel > 1 and backend not in (FLASHINFER, FLASHMLA):
        return 1
    return limit
