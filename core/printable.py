"""Text from outside, made fit to be shown."""

import re
import unicodedata


def one_line(text: str, limit: int = 200) -> str:
    """``text`` as one printable line of at most ``limit`` characters."""
    flat = " ".join(text[: 4 * limit].split())
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in flat)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def cells(text: str) -> int:
    """Cells of a terminal that ``text`` takes: wide characters and emoji two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(map(_cells_of, text))


def _cells_of(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def padded(text: str, width: int) -> str:
    """``text`` with blanks behind it up to ``width`` cells; a longer one stays as it is."""
    return text + " " * max(0, width - cells(text))


def clipped(text: str, width: int) -> str:
    """``text`` in at most ``width`` cells, the last of them an ellipsis where it was longer."""
    if cells(text) <= width:
        return text
    kept, left = 0, width - 1
    for char in text:
        left -= _cells_of(char)
        if left < 0:
            break
        kept += 1
    return f"{text[:kept]}…" if width > 0 else ""


def without_controls(text: str) -> str:
    """``text`` as it can be written to a terminal: lines stay, escape sequences and other controls do not."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text
    )


# Tokens of the hub and of HTTP, and keys given on a command line.
_SECRETS = re.compile(
    r"\bhf_[A-Za-z0-9]{8,}|(?<=Bearer )\S+|(?<=[?&]token=)[^&\s]+"
    r"|(?<=api_key=)\S+|(?<='api_key': )[^,}]+"
)


def without_secrets(text: str) -> str:
    """``text`` with what looks like a secret replaced by ``***``."""
    return _SECRETS.sub("***", text)
