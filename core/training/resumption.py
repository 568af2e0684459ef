"""The recipe of a run as a file that ``specpanel train`` takes: going on needs what it was begun with."""

import json
import os
from pathlib import Path
from typing import Any

import tomli_w

from specpanel.core.errors import ConfigurationError, RecordingError


def resumable_recipe(root: Path) -> Path:
    """``recipe.toml`` in the run's folder, made of its ``recipe.json``.

    Raises:
        ConfigurationError: that cannot be read.
        RecordingError: the file cannot be written.
    """
    try:
        table = json.loads((root / "recipe.json").read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"the recipe of {root} cannot be read: {error}", "Begin its recipe again."
        ) from None
    if not isinstance(table, dict):
        raise ConfigurationError(f"the recipe of {root} is no table", "Begin its recipe again.")
    path, partial = root / "recipe.toml", root / f".recipe.toml.{os.getpid()}.tmp"
    try:
        partial.write_text(tomli_w.dumps(_without_absent(table)), encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise RecordingError(
            f"{path} cannot be written: {error.strerror or error}", "Free some space there."
        ) from error
    return path


def _without_absent(value: Any) -> Any:
    """TOML has no null: a setting that is absent is left out."""
    if isinstance(value, dict):
        return {key: _without_absent(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_absent(item) for item in value if item is not None]
    return value
