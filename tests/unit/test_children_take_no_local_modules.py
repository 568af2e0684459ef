"""Children that run ``python -m`` take no modules from the folder that the user stands in."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from specpanel.core.lab.jobs import start_job
from specpanel.core.training.detached import Detached
from specpanel.kernels.dims import PRESETS
from specpanel.kernels.errors import MLAError
from specpanel.kernels.measuring import Measurement
from specpanel.kernels.request import Request, usual_grid

DEADLINE_S = 60.0


def measured(python: str) -> None:
    dims = PRESETS["deepseek-v3.2"].dims
    with pytest.raises(MLAError):
        Measurement(python).run(
            Request(dims, usual_grid(dims, slow=True), refine=False), lambda _: None
        )


def experiment(python: str) -> None:
    start_job([python, "-m", "specpanel.app"]).process.wait(DEADLINE_S)


def training(python: str) -> None:
    Detached("a training", [python, "-m", "specpanel.app"])._child.wait(DEADLINE_S)


@pytest.mark.parametrize("start", [measured, experiment, training], ids=lambda one: one.__name__)
def test_a_module_of_the_current_folder_is_never_run(
    start: Callable[[str], None], own_folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("specpanel/app", "specpanel/kernels"):
        folder = tmp_path / "here" / package
        folder.mkdir(parents=True)
        (folder / "__main__.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')")
        for place in (folder.parent, folder):
            (place / "__init__.py").touch()
    monkeypatch.chdir(tmp_path / "here")
    python = tmp_path / "python"
    # Without site-packages: what is found then can only come from the folder.
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    start(str(python))
    assert not (tmp_path / "run").exists()
