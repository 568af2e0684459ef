"""The measuring process: ``python -m specpanel.kernels``, a request on its input, reports on its output.

It is a process of its own so that torch, a GPU's driver or a crash in a kernel never enter the one that asks.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from importlib.util import find_spec
from typing import Any

from specpanel.kernels.calibrate import Calibration, Cell, calibrate, dump, fitted
from specpanel.kernels.errors import MLAError
from specpanel.kernels.request import Request, load


def main() -> int:
    """Measure what standard input asks for. 0: done; 1: it could not be, and an ``error`` line says why."""
    try:
        if find_spec("torch") is None:
            raise MLAError(
                f"{sys.executable} has no torch, which measures",
                'pip install "specpanel[kernels]", or name another interpreter with --python.',
            )
        run(load(sys.stdin.read()), tell)
    except MLAError as error:
        tell("error", {"message": error.message, "fix": error.fix})
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def tell(kind: str, content: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"kind": kind, **content}) + "\n")
    sys.stdout.flush()


def run(request: Request, report: Callable[[str, dict[str, Any]], None]) -> None:
    """Measure and report every cell as it comes; at the end what follows from them."""
    from specpanel.kernels import measure

    device = measure.best_device() if request.device == "auto" else request.device
    engine: Any = request.engine
    if engine == "auto":
        engine = "portable" if device == "cpu" else "triton"
    dtype = request.dtype
    if dtype == "auto":
        dtype = "float32" if device == "cpu" else "bfloat16"
    pattern: Any = request.pattern
    key = measure.key_of(request.dims, engine, device, dtype, pattern)
    report("device", asdict(key))
    repeats = measure.Repeats(limit_s=2.0) if device == "cpu" else measure.Repeats(5, 20, 60)

    def cell(heads: int, query: int, context: int) -> Cell:
        dims = replace(request.dims, heads=heads)
        found = measure.measure_cell(
            dims,
            query,
            context,
            engine=engine,
            device=device,
            dtype=dtype,
            pattern=pattern,
            repeats=repeats,
        )
        report("cell", asdict(found))
        return found

    end = time.monotonic() + request.budget_s
    clock = iter(lambda: time.monotonic() < end, None)
    if not request.refine:
        report("ceilings", asdict(measure.ceilings(device, dtype, repeats)))
    if request.sdpa and device == "cpu":
        compared = measure.against_sdpa()
        ratios = {"time_ratio": compared.time_ratio, "memory_ratio": compared.memory_ratio}
        report("sdpa", {**asdict(compared), **ratios})
    if request.refine:
        found = calibrate(key, request.grid, cell, go_on=lambda: next(clock))
    else:
        found = _measured(request, cell, clock, key)
    report("calibration", {"text": dump(found)})


def _measured(
    request: Request, cell: Callable[[int, int, int], Cell], clock: Iterator[bool], key: Any
) -> Calibration:
    cells = [cell(*place) for place in request.grid.cells() if next(clock)]
    return fitted(key, cells, complete=len(cells) == len(request.grid.cells()))


if __name__ == "__main__":
    sys.exit(main())
