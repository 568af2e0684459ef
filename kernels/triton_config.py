"""Tile sizes of our Triton kernels by target, and its shared memory. Pure but for ``Target.of``.

Written down and not tuned at run time: autotuning cannot run under the interpreter, and a table can be
checked for every target without the GPU.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specpanel.kernels.dims import MLADims

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows (queries, or heads for the gathering kernels) by keys, and how a program is scheduled."""

    rows: int
    keys: int
    warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class Target:
    """What a kernel is built for. ``shared_bytes``: what one program may use."""

    architecture: str
    shared_bytes: int

    @staticmethod
    def of(device: "torch.device") -> "Target":
        """The target of a device; the CPU is the interpreter's."""
        if device.type == "cpu":
            return INTERPRETER
        import torch

        properties = torch.cuda.get_device_properties(device)
        name = getattr(properties, "gcnArchName", "").partition(":")[0]
        if not name:
            name = f"sm_{properties.major}{properties.minor}"
        return TARGETS.get(name, INTERPRETER)


INTERPRETER = Target("interpreter", 1 << 30)
TARGETS = {
    "sm_90": Target("sm_90", 227 * 1024),
    "sm_100": Target("sm_100", 227 * 1024),
    "gfx942": Target("gfx942", 64 * 1024),
    "gfx950": Target("gfx950", 160 * 1024),
}
"""By the name that Triton and ROCm give them."""

FEW_HEADS = 64
"""Below so many heads the gathering kernel puts keys, not heads, on the rows of its products."""


def mha_tile(dims: MLADims, target: Target) -> Tile:
    """Queries by keys for ``triton_mha``; heads wider than 192 take smaller tiles."""
    wide = max(dims.qk, dims.v) > 192
    match target.architecture:
        case "gfx942":
            return Tile(64, 32, 4, 1)  # 128 rows spill registers there
        case "gfx950":
            return Tile(128, 32, 4, 2) if wide else Tile(128, 64, 4, 2)
        case "sm_90":
            return Tile(128, 32, 8, 2) if wide else Tile(128, 64, 8, 2)
        case "sm_100":
            return Tile(64, 32, 8, 1) if wide else Tile(128, 64, 8, 2)
    return Tile(32, 32, 4, 1)


def mqa_tile(dims: MLADims, target: Target) -> Tile:
    """Heads by keys for the plain ``triton_mqa``, whose row is a head."""
    match target.architecture:
        case "gfx942":
            return Tile(16, 32, 4, 1)
        case "gfx950":
            return Tile(16, 64, 4, 2)
        case "sm_90":
            return Tile(32, 32, 8, 2)  # 64 heads spill registers there
        case "sm_100":
            return Tile(64, 32, 8, 2)
    return Tile(16, 16, 4, 1)


def swapped_tile(dims: MLADims, target: Target) -> Tile:
    """Heads by keys for the swapped ``triton_mqa``: 16 heads are enough to fill its products."""
    match target.architecture:
        case "gfx942":
            return Tile(16, 32, 4, 1)
        case "gfx950" | "sm_90" | "sm_100":
            return Tile(16, 64, 4, 2)
    return Tile(16, 16, 4, 1)
