"""A machine from a script: its files in a folder, its libraries' answers in the environment.

For tests that start the real reader. ``script`` may change a script's text before it is used.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from specpanel.core.devices.child import Deadlines

HERE = Path(__file__).parent
SITE = HERE / "site"
SCRIPTS = HERE / "scripts"
QUICK = Deadlines(again_s=0.05, again_most_s=0.2, silent_s=0.3, call_s=1.0, amdsmi_start_s=0.5)


def script(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCRIPTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


@dataclass(frozen=True)
class Machine:
    """The folder of a scripted machine."""

    folder: Path

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def environment(self) -> dict[str, str]:
        return {
            "SPECPANEL_DEVICE_MODULES": str(SITE),
            "SPECPANEL_DEVICE_SCRIPT": str(self.folder / "script.json"),
            "SPECPANEL_DEVICE_ROOT": str(self.folder),
        }


def set_up(found: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "script.json").write_text(json.dumps(found), encoding="utf-8")
    machine.write(found.get("files", {}))
    for name, value in machine.environment().items():
        monkeypatch.setenv(name, value)
    return machine
