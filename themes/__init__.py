"""Themes: one TOML file each, shipped here and by the user, read without a terminal library.

A file that is broken is reported by name, key and reason and hides no other. Only ``name`` and
``[colors]`` with ``primary``, ``foreground`` and ``background`` are required; what is missing is taken
from midnight or, for a light theme, from paper.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHIPPED = ("midnight", "paper", "contrast", "okabe-ito", "mono")
DEFAULT = "midnight"

COLOR_KEYS = (
    "primary",
    "secondary",
    "accent",
    "foreground",
    "background",
    "surface",
    "panel",
    "success",
    "warning",
    "error",
)
INK_KEYS = ("muted", "faint", "grid", "border")
REQUIRED_COLORS = ("primary", "foreground", "background")
SERIES_COLORS = 6
MINIMUM_HEAT_STOPS = 2

_TOP_KEYS = {"name", "dark", "colors", "ink", "series", "heat", "variables"}
_COLOR = re.compile(r"#[0-9a-fA-F]{6}")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_VARIABLE = re.compile(r"[a-z][a-z0-9-]*")
_VARIABLE_VALUE = re.compile(r"[#a-zA-Z0-9 %.-]+")


@dataclass(frozen=True, slots=True)
class ThemeFile:
    """A theme as read. Colours are ``#rrggbb``; ``heat`` runs from low to high."""

    name: str
    dark: bool
    colors: Mapping[str, str]
    ink: Mapping[str, str]
    series: tuple[str, ...]
    heat: tuple[str, ...]
    variables: Mapping[str, str]
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class ThemeFailure:
    """A file that is not a theme, and why."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path.name}: {self.reason}"


class _InvalidThemeError(Exception):
    """A rule that a theme file breaks, worded for its author."""


def load_themes(user_folder: Path | None = None) -> tuple[dict[str, ThemeFile], list[ThemeFailure]]:
    """The shipped themes and those in ``user_folder`` by name, and the files that failed.

    A user's theme may replace a shipped one by taking its name. A folder that does not exist is empty.
    """
    folder = Path(__file__).parent
    themes: dict[str, ThemeFile] = {}
    failures: list[ThemeFailure] = []
    paths = [folder / f"{name}.toml" for name in SHIPPED]
    if user_folder is not None and user_folder.is_dir():
        paths += sorted(path for path in user_folder.glob("*.toml") if path.is_file())
    for path in paths:
        try:
            theme = parse_theme(path.read_text(encoding="utf-8"), path, themes)
        except _InvalidThemeError as error:
            failures.append(ThemeFailure(path, str(error)))
        except tomllib.TOMLDecodeError as error:
            failures.append(ThemeFailure(path, f"not TOML: {error}"))
        except UnicodeDecodeError:
            failures.append(ThemeFailure(path, "not UTF-8 text"))
        except OSError as error:
            failures.append(ThemeFailure(path, error.strerror or "cannot be read"))
        else:
            themes[theme.name] = theme
    return themes, failures


def parse_theme(text: str, path: Path | None, known: Mapping[str, ThemeFile]) -> ThemeFile:
    """A theme from the text of its file; ``known`` gives what it leaves out."""
    data = tomllib.loads(text)
    _only(data, _TOP_KEYS, "")
    name = data.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _InvalidThemeError("name must be lower-case letters, digits and hyphens")
    dark = data.get("dark", True)
    if not isinstance(dark, bool):
        raise _InvalidThemeError("dark must be true or false")
    base = known.get(DEFAULT if dark else "paper")
    colors = _colors(data, "colors", COLOR_KEYS, REQUIRED_COLORS, base.colors if base else {})
    ink = _colors(data, "ink", INK_KEYS, (), base.ink if base else {})
    series = _color_list(data, "series", "colors", SERIES_COLORS, base.series if base else ())
    heat = _color_list(data, "heat", "stops", MINIMUM_HEAT_STOPS, base.heat if base else ())
    return ThemeFile(name, dark, colors, ink, series, heat, _variables(data), path)


def _table(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = data.get(name, {})
    if not isinstance(table, dict):
        raise _InvalidThemeError(f"{name} must be a table, written [{name}]")
    return table


def _only(table: Mapping[str, Any], allowed: set[str], prefix: str) -> None:
    for key in table:
        if key not in allowed:
            known = ", ".join(sorted(allowed))
            raise _InvalidThemeError(f"unknown key {prefix}{key} (known: {known})")


def _color(value: object, key: str) -> str:
    if not isinstance(value, str) or not _COLOR.fullmatch(value):
        raise _InvalidThemeError(f"{key} must be a colour written #rrggbb, not {value!r}")
    return value.lower()


def _colors(
    data: Mapping[str, Any],
    table_name: str,
    keys: tuple[str, ...],
    required: tuple[str, ...],
    base: Mapping[str, str],
) -> dict[str, str]:
    table = _table(data, table_name)
    _only(table, set(keys), f"{table_name}.")
    missing = [key for key in required if key not in table]
    missing += [key for key in keys if key not in table and key not in base and key not in missing]
    if missing:
        raise _InvalidThemeError(f"{table_name}.{missing[0]} is missing")
    given = {key: _color(value, f"{table_name}.{key}") for key, value in table.items()}
    return {**base, **given}


def _color_list(
    data: Mapping[str, Any], table_name: str, key: str, least: int, base: tuple[str, ...]
) -> tuple[str, ...]:
    table = _table(data, table_name)
    _only(table, {key}, f"{table_name}.")
    values = table.get(key, list(base))
    if not isinstance(values, list) or len(values) < least:
        raise _InvalidThemeError(f"{table_name}.{key} must list at least {least} colours")
    return tuple(_color(value, f"{table_name}.{key}") for value in values)


def _variables(data: Mapping[str, Any]) -> dict[str, str]:
    table = _table(data, "variables")
    for key, value in table.items():
        if not _VARIABLE.fullmatch(key):
            raise _InvalidThemeError(f"variables.{key} is no name of a style variable")
        if not isinstance(value, str) or not _VARIABLE_VALUE.fullmatch(value):
            raise _InvalidThemeError(f"variables.{key} must be a colour or style in quotes")
    return dict(table)
