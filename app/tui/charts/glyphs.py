"""The characters that charts and frames are drawn with, in three sets: braille, block and ascii."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from specpanel.core.errors import ConfigurationError

GlyphSet = Literal["braille", "block", "ascii"]

_BRAILLE_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_BLOCK_BITS = ((0x1, 0x4), (0x2, 0x8))
_ASCII_BITS = ((0x1, 0x2),)


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set. ``bits[x][y]`` is the bit of a dot inside a cell, ``cells[bits]`` the character."""

    name: GlyphSet
    bits: tuple[tuple[int, ...], ...]
    cells: str
    grid: str
    axis: str
    tick: str
    corner: str
    mark: str
    reference: str  # a level line to compare with
    sample: str  # stands for a line in a legend
    dashes: tuple[str, str, str]  # the same, when lines differ by pattern instead of colour
    bar: str  # a cell filled from 1/n to n/n
    bar_low: str  # from the low end of the interval to the estimate
    bar_track: str
    shades: str  # from low to high, where a heat map has no colours
    whisker: tuple[str, str, str]
    box: tuple[str, str, str, str, str, str]  # ╭ ─ ╮ │ ╰ ╯
    ellipsis: str
    dot: str  # separates facts in a row
    states: Mapping[str, str]

    @property
    def dots_x(self) -> int:
        return len(self.bits)

    @property
    def dots_y(self) -> int:
        return len(self.bits[0])


_STATES = {
    "stopped": "○",
    "starting": "◌",
    "serving": "●",
    "degraded": "!",
    "exited": "✗",
    "unreachable": "✗",
    "warning": "!",
    "good": "✓",
}

BRAILLE = Glyphs(
    name="braille",
    bits=_BRAILLE_BITS,
    cells="".join(chr(0x2800 + code) for code in range(256)),
    grid="┈",
    axis="│",
    tick="┤",
    corner="└",
    mark="┊",
    reference="╌",
    sample="━",
    dashes=("━━", "╍╍", "┅┅"),
    bar="▏▎▍▌▋▊▉█",
    bar_low="─",
    bar_track="·",
    shades="·░▒▓█",
    whisker=("├", "─", "┤"),
    box=("╭", "─", "╮", "│", "╰", "╯"),
    ellipsis="…",
    dot="·",
    states=_STATES,
)

BLOCK = Glyphs(
    name="block",
    bits=_BLOCK_BITS,
    cells=" ▘▝▀▖▌▞▛▗▚▐▜▄▙▟█",
    grid="·",
    axis="│",
    tick="┤",
    corner="└",
    mark="│",
    reference="-",
    sample="━",
    dashes=("━━", "╍╍", "┅┅"),
    bar="▏▎▍▌▋▊▉█",
    bar_low="─",
    bar_track="·",
    shades="·░▒▓█",
    whisker=("├", "─", "┤"),
    box=("┌", "─", "┐", "│", "└", "┘"),
    ellipsis="…",
    dot="·",
    states=_STATES,
)

ASCII = Glyphs(
    name="ascii",
    bits=_ASCII_BITS,
    cells=" '.:",
    grid=" ",
    axis="|",
    tick="+",
    corner="+",
    mark="|",
    reference="-",
    sample="=",
    dashes=("==", "=-", "--"),
    bar="#",
    bar_low="=",
    bar_track=".",
    shades=".:-=+*#%@",
    whisker=("|", "-", "|"),
    box=("+", "-", "+", "|", "+", "+"),
    ellipsis="~",
    dot="-",
    states={
        "stopped": "o",
        "starting": "~",
        "serving": "*",
        "degraded": "!",
        "exited": "x",
        "unreachable": "x",
        "warning": "!",
        "good": "+",
    },
)

_SETS: Mapping[str, Glyphs] = {"braille": BRAILLE, "block": BLOCK, "ascii": ASCII}

# The Linux console has the block elements in its font and no braille.
_BLOCK_TERMINALS = {"linux", "vt220", "vt100"}


def choose_glyphs(environment: Mapping[str, str] | None = None) -> Glyphs:
    """The richest set that the terminal of ``environment`` can show.

    ``SPECPANEL_CHARTS`` (braille, block, ascii) decides; otherwise a locale that names another charset
    than UTF-8, or ``TERM=dumb``, gives ascii.

    Raises:
        ConfigurationError: ``SPECPANEL_CHARTS`` names another set.
    """
    env = os.environ if environment is None else environment
    wanted = env.get("SPECPANEL_CHARTS", "").strip().lower()
    if wanted in _SETS:
        return _SETS[wanted]
    if wanted:
        raise ConfigurationError(
            f"SPECPANEL_CHARTS={env['SPECPANEL_CHARTS']} names no set of symbols",
            f"Use one of {', '.join(_SETS)}, or unset it.",
        )
    terminal = env.get("TERM", "")
    if terminal in {"dumb", "unknown"} or not _is_utf8(env):
        return ASCII
    return BLOCK if terminal in _BLOCK_TERMINALS else BRAILLE


def _is_utf8(env: Mapping[str, str]) -> bool:
    """Whether the locale speaks UTF-8; an unset one is taken to (containers have none).

    Python itself sets ``LC_CTYPE=C.UTF-8`` when it finds the C locale (PEP 538), so under ``LANG=C``
    that value says nothing about the terminal.
    """
    names = [env.get("LC_ALL", ""), env.get("LC_CTYPE", ""), env.get("LANG", "")]
    if not names[0] and names[1].upper() == "C.UTF-8" and names[2]:
        names[1] = ""
    name = next((name for name in names if name), "C.UTF-8")
    return "utf-8" in name.lower() or "utf8" in name.lower()
