"""The reader process: the only one that loads a vendor's library.

Started by `specpanel.core.devices.child`, by its path, in any Python of 3.10 or newer. It answers the
questions on its standard input until that ends, and dies with its parent. What a vendor's library prints
never reaches the terminal or the answers: both outputs of the process are turned into a buffer first,
and the pipe to the panel is kept aside.

Environment, for tests and for odd installations: ``SPECPANEL_DEVICE_MODULES``, a folder where ``pynvml``
and ``amdsmi`` are looked for first; ``SPECPANEL_DEVICE_ROOT``, the folder that holds the ``sys``,
``proc`` and ``dev`` to read.
"""

import argparse
import json
import os
import resource
import signal
import sys
import time
import types
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent

if not __package__:
    # Run by path, perhaps by an interpreter that has no specpanel: name the folders as its packages,
    # without running any of their code.
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != HERE]
    folders = {
        "specpanel": HERE.parent.parent,
        "specpanel.core": HERE.parent,
        "specpanel.core.devices": HERE,
    }
    for name, folder in folders.items():
        package = types.ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package

from specpanel.core.devices.amd import AmdBackend  # noqa: E402
from specpanel.core.devices.blackbox import BlackBox  # noqa: E402
from specpanel.core.devices.gathering import merged  # noqa: E402
from specpanel.core.devices.nvidia import NvidiaBackend  # noqa: E402
from specpanel.core.devices.pacing import (  # noqa: E402
    FAST_PERIOD_S,
    PROCESSES_PERIODS,
    SLOW_PERIODS,
    Pace,
)
from specpanel.core.devices.protocol import Backend  # noqa: E402
from specpanel.core.devices.records import (  # noqa: E402
    Device,
    DeviceInventory,
    DeviceLibrary,
    DeviceReading,
    Tier,
)
from specpanel.core.devices.system import die_with_parent  # noqa: E402
from specpanel.core.devices.wire import Answer, Inventory, encoded  # noqa: E402

_SAID_BYTES = 2000


class Quiet:
    """Both outputs of this process, caught at the level of file descriptors, and the way to the panel."""

    def __init__(self) -> None:
        self.panel = os.fdopen(os.dup(1), "w", encoding="utf-8")
        self.trouble = os.fdopen(os.dup(2), "w", encoding="utf-8")
        self._caught = os.memfd_create("said") if hasattr(os, "memfd_create") else None
        target = os.open(os.devnull, os.O_WRONLY) if self._caught is None else self._caught
        for descriptor in (1, 2):
            os.dup2(target, descriptor)

    def said(self) -> str:
        """What was printed since the last call, the end of it where it was much."""
        sys.stdout.flush()
        sys.stderr.flush()
        size = 0 if self._caught is None else os.fstat(self._caught).st_size
        if self._caught is None or size == 0:
            return ""
        start = max(0, size - _SAID_BYTES)
        text = os.pread(self._caught, _SAID_BYTES, start)
        os.ftruncate(self._caught, 0)
        os.lseek(self._caught, 0, os.SEEK_SET)
        return text.decode("utf-8", "replace").strip()

    def tell(self, message: "Inventory | Answer") -> None:
        self.panel.write(encoded(message) + "\n")
        self.panel.flush()


class Reader:
    """All backends, each tier at its own pace, and what is known of every device."""

    def __init__(self, backends: "list[Backend]", period_s: float = FAST_PERIOD_S) -> None:
        self._backends = backends
        self._known: dict[str, DeviceReading] = {}
        self._good_s: dict[str, float] = {}
        self._order: list[str] = []
        self._with_processes = False
        self._paces: dict[Tier, Pace] = {
            "fast": Pace(period_s),
            "slow": Pace(period_s * SLOW_PERIODS),
            "processes": Pace(period_s * PROCESSES_PERIODS),
        }

    def probe(self) -> DeviceInventory:
        devices: list[Device] = []
        libraries: list[DeviceLibrary] = []
        kept = []
        for backend in self._backends:
            found = backend.probe()
            devices += found.devices
            libraries += found.libraries
            if found.devices:
                kept.append(backend)
        self._backends = kept
        self._order = [device.uuid for device in devices]
        return DeviceInventory(tuple(devices), tuple(libraries))

    def read(self, *, processes: bool) -> Answer:
        """Every tier that is due, and everything that is known.

        Lists of processes that nobody asks for any more are forgotten: they would only grow old.
        """
        began_s = time.monotonic()
        if self._with_processes and not processes:
            for uuid, known in self._known.items():
                self._known[uuid] = replace(known, processes=None)
        self._with_processes = processes
        for tier, pace in self._paces.items():
            if pace.due(began_s) and (processes or tier != "processes"):
                tier_began_s = time.monotonic()
                self._read(tier)
                pace.done(tier_began_s, time.monotonic() - tier_began_s)
        now_s = time.monotonic()
        slowed: dict[str, float] = {
            tier: pace.slowed_to_s for tier, pace in self._paces.items() if pace.slowed_to_s
        }
        readings = tuple(self._aged(uuid, now_s) for uuid in self._order if uuid in self._known)
        return Answer(readings, round((now_s - began_s) * 1e3, 3), slowed)

    def _read(self, tier: Tier) -> None:
        for backend in self._backends:
            for reading in backend.read(tier):
                found = merged(self._known.get(reading.uuid), reading, tier)
                self._known[reading.uuid] = found
                if found.state == "ok":
                    self._good_s[reading.uuid] = time.monotonic()

    def _aged(self, uuid: str, now_s: float) -> DeviceReading:
        reading = self._known[uuid]
        if reading.state != "stale" or uuid not in self._good_s:
            return reading
        return replace(reading, age_s=round(now_s - self._good_s[uuid], 1))


def main() -> int:
    parser = argparse.ArgumentParser(prog="specpanel device reader")
    parser.add_argument("--page", type=int, help="descriptor of the page that names the call")
    parser.add_argument("--parent", type=int, help="pid of the process to die with")
    parser.add_argument("--period", type=float, default=FAST_PERIOD_S, help="of the fast tier")
    parser.add_argument("--without-amdsmi", help="why amdsmi is not to be tried")
    chosen = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is the panel's
    die_with_parent()
    # A driver that crashes once crashes again at every start, and each time would leave a core file.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if chosen.parent is not None and os.getppid() != chosen.parent:
        return 0  # it died before this one could ask to be told
    quiet = Quiet()
    sys.excepthook = lambda kind, value, _: print(f"{kind.__name__}: {value}", file=quiet.trouble)
    modules = os.environ.get("SPECPANEL_DEVICE_MODULES")
    if modules:
        sys.path.insert(0, modules)
    root = Path(os.environ.get("SPECPANEL_DEVICE_ROOT") or "/")
    box = BlackBox(chosen.page)
    backends: list[Backend] = [
        NvidiaBackend(box, root),
        AmdBackend(box, root, chosen.without_amdsmi),
    ]
    reader = Reader(backends, chosen.period)
    quiet.tell(Inventory(reader.probe(), os.getpid(), sys.executable))
    for line in sys.stdin:
        try:
            wanted = bool(json.loads(line).get("processes"))
        except (ValueError, AttributeError):
            continue
        answer = reader.read(processes=wanted)
        quiet.tell(Answer(answer.readings, answer.took_ms, answer.slowed_s, quiet.said()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
