"""Look for checkpoints that may draft: folders that are named, and the Hugging Face cache.

Only ``config.json`` is opened. Nothing is downloaded, and no code of a checkpoint is run.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specpanel.core.checkpoints.config import CONFIG_FILE, parse_config
from specpanel.core.checkpoints.drafters import Candidate, recognise
from specpanel.core.checkpoints.json_file import read_json
from specpanel.core.errors import ConfigurationError
from specpanel.core.ordinary import read_ordinary

DEPTH = 5
LARGEST_SCAN = 5000  # folders entered in all
_CACHE_PREFIX = "models--"


@dataclass(frozen=True, slots=True)
class Scan:
    """``unreadable``: why a checkpoint could not be read. ``complete``: whether every folder was entered."""

    candidates: tuple[Candidate, ...]
    unreadable: tuple[str, ...]
    complete: bool


def hub_cache(environment: Mapping[str, str]) -> Path:
    """The Hugging Face cache, as huggingface_hub finds it."""
    if named := environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE"):
        return Path(named).expanduser()
    if home := environment.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    cache = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "huggingface" / "hub"


def cached_folder(cache: Path, hub_id: str) -> Path | None:
    """The folder of a model of the hub in the cache; None where it was never fetched."""
    return _snapshot(cache / f"{_CACHE_PREFIX}{hub_id.replace('/', '--')}")


def scan(folders: Sequence[Path], cache: Path | None = None) -> Scan:
    """Every checkpoint below ``folders`` and in the Hugging Face cache ``cache``.

    Raises:
        ConfigurationError: one of ``folders`` is no folder.
    """
    found: dict[Path, Candidate] = {}
    unreadable: list[str] = []
    budget = [LARGEST_SCAN]
    for top in folders:
        if not top.is_dir():
            raise ConfigurationError(f"{top} is no folder", "Correct the path given to --scan.")
    places = [(folder, None) for top in folders for folder in _checkpoints(top, budget)]
    cached = [] if cache is None else list(_cached(cache))
    for folder, hub_id in (*places, *cached):
        real = folder.resolve()
        if real in found:
            continue
        try:
            values = read_json(folder / CONFIG_FILE)
            config = parse_config(values, real)
        except ConfigurationError as error:
            unreadable.append(error.message)
            continue
        recognised = recognise(config, values, hub_id or real.name)
        named = config.speculators.verifier if config.speculators else None
        verifier = Path(named).expanduser().resolve() if named and "\0" not in named else None
        found[real] = Candidate(hub_id or str(folder), real, config, recognised, verifier)
    return Scan(tuple(found.values()), tuple(unreadable), budget[0] > 0)


def _checkpoints(top: Path, budget: list[int], depth: int = DEPTH) -> Iterator[Path]:
    """Folders with a config.json; what lies inside a checkpoint is part of it, but for its epochs."""
    if budget[0] <= 0:
        return
    budget[0] -= 1
    try:
        with os.scandir(top) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    if any(entry.name == CONFIG_FILE for entry in listed):
        yield top
    if depth == 0:
        return
    for entry in listed:
        # Links are followed by their target alone, so that a circle ends: checkpoint_best is one.
        if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
            yield from _checkpoints(Path(entry.path), budget, depth - 1)


def _cached(cache: Path) -> Iterator[tuple[Path, str]]:
    """The current snapshot of every model in the cache, with its hub id."""
    try:
        models = sorted(cache.glob(f"{_CACHE_PREFIX}*"))
    except OSError:
        return
    for model in models:
        snapshot = _snapshot(model)
        if snapshot is not None and (snapshot / CONFIG_FILE).is_file():
            yield snapshot, model.name.removeprefix(_CACHE_PREFIX).replace("--", "/")


def _snapshot(model: Path) -> Path | None:
    """The snapshot that ``main`` points to, else the newest."""
    try:
        commit = read_ordinary(model / "refs" / "main", 4096, pipes=False).decode().strip()
        if commit and "/" not in commit and (model / "snapshots" / commit).is_dir():
            return model / "snapshots" / commit
    except (OSError, UnicodeDecodeError):
        pass  # no main was ever fetched: a snapshot by its commit may be there
    try:
        snapshots = [path for path in (model / "snapshots").iterdir() if path.is_dir()]
        return max(snapshots, key=lambda path: path.stat().st_mtime, default=None)
    except OSError:
        return None
