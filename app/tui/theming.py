"""Puts theme files into Textual and gives every ink its style."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from rich.style import Style
from textual.theme import Theme

from specpanel.themes import ThemeFile

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


def to_textual(file: ThemeFile) -> Theme:
    """The theme as Textual wants it, with our colours as style variables."""
    variables = variables_of(file.ink, file.series)
    variables |= {f"heat-{number}": color for number, color in enumerate(file.heat)}
    variables |= file.variables
    theme = Theme(
        name=file.name, dark=file.dark, variables=variables, primary=file.colors["primary"]
    )
    return replace(theme, **cast("dict[str, Any]", file.colors))


def variables_of(ink: Mapping[str, str], series: tuple[str, ...]) -> dict[str, str]:
    named = {f"ink-{name}": color for name, color in ink.items()}
    return named | {f"series-{number}": color for number, color in enumerate(series, 1)}


def fallback_variables(*, dark: bool) -> dict[str, str]:
    """Our variables for a theme that does not know them (Textual's own)."""
    return variables_of(_FALLBACK_INK[dark], _FALLBACK_SERIES[dark])


def ink_styles(variables: Mapping[str, str], base: Style) -> dict[str, Style]:
    """A style for every ink, on the background of ``base``."""
    styles = {}
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
