"""Disks of a few kilobytes, and a process that sees a full one where others do not."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, *, kib: int) -> Iterator[Path]:
    """A tmpfs of that size at ``place`` while it is entered; the test is skipped where none may be made."""
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kib}k,mode=700", "tmpfs", str(place)],
        capture_output=True,
        text=True,
    )
    if made.returncode:
        pytest.skip(f"no small disk can be made here: {made.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def with_full_shared_memory(*command: str, kib: int = 16) -> list[str]:
    """The command as it runs where /dev/shm is full, for it and its children alone.

    Skips the test where a process may have no mounts of its own.
    """
    allowed = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True)
    if allowed.returncode:
        pytest.skip(f"/dev/shm cannot be filled for one process here: {allowed.stderr.strip()}")
    script = (
        f"mount -t tmpfs -o size={kib}k tmpfs /dev/shm && "
        '{ cat /dev/zero >/dev/shm/full 2>/dev/null || true; } && exec "$@"'
    )
    return ["unshare", "--mount", "sh", "-c", script, "sh", *command]
