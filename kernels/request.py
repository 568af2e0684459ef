"""What a measurement is asked to do, as plain data: it travels to a process of its own. Pure."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from specpanel.kernels.calibrate import Grid
from specpanel.kernels.dims import MLADims
from specpanel.kernels.errors import MLAError

ENGINES = ("auto", "portable", "triton")

# A CPU is some thousand times slower: fewer heads, and a top-k small enough to cross within its lengths.
_CPU_HEADS, _CPU_TOPK = (4,), 64
_CPU_QUERIES, _CPU_CONTEXTS = (128, 256, 512, 1024, 2048), (0, 1024)
_GPU_QUERIES = (128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768)
_GPU_CONTEXTS = (0, 1024, 2048, 4096, 8192, 16384)


@dataclass(frozen=True, slots=True)
class Request:
    """One measurement.

    Args:
        dims: the layer; its ``heads`` are replaced by the grid's.
        refine: measure between cells to find crossings, and fit thresholds (``calibrate``).
        engine, device, dtype: ``auto`` takes what fits the machine.
        budget_s: no cell is begun after so many seconds.
        sdpa: compare with torch's own attention, too.
    """

    dims: MLADims
    grid: Grid
    refine: bool
    engine: str = "auto"
    device: str = "auto"
    dtype: str = "auto"
    pattern: str = "random"
    budget_s: float = 120.0
    sdpa: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """One line of what a measurement tells.

    ``kind``: stage (what is done now, ``done`` of ``of``; 0 of 0 where that is not known), device, ceilings,
    cell, sdpa, calibration or error.
    """

    kind: str
    content: dict[str, Any] = field(default_factory=dict)


def usual_grid(dims: MLADims, *, slow: bool) -> Grid:
    """What is measured where nothing else is asked for. ``slow``: on a CPU."""
    if slow:
        return Grid(_CPU_HEADS, _CPU_QUERIES, _CPU_CONTEXTS)
    heads = tuple(dims.total_heads // size for size in (1, 2, 4, 8) if not dims.total_heads % size)
    return Grid(heads, _GPU_QUERIES, _GPU_CONTEXTS)


def usual_topk(dims: MLADims, *, slow: bool) -> int | None:
    """The top-k to measure with; None where the model has no indexer and nothing is asked for."""
    return _CPU_TOPK if slow else dims.topk


def dump(request: Request) -> str:
    return json.dumps(asdict(request))


def load(text: str) -> Request:
    data = json.loads(text)
    grid = Grid(**{name: tuple(values) for name, values in data.pop("grid").items()})
    return Request(dims=MLADims(**data.pop("dims")), grid=grid, **data)


def report_of(line: str) -> Report:
    """A line of the measuring process.

    Raises:
        MLAError: it is no line of ours.
    """
    try:
        data = json.loads(line)
        return Report(str(data.pop("kind")), data)
    except (ValueError, KeyError, AttributeError, TypeError):
        raise MLAError(f"the measuring process wrote {line[:80]!r}") from None
