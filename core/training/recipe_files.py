"""Recipes as TOML files: the user's own, and presets that come with specpanel."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from specpanel.core.errors import ConfigurationError
from specpanel.core.printable import one_line
from specpanel.core.settings.complaints import closest
from specpanel.core.settings.files import read_table
from specpanel.core.settings.paths import config_folder
from specpanel.core.settings.toml_lines import line_of
from specpanel.core.training.algorithms import KINDS
from specpanel.core.training.recipe import Recipe

PRESETS = Path(__file__).parent / "presets"


def recipes_folder() -> Path:
    """The user's recipes, one TOML file each."""
    return config_folder() / "recipes"


def recipe_names() -> list[str]:
    """Names of all recipes, the user's and the presets."""
    return sorted(
        {path.stem for place in (recipes_folder(), PRESETS) for path in place.glob("*.toml")}
    )


def find_recipe(name: str) -> Path:
    """The file of a recipe given by name or by path.

    Raises:
        ConfigurationError: there is none; names that come close are told.
    """
    if name.endswith(".toml") or "/" in name:
        path = Path(name).expanduser()
        if not path.is_file():
            raise ConfigurationError(f"there is no recipe at {path}")
        return path
    for place in (recipes_folder(), PRESETS):
        if (place / f"{name}.toml").is_file():
            return place / f"{name}.toml"
    raise ConfigurationError(f"there is no recipe called {name}", closest(name, recipe_names()))


def read_recipe(path: Path, overrides: Mapping[str, str] | None = None) -> Recipe:
    """The recipe in ``path``.

    Args:
        overrides: values by dotted name (``trainer.steps``), laid over the file.

    Raises:
        ConfigurationError: with file, line and reason.
    """
    table, text = read_table(path)
    merged: dict[str, Any] = {"name": path.stem, **table}
    for dotted, value in (overrides or {}).items():
        _lay(merged, dotted, value)
    try:
        return Recipe.model_validate(merged)
    except ValidationError as error:
        raise _complaint(error, path, text, overrides or {}) from None


def summary_of(path: Path) -> tuple[str, str]:
    """Algorithm and description of a recipe that may still lack its target.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    table, _ = read_table(path)
    algorithm = table.get("algorithm")
    kind = algorithm.get("type", "eagle3") if isinstance(algorithm, dict) else "eagle3"
    return one_line(str(kind)), one_line(str(table.get("description", "")))


def assignments(words: list[str]) -> dict[str, str]:
    """What ``--set trainer.steps=30`` says, by dotted name.

    Raises:
        ConfigurationError: no ``=``, or no such setting.
    """
    values: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ConfigurationError(
                f"--set {word}: there is no = in it", "Write it like --set trainer.steps=30."
            )
        if name not in setting_names():
            raise ConfigurationError(
                f"--set {word}: a recipe has no such setting", closest(name, setting_names())
            )
        values[name] = value
    return values


def setting_names() -> list[str]:
    """Dotted names of everything in a recipe that can be set by one value."""
    names: list[str] = []
    for section, info in Recipe.model_fields.items():
        if section == "algorithm":
            fields = {name: None for kind in KINDS.values() for name in kind.settings.model_fields}
            names.extend(f"algorithm.{name}" for name in fields)
        elif isinstance(info.annotation, type) and hasattr(info.annotation, "model_fields"):
            names.extend(f"{section}.{name}" for name in info.annotation.model_fields)
    return names


def _lay(table: dict[str, Any], dotted: str, value: str) -> None:
    section, _, name = dotted.partition(".")
    place = table.get(section)
    place = dict(place) if isinstance(place, dict) else {}
    if dotted == "algorithm.type" and place.get("type") != value:
        place = {}  # another algorithm's settings belong to that
    field = _field_of(section, name)
    listed = field is not None and "tuple" in str(field.annotation)
    place[name] = value.replace(",", " ").split() if listed and section == "algorithm" else value
    table[section] = place


def _field_of(section: str, name: str) -> Any:
    if section == "algorithm":
        kinds = (kind.settings.model_fields for kind in KINDS.values())
        return next((fields[name] for fields in kinds if name in fields), None)
    return None


def _complaint(
    error: ValidationError, path: Path, text: str, overrides: Mapping[str, str]
) -> ConfigurationError:
    """The first thing that is wrong, with its place, and how many more there are."""
    problems = error.errors(include_url=False)
    first, more = problems[0], len(problems) - 1
    parts = [str(part) for part in first["loc"]]
    if parts and parts[0] == "algorithm" and len(parts) > 1 and parts[1] in KINDS:
        parts.pop(1)
    place = ".".join(parts)
    line = line_of(text, tuple(parts)) if parts else None
    if place in overrides:
        where = f"--set {place}"
    else:
        where = f"{path}, line {line}: {place}" if line else f"{path}: {place or 'recipe'}"
    reason = first["msg"].removeprefix("Value error, ").replace("Input should be", "should be")
    fix = ""
    if first["type"] == "extra_forbidden":
        reason = "there is no such setting"
        known = [name.partition(".")[2] for name in setting_names() if name.startswith(parts[0])]
        fix = closest(parts[-1], known)
    elif first["type"] == "missing" and parts[:1] == ["target"]:
        where, reason = str(path), "names no target"
        fix = "Say --model FOLDER, or write target.model in the recipe."
    elif first["type"] in ("union_tag_invalid", "union_tag_not_found"):
        reason, fix = "names no algorithm that is known", f"Known: {', '.join(KINDS)}."
    return ConfigurationError(f"{where}: {reason}" + (f" (and {more} more)" if more else ""), fix)
