"""Look at the port, the model folders, memory and disk: the reading that preflight's rules need."""

import errno
import os
import re
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from specpanel.core.checkpoints.config import looks_like_hub_id, read_config
from specpanel.core.checkpoints.tokenizer import tokenizer_digest
from specpanel.core.checkpoints.weights import read_weights
from specpanel.core.engine import identity, registry
from specpanel.core.engine.command import redacted
from specpanel.core.engine.interpreter_facts import InterpreterFacts, Platform
from specpanel.core.errors import ConfigurationError
from specpanel.core.matching.scan import cached_folder, hub_cache
from specpanel.core.preflight.surroundings import (
    DeviceState,
    ModelState,
    PortState,
    Surroundings,
)
from specpanel.core.settings.profile import Profile

PORTS_TRIED = 200


def gather(
    profile: Profile,
    interpreter: InterpreterFacts | None,
    *,
    devices: Sequence[DeviceState] | None = None,
    device_problem: str | None = None,
    disk_folder: Path | None = None,
    inherited: Mapping[str, str] | None = None,
) -> Surroundings:
    """What surrounds a launch of ``profile``. Reads files and the process table; starts nothing.

    Args:
        profile: the launch.
        interpreter: facts of the interpreter that holds vLLM; None where there is none.
        devices: what vLLM will see, in its order; None where that is not known. Not used on a CPU.
        device_problem: why devices cannot be read.
        disk_folder: where logs will be written; the home folder where absent.
        inherited: the environment that vLLM inherits; this process's where absent.
    """
    platform = _platform(profile, interpreter)
    outside = os.environ if inherited is None else inherited
    cache = hub_cache({**outside, **profile.engine.environment})
    drafter = getattr(profile.drafter, "model", None)
    on_cpu = platform == "cpu"
    free = [device.free_bytes for device in devices or () if device.free_bytes is not None]
    return Surroundings(
        interpreter=interpreter,
        platform=platform,
        port=port_state(profile.engine.host, profile.engine.port),
        target=model_state(profile.target.model, cache),
        drafter=model_state(drafter, cache) if isinstance(drafter, str) else None,
        free_memory_bytes=psutil.virtual_memory().available if on_cpu else min(free, default=None),
        free_disk_bytes=_free_disk_bytes(disk_folder or Path.home()),
        devices=None if devices is None or on_cpu else tuple(devices),
        device_problem=None if on_cpu else device_problem,
        cpu_nodes=_memory_nodes() if on_cpu else None,
        cores=psutil.cpu_count() if on_cpu else None,
        amx=on_cpu and _has_amx(),
        variables=_of_vllm(outside),
    )


def model_state(name: str, cache: Path | None = None) -> ModelState:
    """The model that ``name`` stands for: a folder where there is one, else a hub id.

    Of a model of the hub the copy in ``cache`` is read, where there is one; vLLM may fetch a newer one.
    """
    folder = Path(name).expanduser()
    if folder.exists() or not looks_like_hub_id(name):
        return _in_folder(name, folder)
    copy = None if cache is None else cached_folder(cache, name)
    found = ModelState(name, "hub") if copy is None else _in_folder(name, copy)
    return ModelState(name, "hub") if found.config is None else replace(found, kind="hub")


def _in_folder(name: str, folder: Path) -> ModelState:
    try:
        config = read_config(folder)
    except ConfigurationError as error:
        return ModelState(name, "unusable", problem=error.message, fix=error.fix)
    verifier = config.speculators.verifier if config.speculators else None
    return ModelState(
        name,
        "folder",
        config,
        read_weights(folder),
        tokenizer_digest(folder),
        None if verifier is None else _is_here(verifier),
    )


def _is_here(model: str) -> bool | None:
    """Whether a model that a checkpoint names is a folder here; None for a hub id, which may be cached."""
    try:
        if Path(model).is_dir():
            return True
    except OSError:
        return False
    return None if looks_like_hub_id(model) else False


def _has_amx() -> bool:
    """Whether this machine's processor has AMX tiles, as Linux tells it."""
    try:
        return " amx_tile" in Path("/proc/cpuinfo").read_text()[:20_000]
    except OSError:
        return False


def _memory_nodes() -> int | None:
    """NUMA nodes whose memory this process may use, as Linux lists them ("0-1,3")."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    listed = re.search(r"^Mems_allowed_list:\s*(\d[\d,-]*)$", status, re.MULTILINE)
    if listed is None:
        return None
    ends = [part.split("-") for part in listed[1].split(",")]
    return sum(int(each[-1]) - int(each[0]) + 1 for each in ends)


def _of_vllm(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that vLLM reads; a secret is there, and is not told."""
    return {
        name: redacted(name, value)
        for name, value in environment.items()
        if name.startswith("VLLM_") and value
    }


def port_state(host: str, port: int) -> PortState:
    """Whether a server can listen at ``host``:``port`` now, who does, and the next port that is free."""
    problem = _cannot_listen(host, port)
    if problem is None:
        return PortState(port, free=True)
    if problem != "taken":
        return PortState(port, free=False, problem=problem, next_free=_next_free(host, port))
    pid, name = _owner(port)
    return PortState(port, False, None, pid, name, _next_free(host, port), server_at(port, pid))


def server_at(port: int, pid: int | None) -> str | None:
    """The name of specpanel's own server whose process ``pid`` listens on ``port``; None: it is none."""
    if pid is None:
        return None
    for record in reversed(registry.records()):
        if record.port == port and pid in identity.members(
            record.id, record.pid, record.start_mark
        ):
            return record.name
    return None


def _cannot_listen(host: str, port: int) -> str | None:
    """None where listening works, "taken", or the system's reason."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(1)
    except OSError as error:
        return "taken" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
    return None


def _next_free(host: str, port: int) -> int | None:
    after = range(max(port, 1023) + 1, min(port + PORTS_TRIED, 65535) + 1)
    return next((candidate for candidate in after if _cannot_listen(host, candidate) is None), None)


def _owner(port: int) -> tuple[int | None, str | None]:
    """Pid and name of the process that listens on ``port``, where this user may see it."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.AccessDenied, OSError):
        return None, None
    for connection in connections:
        listening = connection.status == psutil.CONN_LISTEN
        if listening and connection.laddr and connection.laddr.port == port and connection.pid:
            try:
                return connection.pid, psutil.Process(connection.pid).name()
            except psutil.Error:
                return connection.pid, None
    return None, None


def _platform(profile: Profile, interpreter: InterpreterFacts | None) -> Platform:
    if profile.engine.platform != "auto":
        return profile.engine.platform
    return interpreter.platform if interpreter else "unknown"


def _free_disk_bytes(folder: Path) -> int | None:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
