"""Ports for the servers of tests, of which no two runs of the suite on one machine ask for the same.

A process takes a block of ports for as long as it lives, by a lock on a file. The blocks lie below the ports
that the system gives to outgoing connections, so that nothing else takes one between the question and the
start of a server.
"""

import fcntl
import functools
import itertools
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_FIRST, _BLOCK, _BLOCKS = 20_000, 100, 100
# Found out when this is imported: a test may give itself another temporary folder.
_FOLDER = Path(tempfile.gettempdir()) / f"specpanel-test-ports-{os.getuid()}"


def free_port() -> int:
    """The next port of this process's block that nobody listens on, at the loopback address."""
    ports = _own_ports()
    for port in itertools.islice(ports, _BLOCK):
        if _is_free(port):
            return port
    pytest.fail(f"nobody of {_BLOCK} ports is free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@functools.cache
def _own_ports() -> Iterator[int]:
    _FOLDER.mkdir(mode=0o700, exist_ok=True)
    for block in random.sample(range(_BLOCKS), _BLOCKS):
        lock = os.open(_FOLDER / str(block), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # kept until this process ends
        except OSError:
            os.close(lock)
            continue
        first = _FIRST + block * _BLOCK
        return itertools.cycle(range(first, first + _BLOCK))
    pytest.fail(f"all blocks of ports are taken: {_FOLDER}")
