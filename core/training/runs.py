"""Which training runs there are: those in our folder, and those that run anywhere on this machine.

A run is whose process has its events file open for writing: no other mark is needed, also of one that was
started elsewhere with ``--folder``, and none is left behind by one that was killed.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import psutil

from specpanel.core.engine import identity
from specpanel.core.training.folder import training_folder
from specpanel.core.training.line_values import number

RunState = Literal["running", "done", "stopped", "failed", "cut off", "unreadable"]

_EVENTS = re.compile(r"events(?:-(\d+))?\.ndjson")
_TAIL_BYTES = (1 << 14, 1 << 20)  # a summary with many checkpoints is a long line


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that a run belongs to: its pid alone could be another's by now."""

    pid: int
    mark: str

    @property
    def lives(self) -> bool:
        return identity.leader_lives(self.pid, self.mark)


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A run as its folder tells it. ``cut off``: its process went without a word. ``why`` is a sentence
    about a failure. ``resumable``: the data are there, so that ``--resume`` goes on."""

    root: Path
    recipe: str
    algorithm: str
    target: str
    began_unix: float | None
    state: RunState
    why: str = ""
    steps: int | None = None
    wanted_steps: int | None = None
    predicted: float | None = None
    took_s: float | None = None
    resumable: bool = False
    owner: Owner | None = None


def training_runs(owners: Mapping[Path, Owner] | None = None) -> list[TrainingRun]:
    """Every run, the newest first. Reads a few files a run and the open files of every process: for a thread.

    Args:
        owners: the processes of runs that are under way; looked up where left out.
    """
    found = running_trainings() if owners is None else owners
    roots = set(found)
    place = training_folder()
    with suppress(OSError):
        roots |= {path.parent for path in place.glob("*/*/recipe.json")}
    runs = [_run(root, found.get(root)) for root in roots]
    return sorted(runs, key=lambda run: -(run.began_unix or 0.0))


def folder_stamps() -> tuple[tuple[str, int], ...]:
    """Changes when a run is begun, gone on with or removed: the times of the folders of recipes and runs."""
    place, stamps = training_folder(), []
    for folder in (place, *place.glob("*/"), *place.glob("*/*/")):
        with suppress(OSError):
            stamps.append((str(folder), folder.stat().st_mtime_ns))
    return tuple(sorted(stamps))


def running_trainings() -> dict[Path, Owner]:
    """Folders of the runs that are under way on this machine, as far as this user may look."""
    found: dict[Path, Owner] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            for file in process.open_files():
                if _EVENTS.fullmatch(Path(file.path).name) and getattr(file, "mode", "w") != "r":
                    root, mark = Path(file.path).parent, identity.start_mark(process.pid)
                    if mark is not None and (root / "recipe.json").is_file():
                        found[root] = Owner(process.pid, mark)
    return found


def newest_events(root: Path) -> Path | None:
    """The last events file of a run; None before the first."""
    found = [
        (int(match[1] or 1), path)
        for path in root.glob("events*.ndjson")
        if (match := _EVENTS.fullmatch(path.name))
    ]
    return max(found)[1] if found else None


def _run(root: Path, owner: Owner | None) -> TrainingRun:
    table = _object(root / "recipe.json")
    if table is None:
        return TrainingRun(
            root, root.parent.name, "", "", _stamp(root), "unreadable", "recipe.json cannot be read"
        )
    algorithm, target, trainer = (
        _section(table, one) for one in ("algorithm", "target", "trainer")
    )
    steps, predicted = _progress(root)
    known = TrainingRun(
        root=root,
        recipe=_text(table.get("name")) or root.parent.name,
        algorithm=_text(algorithm.get("type")),
        target=_text(target.get("model")),
        began_unix=_stamp(root / "recipe.json"),
        state="cut off",
        steps=steps,
        wanted_steps=_whole(trainer.get("steps")),
        predicted=predicted,
        resumable=(root / "data" / "rows.jsonl").exists(),
    )
    if owner is not None:
        return replace(known, state="running", owner=owner, resumable=False)
    summary = _summary(root)
    if summary is None:
        return known
    failure = _text(summary.get("failure"))
    stopped = summary.get("interrupted") is True
    done = _whole(summary.get("steps"))
    return replace(
        known,
        state="failed" if failure else "stopped" if stopped else "done",
        why=failure,
        steps=steps if done is None else done,
        took_s=number(summary.get("took_s")),
        resumable=summary.get("resumable") is True and known.resumable,
    )


def _progress(root: Path) -> tuple[int | None, float | None]:
    """Step of the last kept checkpoint, and what the best one foretells."""
    kept = [found for path in _kept(root) if (found := _object(path)) is not None]
    if not kept:
        return None, None
    steps = [step for one in kept if (step := number(one.get("step"))) is not None]
    best = next((one for one in kept if one.get("best") is True), kept[-1])
    prediction = _section(best, "prediction")
    return int(max(steps)) if steps else None, number(prediction.get("acceptance_length"))


def _kept(root: Path) -> Iterator[Path]:
    yield from sorted((root / "checkpoints").glob("*/checkpoint.json"))


def _summary(root: Path) -> Mapping[str, Any] | None:
    """The summary that the newest events end with; None where they end otherwise."""
    path = newest_events(root)
    if path is None:
        return None
    for most in _TAIL_BYTES:
        try:
            with path.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - most))
                text = file.read()
        except OSError:
            return None
        *before, last = text.rstrip(b"\n").split(b"\n")
        if before or size <= most:
            break
    try:
        found = json.loads(last)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.get("kind") == "summary" else None


def _object(path: Path) -> Mapping[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _section(table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = table.get(name)
    return found if isinstance(found, Mapping) else {}


def _whole(value: Any) -> int | None:
    found = number(value)
    return None if found is None else int(found)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _stamp(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None
