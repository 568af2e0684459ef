"""CPU, memory, swap and disk of this machine, and what one server's processes take of them."""

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import psutil

from specpanel.core.monitor.frame import HostSample

_SLOW_EVERY_S = 10.0  # between looks at what hardly changes
_MEMORY = Path("/proc/meminfo")
_MEMORY_NAMES = (b"MemTotal", b"MemAvailable", b"SwapTotal", b"SwapFree")
_MEMORY_LINE = re.compile(
    rb"^(Mem(?:Total|Available)|Swap(?:Total|Free)):\s+(\d+) kB", re.MULTILINE
)
_FRESH_S = 0.5  # who asks again within this gets what was read


class _Machine:
    """This machine, read once for all who ask: psutil's CPU share is since the last call of anybody."""

    def __init__(self) -> None:
        psutil.cpu_percent()
        self._newest: HostSample | None = None
        self._read_s = -1e9
        self._disk: tuple[int | None, int | None] = (None, None)  # free, total
        self._cores: int | None = None
        self._slow_read_s = -1e9

    def read(self) -> HostSample:
        """The machine without any server's processes."""
        now_s = time.monotonic()
        if self._newest is not None and now_s - self._read_s < _FRESH_S:
            return self._newest
        if now_s - self._slow_read_s >= _SLOW_EVERY_S:
            self._slow_read_s = now_s
            self._disk, self._cores = _disk_sizes(), psutil.cpu_count()
        memory = read_memory()
        self._newest = HostSample(
            cpu_percent=psutil.cpu_percent(),
            cores=self._cores,
            memory_used_bytes=memory.used,
            memory_total_bytes=memory.total,
            server_cpu_percent=None,
            server_memory_bytes=None,
            swap_used_bytes=memory.swap_used,
            swap_total_bytes=memory.swap_total,
            disk_free_bytes=self._disk[0],
            disk_total_bytes=self._disk[1],
        )
        self._read_s = now_s
        return self._newest


def _disk_sizes() -> tuple[int | None, int | None]:
    """Free and total bytes of the disk that holds the home folder."""
    try:
        usage = psutil.disk_usage(str(Path.home()))
    except OSError:
        return None, None
    return usage.free, usage.total


class Memory(NamedTuple):
    """Bytes of this machine's memory and swap."""

    used: int
    total: int
    swap_used: int
    swap_total: int


def read_memory(path: Path = _MEMORY) -> Memory:
    """One look at the kernel's own table; psutil, where there is none, reads two more for the same."""
    try:
        with path.open("rb", buffering=0) as file:
            told = dict(_MEMORY_LINE.findall(file.read(1 << 14)))
        total, available, swap, swap_free = (int(told[name]) * 1024 for name in _MEMORY_NAMES)
    except (OSError, KeyError):
        memory, swapped = psutil.virtual_memory(), psutil.swap_memory()
        used = memory.total - memory.available
        return Memory(used, memory.total, swapped.used, swapped.total)
    return Memory(total - available, total, swap - swap_free, swap)


_machine = cache(_Machine)


class HostReader:
    """Reads shares since its last call; the first call has no CPU shares to give."""

    def __init__(self) -> None:
        self._processes: dict[int, psutil.Process] = {}
        self._first = True
        _machine()

    def read(self, server_pids: Sequence[int] = ()) -> HostSample:
        """One sample; takes a few milliseconds. Processes that are gone or not ours are left out."""
        machine = _machine().read()
        server_cpu, server_memory = self._server(server_pids)
        sample = replace(
            machine,
            cpu_percent=None if self._first else machine.cpu_percent,
            server_cpu_percent=server_cpu,
            server_memory_bytes=server_memory,
        )
        self._first = False
        return sample

    def _server(self, pids: Sequence[int]) -> tuple[float | None, int | None]:
        self._processes = {pid: process for pid, process in self._processes.items() if pid in pids}
        cpu: list[float] = []
        resident: list[int] = []
        for pid in pids:
            try:
                known = pid in self._processes
                process = self._processes.setdefault(pid, psutil.Process(pid))
                share = process.cpu_percent()
                resident.append(process.memory_info().rss)
                if known:
                    cpu.append(share)
            except psutil.Error:
                self._processes.pop(pid, None)
        return (sum(cpu) if cpu else None, sum(resident) if resident else None)
