"""Every kind of drafter that can be swapped, in a real vLLM worker by itself: exchanged, and back."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fakes import drafter_checkpoints as tiny

PROGRAM = Path(tiny.__file__).with_name("drafter_worker.py")


def noisy(folder: Path) -> Path:
    """A copy of the checkpoint with other weights; an embedding may be the target's and stays."""
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    copy = folder.with_name(f"{folder.name}-noisy")
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    tensors = load_file(folder / "model.safetensors")
    random = torch.Generator().manual_seed(1)
    for name, tensor in tensors.items():
        if tensor.dtype.is_floating_point and "embed" not in name:
            noise = torch.randn(tensor.shape, generator=random)
            tensors[name] = (tensor.float() + 0.01 * noise).to(tensor.dtype)
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    return copy


def steps(*arguments: object) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"step"')]
    return {line["step"]: line for line in lines}


@pytest.mark.parametrize(
    "kind",
    [
        "dflash",
        # The same exchange with other shapes: half a minute each, so not every time.
        pytest.param("p_eagle", marks=pytest.mark.faults),
        pytest.param("draft_model", marks=pytest.mark.faults),
    ],
)
def test_weights_are_exchanged_and_brought_back(tmp_path: Path, kind: str) -> None:
    target = tiny.write_target(tmp_path / "target")
    if kind == "p_eagle":
        drafter, method, parallel = tiny.write_p_eagle(tmp_path / "p", target), "eagle3", ["yes"]
    elif kind == "dflash":
        drafter, method, parallel = tiny.write_dflash(tmp_path / "d", target), "dflash", []
    else:
        drafter, method, parallel = tiny.write_target(tmp_path / "copy"), "draft_model", []
    other = noisy(drafter)
    told = steps(method, target, drafter, other, 4, *parallel)
    assert all(answer["ok"] for answer in told.values()), told
    first, new = told["start"]["fingerprint"], told["prepare"]["fingerprint"]
    assert first != new
    assert told["prepared"]["fingerprint"] == first
    assert (told["committed"]["fingerprint"], told["committed"]["folder"]) == (new, str(other))
    assert (told["undone"]["fingerprint"], told["undone"]["folder"]) == (first, str(drafter))
    assert told["swapped back"]["fingerprint"] == first
