"""CPU and memory of this machine, and of one server's processes."""

from collections.abc import Sequence

import psutil

from specpanel.core.monitor.frame import HostSample


class HostReader:
    """Reads shares since its last call; the first call has no CPU shares to give."""

    def __init__(self) -> None:
        self._processes: dict[int, psutil.Process] = {}
        psutil.cpu_percent()
        self._first = True

    def read(self, server_pids: Sequence[int] = ()) -> HostSample:
        """One sample; takes a few milliseconds. Processes that are gone or not ours are left out."""
        memory = psutil.virtual_memory()
        total = psutil.cpu_percent()
        server_cpu, server_memory = self._server(server_pids)
        sample = HostSample(
            cpu_percent=None if self._first else total,
            cores=psutil.cpu_count(),
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
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
