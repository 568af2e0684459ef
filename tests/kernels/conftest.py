"""What the kernel tests share: small geometries, edge-case batches and the tolerances they are held to.

torch is heavy and belongs to none of the other tests, so it is imported by the test modules that need it. The
tests of Triton's kernels run in a process of their own (see ``test_triton_kernels``).
"""

import sys

import pytest

from specpanel.kernels.dims import MLADims


def _small(heads: int, nope: int, rope: int, v: int, lora: int, topk: int) -> MLADims:
    return MLADims(heads, heads, nope, rope, v, lora, topk=topk)


GEOMETRIES: dict[str, MLADims] = {
    "even": _small(4, 32, 16, 32, 64, 24),
    "one head": _small(1, 32, 16, 32, 64, 16),
    "no rotary part": _small(3, 48, 0, 32, 64, 16),
    "odd widths": _small(5, 24, 8, 40, 48, 10),
}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tensors here are small: a second thread costs more than it gives, most of all beside other work."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@pytest.fixture(params=GEOMETRIES, ids=lambda name: name.replace(" ", "-"))
def geometry(request: pytest.FixtureRequest) -> MLADims:
    return GEOMETRIES[request.param]
