"""vLLM's attention backends as data: where each runs, for which models, types and block sizes.

Read from vLLM 0.32.0: ``v1/attention/backends/registry.py`` (names), the classes under
``v1/attention/backends`` (KV types, block sizes, devices), ``platforms/{cuda,rocm,cpu}.py`` (order). A name
that is not here may belong to a newer vLLM or a plugin: it is unknown, not wrong.
"""

from dataclasses import dataclass
from typing import Literal

BACKENDS_VERSION = "0.32"
ModelKind = Literal["gqa", "mla", "sparse"]
Platform = Literal["cuda", "rocm", "cpu"]

_FLOAT = ("auto", "float16", "bfloat16")
_FP8 = (*_FLOAT, "fp8", "fp8_e4m3")


@dataclass(frozen=True, slots=True)
class Backend:
    """One backend.

    ``capabilities`` are the major compute capabilities of CUDA devices it runs on; empty: all of them.
    ``blocks`` are the kernel's block sizes, of which a block must be a multiple; ``exact`` where only
    these will do. ``kv_types`` empty: not told here, so not judged.
    """

    name: str
    kind: ModelKind
    platform: Platform
    capabilities: tuple[int, ...] = ()
    kv_types: tuple[str, ...] = ()
    blocks: tuple[int, ...] = ()
    exact: bool = False
    note: str = ""

    def allows_block(self, size: int) -> bool:
        if not self.blocks:
            return True
        return (
            size in self.blocks if self.exact else any(size % block == 0 for block in self.blocks)
        )


BACKENDS: tuple[Backend, ...] = (
    Backend("FLASH_ATTN", "gqa", "cuda"),
    Backend("FLASHINFER", "gqa", "cuda"),
    Backend("TRITON_ATTN", "gqa", "cuda"),
    Backend("TRITON_FLASHINFER", "gqa", "cuda"),
    Backend("FLEX_ATTENTION", "gqa", "cuda"),
    Backend("TURBOQUANT", "gqa", "cuda"),
    Backend("ULTRAQUANT", "gqa", "cuda"),
    Backend("B12X", "gqa", "cuda", (12,)),
    Backend("HPC_ATTN", "gqa", "cuda", (9,), blocks=(64,)),
    Backend("ROCM_ATTN", "gqa", "rocm"),
    Backend("ROCM_SEGMENTED_ATTN", "gqa", "rocm"),
    Backend("ROCM_AITER_FA", "gqa", "rocm"),
    Backend("ROCM_AITER_UNIFIED_ATTN", "gqa", "rocm"),
    Backend("TRITON_ATTN", "gqa", "rocm"),
    Backend("FLEX_ATTENTION", "gqa", "rocm"),
    Backend("CPU_ATTN", "gqa", "cpu"),
    Backend("FLASHINFER_MLA", "mla", "cuda", (10,), _FP8, (32, 64)),
    Backend("TOKENSPEED_MLA", "mla", "cuda", (10,), ("fp8", "fp8_e4m3"), (32, 64)),
    Backend("CUTLASS_MLA", "mla", "cuda", (10,), _FP8, (128,)),
    Backend("FLASH_ATTN_MLA", "mla", "cuda", (9,), _FLOAT, (16,)),
    Backend("FLASHMLA", "mla", "cuda", (9, 10), _FP8, (64,)),
    Backend("TRITON_MLA", "mla", "cuda", (), _FP8, (16,)),
    Backend("ROCM_AITER_MLA", "mla", "rocm", (), (*_FP8, "fp8_e5m2"), (1,), note="needs AITER"),
    Backend("ROCM_AITER_TRITON_MLA", "mla", "rocm", (), (*_FP8, "fp8_e5m2"), (1,)),
    Backend("TRITON_MLA", "mla", "rocm", (), _FP8, (16,)),
    Backend("CPU_MLA", "mla", "cpu", (), ("auto",), (16,), exact=True),
    Backend("AMX_MLA", "mla", "cpu", (), (), (32,), note="needs AMX tiles"),
    Backend(
        "FLASHMLA_SPARSE",
        "sparse",
        "cuda",
        (9, 10),
        ("auto", "bfloat16", "fp8", "fp8_ds_mla", "nvfp4_ds_mla"),
        (64,),
    ),
    Backend("FLASHINFER_MLA_SPARSE", "sparse", "cuda", (10,), _FP8, (32,)),
    Backend(
        "FLASHINFER_MLA_SPARSE_SM120",
        "sparse",
        "cuda",
        (12,),
        ("auto", "fp8", "fp8_e4m3", "fp8_ds_mla"),
        (64,),
    ),
    Backend(
        "FLASHINFER_MLA_SPARSE_SM90",
        "sparse",
        "cuda",
        (9,),
        ("auto", "bfloat16", "fp8", "fp8_e4m3"),
        (64,),
    ),
    Backend("FLASH_ATTN_MLA_SPARSE", "sparse", "cuda", (9,), _FLOAT, (64,)),
    Backend("ROCM_AITER_MLA_SPARSE", "sparse", "rocm", (), _FP8, (1, 16), note="needs AITER"),
)
# Names that vLLM knows and picks by itself for single models, or that others register.
OTHER_NAMES: frozenset[str] = frozenset(
    {
        "B12X",
        "CUSTOM",
        "CUTLASS_MSA",
        "FLASHINFER_MLA_SPARSE_DSV4",
        "FLASHINFER_MLA_SPARSE_DSV41",
        "FLASHMLA_MEGA_ATTN_DSV41",
        "FLASHMLA_SPARSE_DSV4",
        "FLASHMLA_SPARSE_DSV41",
        "FLASH_ATTN_DIFFKV",
        "MINIMAX_M3_SPARSE",
        "NO_ATTENTION",
        "ROCM_FLASHMLA_SPARSE_DSV4",
        "TORCH_SDPA",
        "TRITON_ATTN_DIFFKV",
        "TRITON_FLASH_ATTN",
        "TRITON_MSA",
        "XPU_MLA_SPARSE",
    }
)
KNOWN_NAMES: frozenset[str] = OTHER_NAMES | {backend.name for backend in BACKENDS}

# v1/attention/backends/mla/prefill/registry.py and platforms/interface.py
PREFILL_BACKENDS: dict[str, tuple[Platform, tuple[int, ...]]] = {
    "FLASH_ATTN": ("cuda", ()),
    "FLASHINFER": ("cuda", (10,)),
    "TRTLLM_RAGGED": ("cuda", (10,)),
    "TOKENSPEED_MLA": ("cuda", (10,)),
    "ROCM_AITER_FA": ("rocm", ()),
}


def backends_for(platform: str, kind: ModelKind) -> tuple[Backend, ...]:
    """The backends of a platform for a kind of model, in the table's order."""
    return tuple(b for b in BACKENDS if b.platform == platform and b.kind == kind)


def find_backend(name: str, platform: str, kind: ModelKind) -> Backend | None:
    """The backend of that name there; None where the table has none."""
    return next((b for b in backends_for(platform, kind) if b.name == name), None)
