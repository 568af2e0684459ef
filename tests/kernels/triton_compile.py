"""Our Triton kernels compiled for absent GPUs: run by ``test_triton_kernels`` in a process of its own.

What can be seen without the GPU: that it compiles for real head widths, that matrix instructions are used,
that shared memory stays within the target's limit and that no register spills. pytest collects this file only
when it is named.
"""

import re
import subprocess
from collections.abc import Callable
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


def mha(dims: MLADims, target: str) -> Any:
    tile = mha_tile(dims, TARGETS[target])
    return compiled(
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


def gathering(target: str, choose: Callable[[MLADims, Target], Tile], *, swapped: bool) -> Any:
    tile = choose(DEEPSEEK, TARGETS[target])
    return compiled(
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


KERNELS: dict[str, Callable[[str], Any]] = {
    "masked MHA of DeepSeek": lambda target: mha(DEEPSEEK, target),
    "masked MHA of GLM": lambda target: mha(GLM, target),
    "plain MQA": lambda target: gathering(target, mqa_tile, swapped=False),
    "swapped MQA": lambda target: gathering(target, swapped_tile, swapped=True),
}


def spilled_bytes(built: Any, target: str) -> int:
    """Bytes (NVIDIA: of stack) or registers (AMD) that were spilled."""
    if not target.startswith("sm"):
        found = re.findall(r"\.(?:vgpr|sgpr)_spill_count:\s*(\d+)", built.asm["amdgcn"])
        assert found
        return sum(map(int, found))
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    if not tool.exists():
        pytest.skip("this Triton came without cuobjdump")
    file = Path("kernel.cubin")
    file.write_bytes(built.asm["cubin"])
    ran = subprocess.run([tool, "-res-usage", file], capture_output=True, text=True)
    found = re.search(r"STACK:(\d+)", ran.stdout + ran.stderr)
    assert found, ran.stderr
    return int(found.group(1))


@pytest.mark.parametrize("target", GPU)
@pytest.mark.parametrize("name", KERNELS)
def test_it_compiles_with_matrix_instructions_within_shared_memory_and_without_spills(
    name: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    built = KERNELS[name](target)
    text = built.asm["amdgcn" if target.startswith("gfx") else "ptx"]
    assert re.search(MATRIX[target], text)
    assert built.metadata.shared <= TARGETS[target].shared_bytes
    spilled = spilled_bytes(built, target)
    assert spilled == 0
