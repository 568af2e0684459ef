"""The host: shares and bytes of this machine and of real child processes."""

import subprocess
import sys
import time
from pathlib import Path

import psutil

from specpanel.core.devices.host import HostReader, read_memory

BUSY = "import sys\nblock = bytearray(64 << 20)\nprint('up', flush=True)\nwhile True: pass"


def test_the_first_sample_has_no_cpu_shares_to_give() -> None:
    sample = HostReader().read()
    assert sample.cpu_percent is None
    assert sample.cores
    assert sample.memory_used_bytes is not None
    assert sample.memory_total_bytes is not None
    assert 0 < sample.memory_used_bytes < sample.memory_total_bytes
    assert (sample.server_cpu_percent, sample.server_memory_bytes) == (None, None)


def test_a_busy_process_is_seen_until_it_is_gone() -> None:
    reader = HostReader()
    child = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        first = reader.read([child.pid])
        assert first.server_cpu_percent is None
        assert first.server_memory_bytes is not None
        assert first.server_memory_bytes > 64 << 20
        deadline = time.monotonic() + 20
        while not (share := reader.read([child.pid]).server_cpu_percent):
            assert time.monotonic() < deadline
        assert share > 0
    finally:
        child.kill()
        child.communicate()
    after = reader.read([child.pid])
    assert (after.server_cpu_percent, after.server_memory_bytes) == (None, None)
    second = reader.read()
    assert second.cpu_percent is not None
    assert 0 <= second.cpu_percent <= 100


def test_the_kernels_table_of_memory_is_read_and_where_there_is_none_psutil_tells(
    tmp_path: Path,
) -> None:
    table = tmp_path / "meminfo"
    table.write_text(
        "MemTotal:       1000 kB\nMemFree:  10 kB\nMemAvailable:    400 kB\nSwapCached:  7 kB\n"
        "SwapTotal:       50 kB\nSwapFree:        20 kB\n"
    )
    assert read_memory(table) == (600 * 1024, 1000 * 1024, 30 * 1024, 50 * 1024)
    for text in ("MemTotal: 1000 kB\n", "", "MemTotal: many kB\nMemAvailable: few kB\n"):
        table.write_text(text)
        assert read_memory(table).total == psutil.virtual_memory().total
    assert read_memory(tmp_path / "absent").total == psutil.virtual_memory().total
