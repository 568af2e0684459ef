"""Times whole paths on this device: projection or absorption, mask or gather, attention and merge together.

Engines: ``portable`` (plain torch, any device) and ``triton`` (our kernels, GPUs). What is measured is only
ever used for the engine that was measured.
"""

import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from specpanel.kernels import portable
from specpanel.kernels.calibrate import Key
from specpanel.kernels.cells import Cell, Timing, cell_of, settled, timing_of
from specpanel.kernels.dims import MLADims
from specpanel.kernels.errors import MLAError
from specpanel.kernels.problem import Pattern, Problem, random_problem
from specpanel.kernels.vllm_rules import Tier

Engine = Literal["portable", "triton"]
Path_ = Callable[[Problem], object]
DTYPES: Mapping[str, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


@dataclass(frozen=True, slots=True)
class Repeats:
    """How often to run: ``least`` times, then until it is settled; at most ``most``, and ``limit_s``.

    ``noise``: the relative standard error at which the median of a single call is known well enough.
    """

    warmups: int = 1
    least: int = 5
    most: int = 40
    noise: float = 0.02
    limit_s: float = 5.0


def time_call(
    call: Callable[[], object],
    device: str,
    repeats: Repeats,
    clock: Callable[[], float] = time.perf_counter,
) -> Timing:
    """Median time of ``call``; on a GPU between events, so that launches in flight are counted whole.

    It is repeated until the median's standard error is ``repeats.noise`` or less. ``clock`` (seconds) is
    used on the CPU.
    """
    for _ in range(repeats.warmups):
        call()
    took: list[float] = []
    begin = time.perf_counter()
    while True:
        took.append(once_ms(call, device, clock))
        found = timing_of(took)
        late = time.perf_counter() - begin > repeats.limit_s
        sure = len(took) >= repeats.least and found.error <= repeats.noise
        if len(took) >= repeats.most or sure or (late and len(took) >= 2):
            return found


def measure_cell(
    dims: MLADims,
    query: int,
    context: int,
    *,
    engine: Engine,
    device: str,
    dtype: str,
    pattern: Pattern = "random",
    repeats: Repeats | None = None,
    turns: list[Mapping[Tier, float]] | None = None,
) -> Cell:
    """Time every path that gives the exact answer for one request of ``query`` tokens after ``context``.

    The paths take turns, forwards and backwards, until which is faster is settled (``cells.settled``).

    Args:
        turns: milliseconds of the step's earlier turns; the new ones are added, and all of them count.
    """
    problem = random_problem(
        dims, (query,), (context,), pattern=pattern, dtype=DTYPES[dtype], device=device
    )
    exact = dims.topk is None or query + context <= dims.topk
    timed = {
        tier: partial(path, problem)
        for tier, path in paths(engine).items()
        if exact or tier != "dense_mha"
    }
    often = repeats or Repeats()
    for _ in range(often.warmups):
        for call in timed.values():
            call()
    turns, clock = [] if turns is None else turns, turn_clock()
    before, begin = len(turns), time.perf_counter()
    while True:
        order = list(timed.items())[:: -1 if len(turns) % 2 else 1]
        turns.append({tier: once_ms(call, device, clock) for tier, call in order})
        cell = cell_of(dims.heads, query, context, turns)
        late = time.perf_counter() - begin > often.limit_s
        new = len(turns) - before
        sure = new >= often.least and settled(cell)
        if new >= often.most or sure or (late and new >= 2):
            return cell


def paths(engine: Engine) -> Mapping[Tier, Path_]:
    """The three paths of an engine.

    Raises:
        MLAError: Triton is not installed.
    """
    if engine == "portable":
        return {
            "dense_mha": portable.dense,
            "masked_mha": portable.masked,
            "sparse_mqa": portable.sparse,
        }
    try:
        from specpanel.kernels import triton_mha, triton_mqa
    except ImportError as error:
        raise MLAError(
            f"our Triton kernels cannot be used here: {error}",
            'pip install "specpanel[kernels]", or --engine portable.',
        ) from None
    return {
        "dense_mha": triton_mha.dense,
        "masked_mha": triton_mha.masked,
        "sparse_mqa": triton_mqa.sparse,
    }


def key_of(dims: MLADims, engine: Engine, device: str, dtype: str, pattern: Pattern) -> Key:
    """What a calibration here holds for."""
    if dims.topk is None:
        raise MLAError("this geometry has no indexer: there is nothing to calibrate")
    name, units = device_name(device)
    return Key(
        device=name,
        compute_units=units,
        engine=engine,
        torch=str(torch.__version__),
        triton=_triton_version() if engine == "triton" else None,
        dtype=dtype,
        pattern=pattern,
        nope=dims.nope,
        rope=dims.rope,
        v=dims.v,
        lora=dims.lora,
        topk=dims.topk,
    )


def device_name(device: str) -> tuple[str, int]:
    """The device and its compute units: multiprocessors of a GPU, threads of a CPU."""
    if device == "cpu":
        return _cpu_name(), torch.get_num_threads()
    properties = torch.cuda.get_device_properties(torch.device(device))
    return str(properties.name), int(properties.multi_processor_count)


def best_device() -> str:
    """``cuda`` (NVIDIA or ROCm) where torch sees a GPU, else ``cpu``."""
    return "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What this device reaches at best in torch: a large matrix product, and copying memory."""

    gemm_flop_per_s: float
    copy_byte_per_s: float


def ceilings(device: str, dtype: str, repeats: Repeats | None = None) -> Ceilings:
    """Measure the ceilings that the paths are compared with: 1,024 wide on a CPU, 8,192 on a GPU."""
    size, often = (1024, 1 << 25) if device == "cpu" else (8192, 1 << 29)
    left = torch.randn(size, size, dtype=DTYPES[dtype], device=device)
    right = torch.randn(size, size, dtype=DTYPES[dtype], device=device)
    gemm = time_call(lambda: left @ right, device, repeats or Repeats())
    source = torch.zeros(often, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    copied = time_call(lambda: target.copy_(source), device, repeats or Repeats())
    return Ceilings(2.0 * size**3 / gemm.median_ms * 1e3, 8.0 * often / copied.median_ms * 1e3)


def turn_clock() -> Callable[[], float]:
    """The clock, in seconds, that paths on a CPU are compared by.

    With one thread it is the time that this thread had a processor: the same as what elapses where nothing
    else runs, and not stretched by what does. Of several threads what elapses is what counts.
    """
    return time.thread_time if torch.get_num_threads() == 1 else time.perf_counter


def once_ms(call: Callable[[], object], device: str, clock: Callable[[], float]) -> float:
    """Milliseconds of one call."""
    if device == "cpu":
        begin = clock()
        call()
        return (clock() - begin) * 1e3
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _triton_version() -> str | None:
    try:
        import triton
    except ImportError:
        return None
    return str(triton.__version__)
