"""Text with ink: what is drawn is a row of spans, each a text and the name of its ink.

Nothing here or below parses markup: a text stays what it is, character for character. Inks are names
(``muted``, ``series-1``); ``specpanel.app.tui.theming`` gives them the colours of the theme.
"""

import functools
import re
import unicodedata
from collections.abc import Iterable

from rich.cells import cell_len, set_cell_size

Span = tuple[str, str]
"""A text and the name of its ink."""

Line = tuple[Span, ...]
"""One row, left to right."""

_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles, links
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor
    r"|\x1b."
)
_UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def clean(text: str) -> str:
    """A text from outside, safe to put in a row: one line, no escape sequences, no control codes.

    Brackets and everything else that is visible stay as they are.
    """
    if text.isprintable():
        return text
    spaced = _ESCAPES.sub("", text).replace("\n", " ").replace("\r", " ").replace("\t", " ")
    return "".join(char for char in spaced if unicodedata.category(char) not in _UNSAFE)


def text_of(line: Iterable[Span]) -> str:
    return "".join(text for text, _ in line)


def width_of(line: Iterable[Span]) -> int:
    """Cells that the row takes; a CJK character or an emoji takes two."""
    cells = 0
    for text, _ in line:
        cells += cells_of(text)
    return cells


# What frames, bars and the lines of charts are made of, and most words: one cell a character. It is not
# looked up in rich's cache of widths, which the rows of charts would go on filling for hours.
_ONE_CELL_EACH = re.compile("[ -~\u2500-\u25fc\u2800-\u28ff…–×·°]*")


def cells_of(text: str) -> int:
    """Cells that a text takes."""
    if text.isascii() or _ONE_CELL_EACH.fullmatch(text):
        return len(text)
    return cell_len(text)


def shorten(text: str, width: int, ellipsis: str = "…") -> str:
    """``text`` in at most ``width`` cells, with an ellipsis where something was cut."""
    if cells_of(text) <= width:
        return text
    if width <= cells_of(ellipsis):
        return ellipsis[: max(0, width)]
    return set_cell_size(text, width - cells_of(ellipsis)).rstrip() + ellipsis


def fit(line: Iterable[Span], width: int, ellipsis: str = "…") -> Line:
    """The row in exactly ``width`` cells: cut with an ellipsis, or filled with blanks."""
    return _fit(tuple(line), width, ellipsis)


@functools.lru_cache(maxsize=256)  # most rows of a screen are those of the picture before
def _fit(line: Line, width: int, ellipsis: str) -> Line:
    spans: list[Span] = []
    room = width
    for text, ink in line:
        cells = cells_of(text)
        if cells > room:
            if room > 0:
                cut = shorten(text, room, ellipsis)
                spans.append((cut, ink))
                room -= cells_of(cut)
            break
        spans.append((text, ink))
        room -= cells
    if room > 0:
        spans.append((" " * room, "text"))
    return tuple(spans)


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most ``width`` cells, broken at blanks where there are any."""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        candidate = f"{line} {word}" if line else word
        if cells_of(candidate) <= width:
            line = candidate
            continue
        if line:
            lines.append(line)
        while cells_of(word) > width:
            head = shorten(word, width, "")
            lines.append(head)
            word = word[len(head) :]
        line = word
    return [*lines, line] if line or not lines else lines


def spread(left: Line, right: Line, width: int, ellipsis: str = "…") -> Line:
    """``left`` at the left edge and ``right`` at the right one; the left gives way when room is short."""
    taken = width_of(right)
    if taken >= width:
        return fit(right, width, ellipsis)
    return fit(left, width - taken, ellipsis) + right
