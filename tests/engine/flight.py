"""A real run in the background, what it recorded, and how much of that a fault cost."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from specpanel.core.engine import identity
from specpanel.core.monitor.recording import read_lines

# A Frame is made once a second, so that a fault may cost as much; what timers are late comes on top.
MOST_LOST_S = 1.0
LATE_S = 0.25


@dataclass
class Watch:
    """A ``specpanel`` command in the background with its recording in a file."""

    child: subprocess.Popen[bytes]
    recording: Path
    stderr: Path

    @classmethod
    def start(
        cls, specpanel: Any, folder: Path, command: Sequence[str], recording: Path | None = None
    ) -> "Watch":
        folder.mkdir(exist_ok=True)
        recording = recording or folder / "flight.ndjson"
        stderr = folder / "stderr.txt"
        with stderr.open("wb") as err:
            child = specpanel.start(
                *(*command, "--record", str(recording)), stdout=subprocess.DEVNULL, stderr=err
            )
        return cls(child, recording, stderr)

    @property
    def said(self) -> str:
        return self.stderr.read_text()

    def lines(self) -> list[dict[str, Any]]:
        return list(read_lines(self.recording)) if self.recording.exists() else []

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["kind"] == kind]

    def find(self, kind: str, **fields: Any) -> dict[str, Any] | None:
        for line in self.of_kind(kind):
            if all(line.get(key) == fields[key] for key in fields):
                return line
        return None

    def last_frame(self) -> dict[str, Any] | None:
        frames = self.of_kind("frame")
        assert frames or self.child.poll() is None, f"it ended without a Frame: {self.said}"
        return frames[-1] if frames else None

    def scrape_is(self, state: str) -> bool:
        frame = self.last_frame()
        return frame is not None and frame["scrape"]["state"] == state

    def in_traffic(self) -> bool:
        return any(line["kind"] == "request" for line in self.lines())

    def is_quiet(self) -> bool:
        """Whether the counters stood still over the last four Frames."""
        frames = self.of_kind("frame")[-4:]
        made = {frame["totals"]["generation_tokens"] for frame in frames if frame["totals"]}
        return len(frames) == 4 and len(made) == 1

    def lost_s(self, fault_unix: float) -> float:
        """Seconds before the fault of which no line tells: the last write was so long before it."""
        return max(0.0, fault_unix - self.recording.stat().st_mtime)

    def end(self, seconds: float = 120.0) -> int:
        """Its exit status; it ended in time and without a traceback."""
        try:
            code = self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.child.kill()
            pytest.fail(f"specpanel did not end within {seconds:g} s: {self.said}")
        assert "Traceback" not in self.said, self.said
        return code


@dataclass
class Flight(Watch):
    """``specpanel run demo-ngram`` on its way."""

    @classmethod
    def take_off(cls, specpanel: Any, folder: Path, *arguments: str) -> "Flight":
        flags = ("--set", "traffic.max_tokens=48", *arguments)
        begun = cls.start(specpanel, folder, ("run", "demo-ngram", *flags))
        return cls(begun.child, begun.recording, begun.stderr)

    def server_pids(self) -> list[int]:
        """The server's processes, its leader first."""
        launched = self.find("launched")
        if launched is None:
            return []
        return identity.session_members(launched["pid"], identity.start_mark(launched["pid"]))

    def has_reached(self, phase: str) -> bool:
        """``imports`` is reached once vLLM was launched, ``traffic`` once a request has ended."""
        if phase == "traffic":
            return self.in_traffic()
        wanted = {} if phase == "imports" else {"phase": phase}
        return self.find("launched" if phase == "imports" else "phase", **wanted) is not None

    def engine_core(self) -> int | None:
        return engine_core_among(self.server_pids())


def engine_core_among(pids: Iterable[int]) -> int | None:
    for pid in pids:
        try:
            if "EngineCore" in " ".join(psutil.Process(pid).cmdline()):
                return pid
        except psutil.NoSuchProcess:
            continue
    return None


def own_children(panel: int, server: Iterable[int]) -> list[int]:
    """The panel's helpers: what runs below it and is not of the server."""
    below = {child.pid for child in psutil.Process(panel).children(recursive=True)}
    return sorted(below - set(server))


def kill(pid: int) -> float:
    """End it at once; the time of day when that was."""
    os.kill(pid, signal.SIGKILL)
    return time.time()


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def any_alive(pids: Iterable[int]) -> bool:
    return any(map(alive, pids))


def listed(specpanel: Any) -> list[dict[str, Any]]:
    """What ``specpanel ps`` knows of."""
    done = specpanel.run("ps", "--json")
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]
