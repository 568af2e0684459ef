"""Machines that are not here: the files of one in a folder, the answers of its libraries in a script.

Tests start the real reader process on them, so everything but the vendor's library is the real thing.
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from specpanel.core.devices.child import Deadlines
from specpanel.core.devices.records import (
    DeviceInventory,
    DeviceLibrary,
    DeviceReading,
    DeviceSample,
)
from specpanel.core.devices.watch import DeviceWatch, read_once

_HERE = Path(__file__).parent
SITE = _HERE / "site"
SCRIPTS = _HERE / "scripts"
QUICK = Deadlines(
    silent_s=0.4, call_s=0.8, amdsmi_start_s=0.5, again_s=0.05, again_most_s=0.2, healthy_s=30
)
PERIOD_S = 0.05
_PATIENCE_S = 15.0


def script(name: str) -> dict[str, Any]:
    """A script as it stands in its file, to be changed before use."""
    found: dict[str, Any] = json.loads((SCRIPTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def write_files(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def build(found: dict[str, Any], folder: Path) -> dict[str, str]:
    """Make the machine in ``folder``; what the reader's environment must hold."""
    folder.mkdir(parents=True, exist_ok=True)
    write_files(folder, found.get("files", {}))
    write_files(folder, {"script.json": json.dumps(found)})
    return {
        "SPECPANEL_DEVICE_MODULES": str(SITE),
        "SPECPANEL_DEVICE_SCRIPT": str(folder / "script.json"),
        "SPECPANEL_DEVICE_ROOT": str(folder),
    }


@contextmanager
def this_is(found: dict[str, Any] | str, folder: Path) -> Iterator[dict[str, str]]:
    """Readers that start inside are on this machine. A text names a script."""
    environment = build(script(found) if isinstance(found, str) else found, folder)
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield environment
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


_read_before: dict[str, tuple[DeviceSample, DeviceInventory]] = {}


def read(found: dict[str, Any] | str, folder: Path) -> tuple[DeviceSample, DeviceInventory]:
    """One sample of a machine, through a real reader process; a script as it stands is read once."""
    if isinstance(found, str):
        if found not in _read_before:
            _read_before[found] = _read(found, folder)
        return _read_before[found]
    return _read(found, folder)


def _read(found: dict[str, Any] | str, folder: Path) -> tuple[DeviceSample, DeviceInventory]:
    with this_is(found, folder):
        sample, inventory = read_once(deadlines=QUICK)
    assert inventory is not None, sample.reason
    return sample, inventory


@asynccontextmanager
async def watched(
    found: dict[str, Any] | str, folder: Path, deadlines: Deadlines = QUICK
) -> AsyncIterator[DeviceWatch]:
    """A watch that runs on a machine, twenty times as fast as in the panel."""
    with this_is(found, folder):
        watch = DeviceWatch(deadlines=deadlines, period_s=PERIOD_S)
        running = asyncio.create_task(watch.run())
        try:
            yield watch
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def until(watch: DeviceWatch, wanted: Callable[[DeviceSample], bool]) -> DeviceSample:
    """The first sample that is as wanted."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while not wanted(sample := watch.sample()):
        assert time.monotonic() < deadline_s, f"never came; the last was {sample}"
        await asyncio.sleep(0.01)
    return sample


def reading(sample: DeviceSample, label: str) -> DeviceReading:
    """The reading of the device with this label, as ``0`` or ``0:1``."""
    (uuid,) = [device.uuid for device in sample.devices if device.label == label]
    (found,) = [one for one in sample.readings if one.uuid == uuid]
    return found


def library(inventory: DeviceInventory, name: str) -> DeviceLibrary:
    (found,) = [one for one in inventory.libraries if one.name == name]
    return found


def device_answers(found: dict[str, Any], vendor: str, number: int = 0) -> dict[str, Any]:
    """The answers of one device of a script, to be changed."""
    answers: dict[str, Any] = found[vendor]["devices"][number]["answers"]
    return answers
