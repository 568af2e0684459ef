"""Puts theme files into Textual and gives every ink its style."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from rich.style import Style
from textual.color import Color
from textual.theme import Theme

from specpanel.app.tui.charts.heat_plot import HEAT_LEVELS, heat_levels
from specpanel.themes import ThemeFailure, ThemeFile, load_themes

PATTERN_THEMES = frozenset({"mono"})
"""Themes without hues: charts tell their lines apart by dash pattern."""

# ink: (colour variable, background variable or None, style)
_INKS: Mapping[str, tuple[str, str | None, str]] = {
    "text": ("foreground", None, ""),
    "strong": ("foreground", None, "bold"),
    "muted": ("ink-muted", None, ""),
    "faint": ("ink-faint", None, ""),
    "grid": ("ink-grid", None, ""),
    "axis": ("ink-muted", None, ""),
    "mark": ("warning", None, ""),
    "border": ("ink-border", None, ""),
    "border-selected": ("primary", None, ""),
    "title": ("foreground", None, ""),
    "title-selected": ("primary", None, "bold"),
    "brand": ("primary", None, "bold"),
    "key": ("accent", None, "bold"),
    "tab": ("foreground", None, ""),
    "tab-on": ("background", "primary", "bold"),
    "good": ("success", None, ""),
    "warn": ("warning", None, ""),
    "bad": ("error", None, ""),
    "bar": ("series-1", None, ""),
    "bar-interval": ("background", "series-1", ""),
    "interval": ("foreground", None, ""),
    "gauge": ("series-1", None, ""),
    **{f"series-{number}": (f"series-{number}", None, "") for number in range(1, 7)},
}
INK_NAMES = frozenset(_INKS)

_FALLBACK_INK = {
    True: {"muted": "#9aa3b5", "faint": "#737d92", "grid": "#3a4150", "border": "#3a4150"},
    False: {"muted": "#545b69", "faint": "#7d8492", "grid": "#c4c4c4", "border": "#b4b4b4"},
}
_FALLBACK_SERIES = {
    True: ("#56b4e9", "#e69f00", "#cc79a7", "#f0e442", "#d55e00", "#2fbf9b"),
    False: ("#0b6aa8", "#b35c00", "#a03d78", "#6e6300", "#b03a00", "#0a7a5e"),
}

_FALLBACK_HEAT = ("#00224e", "#575d6d", "#a69d75", "#fee838")


class InkStyles(dict[str, Style]):
    """Style by ink. The many inks of a heat map are made when they are first asked for."""

    def __init__(self, variables: Mapping[str, str], base: Style) -> None:
        super().__init__()
        self._variables = variables
        self._base = base

    def __missing__(self, ink: str) -> Style:
        levels = heat_levels(ink)
        if levels is None:
            raise KeyError(ink)
        upper, lower = (
            None if level is None else self._variables[f"heat-{level}"][:7] for level in levels
        )
        self[ink] = style = self._base + Style(color=upper, bgcolor=lower)
        return style


def to_textual(file: ThemeFile) -> Theme:
    """The theme as Textual wants it, with our colours as style variables."""
    variables = variables_of(file.ink, file.series)
    variables |= heat_variables(file.heat)
    variables |= file.variables
    theme = Theme(
        name=file.name, dark=file.dark, variables=variables, primary=file.colors["primary"]
    )
    return replace(theme, **cast("dict[str, Any]", file.colors))


def variables_of(ink: Mapping[str, str], series: tuple[str, ...]) -> dict[str, str]:
    named = {f"ink-{name}": color for name, color in ink.items()}
    return named | {f"series-{number}": color for number, color in enumerate(series, 1)}


def heat_variables(stops: Sequence[str]) -> dict[str, str]:
    """The shades of the heat map, from low to high, between evenly spaced ``stops``."""
    colors = [Color.parse(stop) for stop in stops]
    shades = {}
    for level in range(HEAT_LEVELS):
        place = level / (HEAT_LEVELS - 1) * (len(colors) - 1)
        below = min(int(place), len(colors) - 2)
        shade = colors[below].blend(colors[below + 1], place - below)
        shades[f"heat-{level}"] = shade.hex6.lower()
    return shades


def fallback_variables(*, dark: bool) -> dict[str, str]:
    """Our variables for a theme that does not know them (Textual's own)."""
    stops = _FALLBACK_HEAT if dark else _FALLBACK_HEAT[::-1]
    return variables_of(_FALLBACK_INK[dark], _FALLBACK_SERIES[dark]) | heat_variables(stops)


def ink_styles(variables: Mapping[str, str], base: Style) -> InkStyles:
    """A style for every ink, on the background of ``base``."""
    styles = InkStyles(variables, base)
    for ink, (color, background, extra) in _INKS.items():
        style = Style.parse(extra) if extra else Style.null()
        style += Style(color=variables[color][:7])
        if background is not None:
            style += Style(bgcolor=variables[background][:7])
        styles[ink] = base + style
    return styles


def user_theme_folder() -> Path:
    """``specpanel/themes`` in the XDG configuration folder."""
    root = os.environ.get("XDG_CONFIG_HOME", "")
    config = Path(root) if root.startswith("/") else Path.home() / ".config"
    return config / "specpanel" / "themes"


class UserThemes:
    """The shipped themes and those in a folder of the user, read again when a file there changes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stamps: dict[Path, tuple[int, int]] = {}

    def load(self) -> tuple[list[Theme], list[ThemeFailure]]:
        """Every theme, and the files that are broken."""
        self._stamps = self._look()
        themes, failures = load_themes(self._folder)
        return [to_textual(theme) for theme in themes.values()], failures

    def changes(self) -> tuple[list[Theme], list[ThemeFailure]] | None:
        """What was written since the last look; ``None`` when nothing was. A broken file gives no theme.

        Reads files, so it belongs in a thread.
        """
        before, self._stamps = self._stamps, self._look()
        changed = {path for path, stamp in self._stamps.items() if before.get(path) != stamp}
        if not changed:
            return None
        themes, failures = load_themes(self._folder)
        return (
            [to_textual(theme) for theme in themes.values() if theme.path in changed],
            [failure for failure in failures if failure.path in changed],
        )

    def _look(self) -> dict[Path, tuple[int, int]]:
        """Time of the last change and size of every file; one that has just gone is left out."""
        stamps = {}
        for path in self._folder.glob("*.toml"):
            with suppress(OSError):
                found = path.stat()
                stamps[path] = (found.st_mtime_ns, found.st_size)
        return stamps
