"""Theme files: the shipped ones are readable, a broken one is named and hides no other."""

from pathlib import Path

import pytest

from specpanel.app.tui.theming import INK_NAMES, fallback_variables, ink_styles, to_textual
from specpanel.themes import INK_KEYS, SHIPPED, ThemeFile, load_themes

TEXT_COLORS = ("foreground", "primary", "accent", "success", "warning", "error")
LARGEST_TEXT_AREAS = ("background", "surface", "panel")


def shipped() -> dict[str, ThemeFile]:
    themes, failures = load_themes()
    assert failures == []
    return themes


def luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio of two colours."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_of_black_and_white_is_21() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("name", SHIPPED)
def test_text_is_readable(name: str) -> None:
    theme = shipped()[name]
    least = 7.0 if name == "contrast" else 4.5
    colors = {key: theme.colors[key] for key in TEXT_COLORS} | {"muted": theme.ink["muted"]}
    low = {
        (key, area): round(contrast(color, theme.colors[area]), 2)
        for key, color in colors.items()
        for area in LARGEST_TEXT_AREAS
        if contrast(color, theme.colors[area]) < least
    }
    assert low == {}


@pytest.mark.parametrize("name", SHIPPED)
def test_lines_stand_out(name: str) -> None:
    theme = shipped()[name]
    colors = (*theme.series, theme.ink["faint"])
    assert min(contrast(color, theme.colors["background"]) for color in colors) >= 3


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_theme_is_complete_and_gives_every_ink(name: str) -> None:
    theme = shipped()[name]
    assert set(theme.ink) == set(INK_KEYS)
    variables = {**to_textual(theme).variables, **theme.colors}
    from rich.style import Style

    assert set(ink_styles(variables, Style())) == INK_NAMES


@pytest.mark.parametrize("dark", [True, False])
def test_a_theme_of_textual_itself_gets_our_colours(dark: bool) -> None:
    assert {f"ink-{key}" for key in INK_KEYS} <= set(fallback_variables(dark=dark))


MINIMAL = """
name = "mine"
[colors]
primary = "#ff8800"
foreground = "#ffffff"
background = "#000000"
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name = ", "not TOML"),
        (MINIMAL + 'primry = "#000000"', "colors.primry"),
        (MINIMAL.replace("#ff8800", "orange"), "colors.primary"),
        (MINIMAL.replace('primary = "#ff8800"', ""), "colors.primary is missing"),
        (MINIMAL.replace('"mine"', '"[mine]"'), "name"),
        (MINIMAL + '[series]\ncolors = ["#ffffff"]', "series.colors"),
        (MINIMAL + '[variables]\nborder = "red; } * { display: none"', "variables.border"),
        ("dark = 3\n" + MINIMAL, "dark"),
    ],
)
def test_a_broken_file_is_named_with_its_reason_and_hides_no_other(
    tmp_path: Path, text: str, reason: str
) -> None:
    (tmp_path / "broken.toml").write_text(text)
    (tmp_path / "good.toml").write_text(MINIMAL.replace('"mine"', '"good"'))
    themes, failures = load_themes(tmp_path)
    assert {"good", *SHIPPED} == set(themes)
    assert [failure.path.name for failure in failures] == ["broken.toml"]
    assert reason in str(failures[0])


def test_a_file_that_is_not_text_is_reported(tmp_path: Path) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in str(load_themes(tmp_path)[1][0])


def test_what_a_theme_leaves_out_comes_from_the_default(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINIMAL)
    themes, _ = load_themes(tmp_path)
    assert themes["mine"].series == themes["midnight"].series
    assert themes["mine"].colors["primary"] == "#ff8800"
