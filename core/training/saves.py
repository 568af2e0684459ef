"""The trainer's own folder of saves: which can be gone on from, and how an interrupted one is.

Speculators 0.9.0 resumes from the folder with the highest number, whatever state it is in, and never from
``interrupted``.
"""

import json
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specpanel.core.checkpoints.weights import read_weights


@dataclass(frozen=True, slots=True)
class Resumable:
    """The save that the trainer will go on from; ``step`` steps are done. ``moved`` were no good."""

    step: int | None
    moved: tuple[str, ...]


def make_resumable(save: Path) -> Resumable:
    """Put the folder in order: an interrupted save takes its epoch's number, broken ones go aside."""
    moved: list[str] = []
    interrupted = save / "interrupted"
    if interrupted.is_dir():
        state = _state(interrupted)
        why = broken(interrupted)
        if why is None and state is not None and state["local_step"] > 0:
            older = _state(save / str(state["epoch"]))
            if older is None or older["global_step"] < state["global_step"]:
                shutil.rmtree(save / str(state["epoch"]), ignore_errors=True)
                interrupted.rename(save / str(state["epoch"]))
        if interrupted.exists():
            shutil.rmtree(interrupted)
    for folder in sorted(_numbered(save), key=lambda one: -int(one.name)):
        why = broken(folder)
        if why is None:
            state = _state(folder)
            return Resumable(state["global_step"] if state else None, tuple(moved))
        aside = save / f"broken-{folder.name}"
        shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)
        moved.append(f"{folder} ({why})")
    return Resumable(None, tuple(moved))


def put_aside_after(save: Path, step: int) -> tuple[str, ...]:
    """Put saves of more than ``step`` steps aside, interrupted ones too; their folders."""
    moved = []
    for folder in (*_numbered(save), save / "interrupted"):
        state = _state(folder)
        if state is not None and state["global_step"] > step:
            aside = save / f"broken-{folder.name}"
            shutil.rmtree(aside, ignore_errors=True)
            folder.rename(aside)
            moved.append(str(folder))
    return tuple(moved)


def broken(folder: Path) -> str | None:
    """Why the trainer cannot go on from this save; None where it can."""
    weights = read_weights(folder)
    if weights is None or weights.kind != "safetensors" or not weights.shapes:
        return "its weights are not whole"
    held = sum(weights.bytes_by_type.values())
    if weights.total_bytes < held:
        return "its weights end early"
    if not (folder / "config.json").is_file():
        return "it has no config.json"
    optimiser = folder / "optimizer_state_dict.pt"
    # torch's files are zip archives, whose directory is written last.
    if not zipfile.is_zipfile(optimiser):
        return "the optimiser's state is not whole"
    schedule = folder / "scheduler_state_dict.pt"
    if schedule.exists() and not zipfile.is_zipfile(schedule):
        return "the schedule's state is not whole"
    if _state(folder) is None:
        return "it does not say which step it is of"
    return None


def _numbered(save: Path) -> list[Path]:
    if not save.is_dir():
        return []
    return [
        one
        for one in save.iterdir()
        if one.name.isdigit() and one.is_dir() and not one.is_symlink()
    ]


def _state(folder: Path) -> dict[str, int] | None:
    try:
        found: Any = json.loads((folder / "training_state.json").read_text(encoding="utf-8"))
        return {name: int(found[name]) for name in ("epoch", "local_step", "global_step")}
    except (OSError, ValueError, KeyError, TypeError):
        return None
