"""CPU, memory, swap and disk of this machine, and what one server's processes take of them."""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import psutil

from specpanel.core.monitor.frame import HostSample

_DISK_EVERY_S = 10.0
_FRESH_S = 0.5  # who asks again within this gets what was read


class _Machine:
    """This machine, read once for all who ask: psutil's CPU share is since the last call of anybody."""

    def __init__(self) -> None:
        psutil.cpu_percent()
        self._newest: HostSample | None = None
        self._read_s = -1e9
        self._disk: tuple[int | None, int | None] = (None, None)  # free, total
        self._disk_read_s = -1e9

    def read(self) -> HostSample:
        """The machine without any server's processes."""
        now_s = time.monotonic()
        if self._newest is not None and now_s - self._read_s < _FRESH_S:
            return self._newest
        memory, swap = psutil.virtual_memory(), psutil.swap_memory()
        disk_free, disk_total = self._disk_sizes()
        self._newest = HostSample(
            cpu_percent=psutil.cpu_percent(),
            cores=psutil.cpu_count(),
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            server_cpu_percent=None,
            server_memory_bytes=None,
            swap_used_bytes=swap.used,
            swap_total_bytes=swap.total,
            disk_free_bytes=disk_free,
            disk_total_bytes=disk_total,
        )
        self._read_s = now_s
        return self._newest

    def _disk_sizes(self) -> tuple[int | None, int | None]:
        now_s = time.monotonic()
        if now_s - self._disk_read_s >= _DISK_EVERY_S:
            self._disk_read_s = now_s
            try:
                usage = psutil.disk_usage(str(Path.home()))
                self._disk = (usage.free, usage.total)
            except OSError:
                self._disk = (None, None)
        return self._disk


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
