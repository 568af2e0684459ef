"""The GPUs that MLA runs on; every number says whether it was measured, published or assumed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from specpanel.kernels.errors import MLAError

Provenance = Literal["measured", "published", "assumed"]


@dataclass(frozen=True, slots=True)
class Constant:
    """A number of the cost model and how far to trust it."""

    value: float
    provenance: Provenance
    source: str


@dataclass(frozen=True, slots=True)
class GPU:
    """One accelerator.

    ``capability`` is NVIDIA's major compute capability, None elsewhere. ``memory_gib`` decides vLLM's
    default chunk. Rates are those of dense bf16: ``peak_flop_per_s``, ``memory_byte_per_s``; ``*_share``
    is the part of the peak that a kernel reaches. ``head_tile``: the MQA kernel works on multiples of so
    many heads.
    """

    name: str
    architecture: str
    capability: int | None
    memory_gib: float
    peak_flop_per_s: Constant
    memory_byte_per_s: Constant
    cache_bytes: Constant
    gemm_share: Constant
    dense_share: Constant
    masked_share: Constant
    mqa_share: Constant
    bandwidth_share: Constant
    launch_s: Constant
    head_tile: int
    head_tile_source: str

    @property
    def is_amd(self) -> bool:
        return self.architecture.startswith("gfx")


def _assumed(value: float, source: str = "assumed") -> Constant:
    return Constant(value, "assumed", source)


_DATASHEET = "vendor's data sheet, dense bf16"
_FLASHMLA = "FlashMLA README: sparse prefill 640 TFLOP/s on H800, 1450 on B200"
_FIT = "chosen so that the crossing of vLLM's published B200 plot (7,740 tokens) comes out"
_AITER = "between AITER's Triton and Gluon kernels on gfx950 (ROCm/aiter #3456)"
_LAUNCH = _assumed(5e-6, "assumed: a launch with its gap")
_BANDWIDTH = _assumed(0.8, "assumed: share of the peak that a stream reaches")


def _hopper(name: str, memory_gib: float, byte_per_s: float) -> GPU:
    return GPU(
        name=name,
        architecture="sm90",
        capability=9,
        memory_gib=memory_gib,
        peak_flop_per_s=Constant(989e12, "published", _DATASHEET),
        memory_byte_per_s=Constant(byte_per_s, "published", _DATASHEET),
        cache_bytes=Constant(50e6, "published", _DATASHEET),
        gemm_share=_assumed(0.70),
        dense_share=_assumed(0.60, "FlashAttention 3 on H100: 614 TFLOP/s at head 128, 8K tokens"),
        masked_share=_assumed(0.40, "no such kernel in vLLM 0.32; one of FlashAttention 3's class"),
        mqa_share=Constant(0.647, "published", _FLASHMLA),
        bandwidth_share=_BANDWIDTH,
        launch_s=_LAUNCH,
        head_tile=64,
        head_tile_source="vLLM 0.32, flashmla_sparse.py: prefill_padding = 64",
    )


def _instinct(name: str, arch: str, memory_gib: float, flops: float, byte_per_s: float) -> GPU:
    return GPU(
        name=name,
        architecture=arch,
        capability=None,
        memory_gib=memory_gib,
        peak_flop_per_s=Constant(flops, "published", _DATASHEET),
        memory_byte_per_s=Constant(byte_per_s, "published", _DATASHEET),
        cache_bytes=Constant(256e6, "published", "vendor's data sheet, Infinity Cache"),
        gemm_share=_assumed(0.55),
        dense_share=_assumed(0.38),
        masked_share=_assumed(0.25, "no such kernel in vLLM 0.32"),
        mqa_share=_assumed(0.16 if arch == "gfx942" else 0.15, _AITER),
        bandwidth_share=_BANDWIDTH,
        launch_s=_LAUNCH,
        head_tile=16,
        head_tile_source="assumed: the smallest matrix tile",
    )


GPUS: Mapping[str, GPU] = {
    "h100": _hopper("H100", 79.6, 3.35e12),
    "h200": _hopper("H200", 139.8, 4.8e12),
    "b200": GPU(
        name="B200",
        architecture="sm100",
        capability=10,
        memory_gib=178.4,
        peak_flop_per_s=Constant(2250e12, "published", _DATASHEET),
        memory_byte_per_s=Constant(8.0e12, "published", _DATASHEET),
        cache_bytes=Constant(126e6, "published", _DATASHEET),
        gemm_share=_assumed(0.70),
        dense_share=Constant(0.58, "published", "Dao-AILab/flash-attention #2313: 1,319 TFLOP/s"),
        masked_share=_assumed(0.41, _FIT),
        mqa_share=Constant(0.644, "published", _FLASHMLA),
        bandwidth_share=_BANDWIDTH,
        launch_s=_LAUNCH,
        head_tile=64,
        head_tile_source="vLLM 0.32, flashmla_sparse.py: prefill_padding = 64",
    ),
    "mi300x": _instinct("MI300X", "gfx942", 191.5, 1307e12, 5.3e12),
    "mi355x": _instinct("MI355X", "gfx950", 287.5, 2516e12, 8.0e12),
}
"""By the name that the command line takes."""


def gpu(name: str) -> GPU:
    """The GPU called ``name`` (H100, H200, B200, MI300X, MI355X), whatever the case.

    Raises:
        MLAError: no such GPU is known here.
    """
    wanted = name.strip().casefold().removeprefix("nvidia").removeprefix("amd").strip()
    found = GPUS.get(wanted.removeprefix("instinct").strip())
    if found is None:
        names = ", ".join(known.name for known in GPUS.values())
        raise MLAError(f"nothing is known here of a GPU called {name[:40]!r}", f"Known: {names}.")
    return found


def recognised(device_name: str) -> GPU | None:
    """The GPU that a driver calls ``device_name`` ("NVIDIA H200 NVL", "AMD Instinct MI300X"), if known."""
    words = device_name.casefold().replace("-", " ").replace("_", " ").split()
    return next((GPUS[word] for word in words if word in GPUS), None)
