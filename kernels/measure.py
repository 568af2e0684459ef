"""Times whole paths on this device: projection or absorption, mask or gather, attention and merge together.

Engines: ``portable`` (plain torch, any device) and ``triton`` (our kernels, GPUs). What is measured is only
ever used for the engine that was measured.
"""

import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from specpanel.kernels import portable
from specpanel.kernels.calibrate import Cell, Key, Timing
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
    """How often to run: ``least`` times, then until the median is known to ``noise``; at most ``most``."""

    warmups: int = 1
    least: int = 3
    most: int = 20
    noise: float = 0.02
    limit_s: float = 5.0


def time_call(
    call: Callable[[], object],
    device: str,
    repeats: Repeats,
    clock: Callable[[], float] = time.perf_counter,
) -> Timing:
    """Median time of ``call``; on a GPU between events, so that launches in flight are counted whole.

    ``clock`` (seconds) is used on the CPU.
    """
    for _ in range(repeats.warmups):
        call()
    took: list[float] = []
    begin = time.perf_counter()
    while True:
        took.append(_once_ms(call, device, clock))
        median = statistics.median(took)
        mad = statistics.median(abs(value - median) for value in took)
        late = time.perf_counter() - begin > repeats.limit_s
        sure = len(took) >= repeats.least and mad / median <= repeats.noise
        if len(took) >= repeats.most or sure or (late and len(took) >= 2):
            return Timing(median, mad, len(took))


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
) -> Cell:
    """Time every path that gives the exact answer for one request of ``query`` tokens after ``context``."""
    problem = random_problem(
        dims, (query,), (context,), pattern=pattern, dtype=DTYPES[dtype], device=device
    )
    timings: dict[Tier, Timing] = {}
    for tier, path in paths(engine).items():
        if tier == "dense_mha" and dims.topk is not None and query + context > dims.topk:
            continue
        timings[tier] = time_call(lambda path=path: path(problem), device, repeats or Repeats())  # type: ignore[misc]
    return Cell(dims.heads, query, context, timings)


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


@dataclass(frozen=True, slots=True)
class AgainstSDPA:
    """Portable masked MHA beside torch's own attention with the same boolean mask, in one run.

    Times are CPU time of one thread, which other work on the machine hardly distorts. Memory is the growth of
    the process's peak while each runs.
    """

    heads: int
    tokens: int
    topk: int
    ours: Timing
    theirs: Timing
    ours_peak_bytes: int | None
    theirs_peak_bytes: int | None

    @property
    def time_ratio(self) -> float:
        return self.ours.median_ms / self.theirs.median_ms

    @property
    def memory_ratio(self) -> float | None:
        if self.ours_peak_bytes is None or not self.theirs_peak_bytes:
            return None
        return self.ours_peak_bytes / self.theirs_peak_bytes


def against_sdpa(
    *, heads: int = 8, tokens: int = 2048, topk: int = 512, repeats: Repeats | None = None
) -> AgainstSDPA:
    """Compare attention over the same decompressed keys and values in float32 on the CPU.

    Ours gets ids and builds its mask while it runs; SDPA gets the finished mask.
    """
    dims = MLADims(heads, heads, 128, 64, 128, 512, topk=topk)
    problem = random_problem(dims, (tokens,), (0,), dtype=torch.float32)
    k_nope = torch.einsum("kl,lhp->hpk", problem.latent, problem.w_uk).contiguous()
    v = torch.einsum("kl,lhv->hkv", problem.latent, problem.w_uv).contiguous()
    k_pe = problem.k_pe.T.contiguous()
    key = torch.cat([k_nope, k_pe[None].expand(heads, -1, -1)], dim=1).transpose(1, 2)
    key, query = key.contiguous()[None], problem.q.transpose(0, 1).contiguous()[None]
    mask = _boolean_mask(problem)

    def ours() -> object:
        return portable.attend(problem.q, k_nope, k_pe, v, problem.selected(), scale=dims.scale)

    def theirs() -> object:
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, v[None], attn_mask=mask, scale=dims.scale
        )

    often = repeats or Repeats(least=3, most=5, limit_s=20.0)
    timings: dict[Callable[[], object], list[Timing]] = {ours: [], theirs: []}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for call in (ours, theirs, theirs, ours):
            timings[call].append(time_call(call, "cpu", often, time.thread_time))
    finally:
        torch.set_num_threads(threads)
    return AgainstSDPA(
        heads,
        tokens,
        topk,
        min(timings[ours], key=lambda timing: timing.median_ms),
        min(timings[theirs], key=lambda timing: timing.median_ms),
        peak_bytes(ours),
        peak_bytes(theirs),
    )


def peak_bytes(call: Callable[[], object]) -> int | None:
    """How far the process's resident memory rises above what it is now while ``call`` runs; Linux only."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        before = _status_bytes("VmRSS")
        call()
        return max(0, _status_bytes("VmHWM") - before)
    except (OSError, ValueError):
        return None


def _status_bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(name)


def _boolean_mask(problem: Problem) -> torch.Tensor:
    tokens, topk = problem.q.shape[0], problem.selected().long()
    mask = torch.zeros(tokens, tokens + 1, dtype=torch.bool)
    mask.scatter_(1, torch.where(topk < 0, tokens, topk), True)
    return mask[:, :tokens].tril().contiguous()


def _once_ms(call: Callable[[], object], device: str, clock: Callable[[], float]) -> float:
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
