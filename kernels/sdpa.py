"""Portable masked MHA beside torch's own attention with the same boolean mask, on this CPU, in one run."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from specpanel.kernels import portable
from specpanel.kernels.dims import MLADims
from specpanel.kernels.problem import Problem, random_problem

_FEWEST_ROUNDS = 3

Told = Callable[[int, int], None]
"""Is told how many of how many rounds are done."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Median milliseconds of ours and torch's, which took turns; ``ratio``: the median of their quotients."""

    ours_ms: float
    theirs_ms: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Rounds:
    """Both with so many threads: elapsed time, and processor time of all threads.

    Where others keep the processors busy, elapsed time tells as much of them as of what is measured.
    """

    threads: int
    rounds: int
    elapsed: Pair
    processor: Pair


@dataclass(frozen=True, slots=True)
class AgainstSDPA:
    """The comparison. Memory is the growth of the process's peak while each runs, None where not told."""

    heads: int
    tokens: int
    topk: int
    by_threads: tuple[Rounds, ...]
    ours_peak_bytes: int | None
    theirs_peak_bytes: int | None

    @property
    def memory_ratio(self) -> float | None:
        if self.ours_peak_bytes is None or not self.theirs_peak_bytes:
            return None
        return self.ours_peak_bytes / self.theirs_peak_bytes


def against_sdpa(
    *,
    heads: int = 8,
    tokens: int = 2048,
    topk: int = 512,
    threads: tuple[int, ...] = (1,),
    rounds: int = 7,
    limit_s: float = 30.0,
    told: Told = lambda done, of: None,
) -> AgainstSDPA:
    """Compare attention over the same decompressed keys and values in float32 on the CPU.

    Ours gets ids and builds its mask while it runs; torch gets the finished mask. Each round runs both, the
    one that is first in one round is second in the next, and the round before the first is not counted.
    After ``limit_s`` with one number of threads it stops at three rounds.
    """
    ours, theirs = _contestants(heads, tokens, topk)
    before = torch.get_num_threads()
    found = []
    try:
        for number, count in enumerate(threads):
            torch.set_num_threads(count)
            done = number * rounds

            def advance(round_: int, done: int = done) -> None:
                told(done + round_, len(threads) * rounds)

            found.append(_rounds(ours, theirs, count, rounds, limit_s, advance))
        torch.set_num_threads(1)  # threads would bring stacks and arenas of their own
        peaks = peak_bytes(ours), peak_bytes(theirs)
    finally:
        torch.set_num_threads(before)
    return AgainstSDPA(heads, tokens, topk, tuple(found), *peaks)


def peak_bytes(call: Callable[[], object]) -> int | None:
    """How far the process's resident memory rises above what it is now while ``call`` runs; Linux only."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        before = _status_bytes("VmRSS")
        call()
        return max(0, _status_bytes("VmHWM") - before)
    except (OSError, ValueError):
        return None


def _contestants(
    heads: int, tokens: int, topk: int
) -> tuple[Callable[[], object], Callable[[], object]]:
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

    return ours, theirs


def _rounds(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    threads: int,
    rounds: int,
    limit_s: float,
    advance: Callable[[int], None],
) -> Rounds:
    elapsed: list[tuple[float, float]] = []
    processor: list[tuple[float, float]] = []
    end = time.perf_counter() + limit_s
    for round_ in range(rounds + 1):
        took: dict[Callable[[], object], tuple[float, float]] = {}
        for call in (ours, theirs) if round_ % 2 else (theirs, ours):
            begin, begin_cpu = time.perf_counter(), time.process_time()
            call()
            spent = time.process_time() - begin_cpu
            took[call] = ((time.perf_counter() - begin) * 1e3, spent * 1e3)
        if round_:
            elapsed.append((took[ours][0], took[theirs][0]))
            processor.append((took[ours][1], took[theirs][1]))
            advance(round_)
        if len(elapsed) >= _FEWEST_ROUNDS and time.perf_counter() > end:
            break
    return Rounds(threads, len(elapsed), _pair(elapsed), _pair(processor))


def _pair(times: list[tuple[float, float]]) -> Pair:
    return Pair(
        statistics.median(ours for ours, _ in times),
        statistics.median(theirs for _, theirs in times),
        statistics.median(ours / theirs for ours, theirs in times),
    )


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
