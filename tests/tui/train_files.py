"""Trainings for the screen tests, from a real run of three stages that was stopped and gone on with."""

import os
import shutil
from pathlib import Path

from specpanel.core.settings.paths import data_folder

SAMPLE = Path(__file__).parents[1] / "data" / "training" / "train-tiny"
BEGAN_UNIX = 1796056108.0  # 2026-11-30 16:28:28 UTC


def copy_training(name: str, *, began_unix: float = BEGAN_UNIX, whole: bool = True) -> Path:
    """A run in our folder; without ``whole`` as it was when it had been stopped."""
    root = data_folder() / "training" / name
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(SAMPLE, root)
    for path in (root / "events.ndjson", root / "events-2.ndjson"):
        text = path.read_text(encoding="utf-8").replace("/srv/training/run", str(root))
        path.write_text(text, encoding="utf-8")
    if not whole:
        (root / "events-2.ndjson").unlink()
        shutil.rmtree(root / "checkpoints" / "step-000020")
    for path in (root / "recipe.json", *root.glob("stages/*.json")):
        os.utime(path, (began_unix, began_unix))
    return root


def trainings() -> None:
    """One that is done, and one that was stopped and can be gone on with."""
    copy_training("train-tiny/20261130-162828")
    copy_training("train-tiny/20261130-150000", began_unix=BEGAN_UNIX - 5308, whole=False)
