"""Where an experiment ran: versions, machine and commit, so that its figures can be placed later."""

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from specpanel.core.engine.command import platform_of
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.printable import one_line
from specpanel.core.settings.profile import Profile

_HERE = Path(__file__).resolve()


@dataclass(frozen=True, slots=True)
class Environment:
    """Absent is None. ``commit`` is that of specpanel's own source, where it runs from a checkout.

    ``devices`` are what the launch may see as the environment names it; None where all are.
    """

    specpanel_version: str | None
    commit: str | None
    vllm_distribution: str | None
    vllm_version: str | None
    python_version: str
    platform: str
    operating_system: str
    processor: str | None
    cores: int | None
    memory_bytes: int
    devices: str | None

    def table(self) -> dict[str, Any]:
        return asdict(self)


def read_environment(
    profile: Profile, facts: InterpreterFacts, inherited: Mapping[str, str] = os.environ
) -> Environment:
    """The environment of a launch of ``profile``. Reads files; asks no device."""
    visible = {**inherited, **profile.engine.environment}
    return Environment(
        specpanel_version=_version("specpanel"),
        commit=_commit(_HERE.parents[2] / ".git"),
        vllm_distribution=facts.distribution,
        vllm_version=facts.vllm_version,
        python_version=facts.python_version,
        platform=platform_of(profile, facts),
        operating_system=platform.platform(),
        processor=_processor(Path("/proc/cpuinfo")),
        cores=psutil.cpu_count(),
        memory_bytes=psutil.virtual_memory().total,
        devices=visible.get("CUDA_VISIBLE_DEVICES") or visible.get("ROCR_VISIBLE_DEVICES"),
    )


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _commit(git: Path) -> str | None:
    """The commit that is checked out, read from git's own files; None outside a checkout."""
    try:
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head or None
        reference = head.removeprefix("ref: ")
        loose = git / reference
        if loose.exists():
            return loose.read_text().strip()
        for line in (git / "packed-refs").read_text().splitlines():
            commit, _, name = line.partition(" ")
            if name == reference:
                return commit
    except OSError:
        return None
    return None


def _processor(cpuinfo: Path) -> str | None:
    try:
        text = cpuinfo.read_text(errors="replace")
    except OSError:
        return None
    named = (line.partition(":")[2] for line in text.splitlines() if line.startswith("model name"))
    found = next(named, "").strip()
    return one_line(found, 80) or None
