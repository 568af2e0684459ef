"""CPU, memory, swap and disk of this machine, and what one server's processes take of them."""

import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from specpanel.core.monitor.frame import HostSample

_DISK_EVERY_S = 10.0


class HostReader:
    """Reads shares since its last call; the first call has no CPU shares to give."""

    def __init__(self) -> None:
        self._processes: dict[int, psutil.Process] = {}
        psutil.cpu_percent()
        self._first = True
        self._disk: tuple[int | None, int | None] = (None, None)  # free, total
        self._disk_read_s = -1e9

    def read(self, server_pids: Sequence[int] = ()) -> HostSample:
        """One sample; takes a few milliseconds. Processes that are gone or not ours are left out."""
        memory = psutil.virtual_memory()
        total = psutil.cpu_percent()
        server_cpu, server_memory = self._server(server_pids)
        swap = psutil.swap_memory()
        disk_free, disk_total = self._disk_sizes()
        sample = HostSample(
            cpu_percent=None if self._first else total,
            cores=psutil.cpu_count(),
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            server_cpu_percent=server_cpu,
            server_memory_bytes=server_memory,
            swap_used_bytes=swap.used,
            swap_total_bytes=swap.total,
            disk_free_bytes=disk_free,
            disk_total_bytes=disk_total,
        )
        self._first = False
        return sample

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
