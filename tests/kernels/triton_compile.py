"""Our Triton kernels compiled for absent GPUs: run by ``test_triton_kernels`` in a process of its own.

What can be seen without the GPU: that it compiles for real head widths, that matrix instructions are used,
that shared memory stays within the target's limit and that no register spills. pytest collects this file only
when it is named.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

triton = pytest.importorskip("triton", reason="Triton is not installed")
pytest.importorskip("torch", reason="the kernels need torch")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from specpanel.kernels import triton_mha, triton_mqa  # noqa: E402
from specpanel.kernels.dims import PRESETS, MLADims  # noqa: E402
from specpanel.kernels.triton_config import (  # noqa: E402
    TARGETS,
    Target,
    Tile,
    mha_tile,
    mqa_tile,
    swapped_tile,
)

DEEPSEEK, GLM = PRESETS["deepseek-v3.2"].dims, PRESETS["glm-5"].dims
GPU = {
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
POINTERS = {
    "q": "*bf16",
    "k_nope": "*bf16",
    "k_pe": "*bf16",
    "v": "*bf16",
    "cache": "*bf16",
    "out": "*bf16",
}
MATRIX = {"sm_90": r"wgmma|mma\.sync", "sm_100": r"tcgen05\.mma|mma\.sync", "gfx942": r"v_mfma"}


def ptxas() -> Path | None:
    found = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
    return found if found.exists() else None


def compiled(kernel: Any, target: str, tile: Tile, constants: dict[str, Any]) -> Any:
    if target.startswith("sm") and ptxas() is None:
        pytest.skip("this Triton came without ptxas")
    names = kernel.arg_names
    signature = {}
    for name in names:
        if name in constants:
            signature[name] = "constexpr"
        elif name == "scale_log2":
            signature[name] = "fp32"
        elif name == "lse":
            signature[name] = "*fp32"
        elif name in POINTERS:
            signature[name] = POINTERS[name]
        elif name.endswith(("_row", "_head")) or name in ("cached", "heads"):
            signature[name] = "i32"
        else:
            signature[name] = "*i32"
    # Strides and pointers of real tensors are multiples of 16: Triton is told when it compiles for a call.
    aligned = {
        (at,): [["tt.divisibility", 16]]
        for at, name in enumerate(names)
        if signature[name].startswith("*") or name.endswith(("_row", "_head"))
    }
    source = ASTSource(
        kernel, signature, {(names.index(n),): v for n, v in constants.items()}, aligned
    )
    options = {"num_warps": tile.warps, "num_stages": tile.stages}
    return triton.compile(source, target=GPU[target], options=options)


def mha(dims: MLADims, target: str) -> tuple[Any, Tile]:
    tile = mha_tile(dims, TARGETS[target])
    built = compiled(
        triton_mha.mha_kernel,
        target,
        tile,
        {
            "nope": dims.nope,
            "rope": dims.rope,
            "value": dims.v,
            "nope_block": triton_mha.block(dims.nope),
            "rope_block": triton_mha.block(dims.rope),
            "value_block": triton_mha.block(dims.v),
            "query_tile": tile.rows,
            "key_tile": tile.keys,
            "masked": True,
            "listed": False,
            "widen": False,
        },
    )
    return built, tile


def gathering(
    target: str, choose: Callable[[MLADims, Target], Tile], *, swapped: bool
) -> tuple[Any, Tile]:
    tile = choose(DEEPSEEK, TARGETS[target])
    built = compiled(
        triton_mqa.mqa_kernel,
        target,
        tile,
        {
            "lora": 512,
            "rope": 64,
            "lora_block": 512,
            "rope_block": 64,
            "head_tile": tile.rows,
            "key_tile": tile.keys,
            "swapped": swapped,
            "widen": False,
        },
    )
    return built, tile


KERNELS: dict[str, Callable[[str], tuple[Any, Tile]]] = {
    "masked MHA of DeepSeek": lambda target: mha(DEEPSEEK, target),
    "masked MHA of GLM": lambda target: mha(GLM, target),
    "plain MQA": lambda target: gathering(target, mqa_tile, swapped=False),
    "swapped MQA": lambda target: gathering(target, swapped_tile, swapped=True),
}


@dataclass(frozen=True, slots=True)
class Usage:
    """What a compiled kernel takes of the target: registers a thread, what was spilled, shared memory.

    ``spilled``: bytes of stack on NVIDIA, registers on AMD. ``matrix``: the matrix instruction that it uses.
    """

    registers: int
    spilled: int
    shared_bytes: int
    matrix: str | None


def usage(built: Any, target: str) -> Usage:
    amd = target.startswith("gfx")
    text = built.asm["amdgcn" if amd else "ptx"]
    matrix = re.search(MATRIX[target], text)
    if amd:
        (registers,) = map(int, re.findall(r"\.vgpr_count:\s*(\d+)", text))
        counts = re.findall(r"\.(?:vgpr|sgpr)_spill_count:\s*(\d+)", text)
        assert counts
        spilled = sum(map(int, counts))
    else:
        tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
        if not tool.exists():
            pytest.skip("this Triton came without cuobjdump")
        file = Path("kernel.cubin")
        file.write_bytes(built.asm["cubin"])
        ran = subprocess.run([tool, "-res-usage", file], capture_output=True, text=True)
        found = re.search(r"REG:(\d+) STACK:(\d+)", ran.stdout + ran.stderr)
        assert found, ran.stderr
        registers, spilled = map(int, found.groups())
    return Usage(registers, spilled, built.metadata.shared, matrix[0] if matrix else None)


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    """Rows of what was compiled; ``pytest -s`` on this file alone shows them."""
    rows: list[str] = []
    yield rows
    head = "| kernel | target | tile, warps, stages | matrix | registers | spilled | shared |"
    sys.stdout.write("\n".join(["", head, "|---" * 7 + "|", *rows, ""]))


@pytest.mark.parametrize("target", GPU)
@pytest.mark.parametrize("name", KERNELS)
def test_it_compiles_with_matrix_instructions_within_shared_memory_and_without_spills(
    name: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    built, tile = KERNELS[name](target)
    found = usage(built, target)
    table.append(
        f"| {name} | {target} | {tile.rows}x{tile.keys}, {tile.warps}, {tile.stages} | {found.matrix} "
        f"| {found.registers} | {found.spilled} | {found.shared_bytes / 1024:.0f} KiB |"
    )
    assert found.matrix
    assert found.shared_bytes <= TARGETS[target].shared_bytes
    assert found.spilled == 0
