"""What the reader asks of the operating system itself: memory, processes, device nodes.

Everything is below one root folder, which is ``/`` except in tests.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specpanel.core.devices.fields import MAX_32, to_number
from specpanel.core.devices.records import DeviceProcess

_NODES = ("nvidia", "kfd", "dri/", "dxg")
_UNRELIABLE = "process list unreliable: update the vendor's Python package"


@dataclass(frozen=True, slots=True)
class HostMemory:
    """From /proc/meminfo; ``None`` where the file does not say."""

    total_bytes: int | None
    available_bytes: int | None


def host_memory(root: Path) -> HostMemory:
    found: dict[str, int] = {}
    try:
        for line in (root / "proc/meminfo").read_text(encoding="ascii").splitlines():
            name, _, rest = line.partition(":")
            if name in ("MemTotal", "MemAvailable"):
                found[name] = int(rest.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return HostMemory(found.get("MemTotal"), found.get("MemAvailable"))


def is_wsl(root: Path) -> bool:
    return (root / "dev/dxg").exists()


def pid_limit(root: Path) -> int:
    try:
        return int((root / "proc/sys/kernel/pid_max").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 4_194_304  # the kernel's own upper bound


def real_processes(
    entries: Sequence[tuple[Any, Any]], *, memory_total_bytes: int | None, root: Path
) -> tuple[tuple[DeviceProcess, ...], str | None]:
    """The processes of this namespace among what a vendor's library listed, and what is wrong with the list.

    Args:
        entries: (pid, memory in bytes) as the library gave them.
        memory_total_bytes: of the device; a process with more is a misread structure.
        root: where /proc and /dev are.
    """
    limit = pid_limit(root)
    kept: dict[int, int | None] = {}
    dropped = 0
    for raw_pid, raw_memory in entries:
        pid, memory = to_number(raw_pid), to_number(raw_memory)
        too_much = memory is not None and memory_total_bytes and memory > memory_total_bytes
        not_given = memory is not None and memory >= 2**64 - 2**12  # 2^64-1, as a float
        if not pid or pid >= min(limit, MAX_32) or (too_much and not not_given):
            dropped += 1
            continue
        size = None if memory is None or not_given else int(memory)
        kept[int(pid)] = size if kept.get(int(pid)) is None else kept[int(pid)]
    here = tuple(
        DeviceProcess(pid, _name(pid), memory)
        for pid, memory in sorted(kept.items())
        if _is_here(pid, root)
    )
    if dropped * 2 > len(entries):
        return here, _UNRELIABLE
    elsewhere = len(kept) - len(here)
    return here, f"{elsewhere} in other namespaces" if elsewhere else None


def _name(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _is_here(pid: int, root: Path) -> bool:
    """Whether ``pid`` is a process that we see, and the one that was meant.

    A library in a container may give pids of the host, and one of ours can have the same number: a
    process that holds no device open is not meant. Of another user's process nothing can be told.
    """
    try:
        links = os.listdir(f"/proc/{pid}/fd")
    except PermissionError:
        return True
    except OSError:
        return False
    nodes = tuple(str(root / "dev" / name) for name in _NODES)
    for link in links:
        try:
            if os.readlink(f"/proc/{pid}/fd/{link}").startswith(nodes):
                return True
        except OSError:
            continue
    return False


def unreadable_nodes(root: Path) -> str | None:
    """Which of AMD's device nodes this user may not open, and the group that may; None: none of them."""
    nodes = [root / "dev/kfd", *sorted((root / "dev/dri").glob("renderD*"))]
    for node in nodes:
        if node.exists() and not os.access(node, os.R_OK | os.W_OK):
            return f"this user may not open /{node.relative_to(root)} (group {_group(node)})"
    return None


def _group(node: Path) -> str:
    gid = node.stat().st_gid
    try:
        import grp

        return grp.getgrgid(gid).gr_name
    except (ImportError, KeyError):
        return str(gid)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies, even inside a call that never returns."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes
    import signal

    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
