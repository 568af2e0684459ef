"""The measuring process: ``python -m specpanel.kernels``, a request as a line, reports as lines.

It is a process of its own so that torch, a GPU's driver or a crash in a kernel never enter the one that asks.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from importlib.util import find_spec
from typing import Any

from specpanel.kernels.calibrate import Calibration, calibrate, dump, fitted
from specpanel.kernels.cells import Cell
from specpanel.kernels.crossings import Place
from specpanel.kernels.errors import MLAError
from specpanel.kernels.request import Request, load
from specpanel.kernels.vllm_rules import Tier


def main() -> int:
    """Measure what standard input asks for. 0: done; 1: it could not be, and an ``error`` line says why."""
    try:
        tell("stage", {"text": "importing torch", "done": 0, "of": 0})
        if find_spec("torch") is None:
            raise MLAError(
                f"{sys.executable} has no torch, which measures",
                'pip install "specpanel[kernels]", or name another interpreter with --python.',
            )
        request = load(sys.stdin.readline())
        threading.Thread(target=_end_with_whoever_asked, daemon=True).start()
        run(request, tell)
    except MLAError as error:
        tell("error", {"message": error.message, "fix": error.fix})
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _end_with_whoever_asked() -> None:
    """Nobody waits for the result any more once standard input is closed."""
    sys.stdin.read()
    os._exit(130)


def tell(kind: str, content: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"kind": kind, **content}) + "\n")
    sys.stdout.flush()


def run(request: Request, report: Callable[[str, dict[str, Any]], None]) -> None:
    """Measure and report every cell as it comes; at the end what follows from them."""
    # Threads that wait for each other sleep: where others use the cores, spinning only keeps them from it.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
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
    repeats = measure.Repeats(limit_s=8.0) if device == "cpu" else measure.Repeats(5, 20, 100)

    planned = len(request.grid.cells())
    turns: dict[Place, list[Mapping[Tier, float]]] = {}

    def cell(heads: int, query: int, context: int) -> Cell:
        place, done = (heads, query, context), len(turns)
        what = "measuring" if done < planned else "refining a crossing"
        if place in turns:
            what = "still in doubt, measuring again"
        shown = f"{what}: {heads} heads, {query} new tokens after {context}"
        report("stage", {"text": shown, "done": done, "of": max(planned, done)})
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
            turns=turns.setdefault(place, []),
        )
        report("cell", asdict(found))
        return found

    end = time.monotonic() + request.budget_s
    clock = iter(lambda: time.monotonic() < end, None)
    if not request.refine:
        report("stage", {"text": "measuring what the device reaches", "done": 0, "of": 0})
        report("ceilings", asdict(measure.ceilings(device, dtype, measure.Repeats(limit_s=1.0))))
    if request.refine:
        found = calibrate(key, request.grid, cell, go_on=lambda: next(clock))
    else:
        found = _measured(request, cell, clock, key)
    if request.sdpa and device == "cpu":
        _compare(report)
    report("calibration", {"text": dump(found)})


def _compare(report: Callable[[str, dict[str, Any]], None]) -> None:
    import torch

    from specpanel.kernels.sdpa import against_sdpa

    text = "beside torch's attention: rounds"
    report("stage", {"text": text, "done": 0, "of": 0})
    found = against_sdpa(
        threads=tuple(sorted({1, torch.get_num_threads()})),
        told=lambda done, of: report("stage", {"text": text, "done": done, "of": of}),
    )
    report("sdpa", {**asdict(found), "memory_ratio": found.memory_ratio})


def _measured(
    request: Request, cell: Callable[[int, int, int], Cell], clock: Iterator[bool], key: Any
) -> Calibration:
    cells = [cell(*place) for place in request.grid.cells() if next(clock)]
    return fitted(key, cells, complete=len(cells) == len(request.grid.cells()))


if __name__ == "__main__":
    sys.exit(main())
