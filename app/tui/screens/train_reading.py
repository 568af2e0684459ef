"""What the Train screen reads from the disk. Everything here is for a thread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specpanel.app.tui.train_words import RecipeEntry
from specpanel.core.errors import ConfigurationError, SpecpanelError
from specpanel.core.training.audit import Promotion
from specpanel.core.training.audit import read as read_promotions
from specpanel.core.training.runs import TrainingRun, training_runs
from specpanel.core.training.trail import free_share, last_log_line, stage_began_unix

SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Shelf:
    """All that can be chosen. ``trouble`` says what could not be read."""

    runs: Sequence[TrainingRun]
    recipes: Sequence[RecipeEntry]
    promotions: Sequence[Promotion]
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Aside:
    """What is known of a run besides its events: ``free`` is the free share of the states' folder."""

    log_line: str = ""
    began_unix: float | None = None
    free: float | None = None


def read_shelf() -> Shelf:
    promotions: Sequence[Promotion] = ()
    trouble = ""
    try:
        promotions = read_promotions()
    except SpecpanelError as error:
        trouble = str(error)
    return Shelf(training_runs(), _recipes(), promotions, trouble)


def _recipes() -> list[RecipeEntry]:
    """Every recipe with its defaults; the target is empty where the file names none."""
    from specpanel.core.settings.files import read_table
    from specpanel.core.training.recipe_files import find_recipe, read_recipe, recipe_names

    found = []
    for name in recipe_names():
        try:
            path = find_recipe(name)
            target = read_table(path)[0].get("target")
            named = isinstance(target, dict) and "model" in target
            recipe = read_recipe(path, None if named else {"target.model": "FOLDER"})
        except ConfigurationError as error:
            found.append(RecipeEntry(name, "", "", error.message))
            continue
        table = recipe.table()
        if not named:
            table["target"]["model"] = ""
        found.append(RecipeEntry(name, recipe.algorithm.type, recipe.description, table=table))
    return found


def states_folder(recipe: Mapping[str, Any]) -> Path:
    """Where hidden states are handed over."""
    extraction = recipe.get("extraction")
    named = extraction.get("folder") if isinstance(extraction, Mapping) else None
    return Path(named) if isinstance(named, str) and named else SHARED_MEMORY


def read_aside(root: Path, log: Path | None, recipe: Mapping[str, Any]) -> Aside:
    return Aside(
        "" if log is None else last_log_line(log),
        stage_began_unix(root),
        free_share(states_folder(recipe)),
    )


def count_lines(path: Path) -> int | None:
    """Lines of a small file; None where it is not there."""
    try:
        return path.read_bytes().count(b"\n")
    except OSError:
        return None
