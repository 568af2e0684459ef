"""Which processes belong to a server: told by session, start time and a mark in the environment.

A pid alone says nothing, since pids are used again. A server's leader is the process with the recorded
pid *and* start mark. Its members are the processes of the session that the leader opened, and any process
that inherited the server's id through the environment (a worker may open a session of its own).
"""

import os
from pathlib import Path

import psutil

ID_VARIABLE = "SPECPANEL_SERVER_ID"


def start_mark(pid: int) -> str | None:
    """A text that no other process, before or after, has together with this pid; None: no such process.

    On Linux the kernel's start tick and the boot's id, which neither a clock change nor a reboot can
    confuse; elsewhere the creation time.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _creation_mark(pid)
    except (ProcessLookupError, PermissionError):
        return None
    # The command in parentheses may hold spaces and parentheses: fields count from the last ")".
    ticks = stat.rpartition(b")")[2].split()[19].decode("ascii")
    return f"{boot}/{ticks}"


def _creation_mark(pid: int) -> str | None:
    try:
        return f"created/{psutil.Process(pid).create_time():.2f}"
    except psutil.Error:
        return None


def leader_lives(pid: int | None, mark: str | None) -> bool:
    """Whether the process with this pid is the one that was started, and not yet dead."""
    return pid is not None and mark is not None and start_mark(pid) == mark and not _is_zombie(pid)


def pid_was_reused(pid: int | None, mark: str | None) -> bool:
    """Whether another process now has this pid."""
    if pid is None or mark is None:
        return False
    now = start_mark(pid)
    return now is not None and now != mark


def members(server_id: str, pid: int | None, mark: str | None) -> list[int]:
    """Pids of the server's living processes, the leader first. Zombies count as gone.

    Reads the environment of every process of this user: use ``session_members`` where a wait polls.
    """
    found = set(session_members(pid, mark))
    own = os.getpid()
    found.update(p for p in psutil.pids() if p not in found and p != own and _carries(p, server_id))
    return sorted(found, key=lambda member: (member != pid, member))


def session_members(pid: int | None, mark: str | None) -> list[int]:
    """The living processes of the session that the leader opened: one system call a process."""
    if pid is None or mark is None or pid_was_reused(pid, mark):
        return []  # without a mark, nothing tells the session from a stranger's
    own = os.getpid()
    in_session = (p for p in psutil.pids() if p != own and _session(p) == pid)
    return sorted((p for p in in_session if not _is_zombie(p)), key=lambda p: (p != pid, p))


def listens(pid: int, port: int) -> bool:
    """Whether the process accepts connections at a TCP port of that number."""
    try:
        found = psutil.Process(pid).net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return False
    return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in found)


def find_by_id(server_id: str) -> int | None:
    """The oldest living process that carries the id: for a state file that never learnt its pid."""
    own = os.getpid()
    carriers = [pid for pid in psutil.pids() if pid != own and _carries(pid, server_id)]
    leaders = [pid for pid in carriers if _session(pid) == pid]
    return min(leaders or carriers, default=None)


def _is_zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _carries(pid: int, server_id: str) -> bool:
    try:
        return bool(psutil.Process(pid).environ().get(ID_VARIABLE) == server_id)
    except (psutil.Error, OSError):
        return False
