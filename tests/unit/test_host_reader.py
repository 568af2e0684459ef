"""The host: shares and bytes of this machine and of real child processes."""

import subprocess
import sys
import time

from specpanel.core.devices.host import HostReader

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
