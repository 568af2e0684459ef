"""Where in a TOML file a key stands, for error messages that a person can follow."""

import re

_TABLE = re.compile(r"^\s*\[\s*([^\[\]]+?)\s*\]")
_KEY = re.compile(r"^\s*([A-Za-z0-9_.\"'-]+?)\s*=")


def line_of(text: str, path: tuple[str, ...]) -> int | None:
    """Line number (from 1) where the dotted ``path`` is set; that of its table where it is missing."""
    table: tuple[str, ...] = ()
    best: int | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        if header := _TABLE.match(line):
            table = _parts(header.group(1))
            if _lead_to(table, path):
                if len(table) >= len(path):
                    return number
                best = number
        elif key := _KEY.match(line):
            full = table + _parts(key.group(1))
            if _lead_to(full, path):
                return number
    return best


def _lead_to(names: tuple[str, ...], path: tuple[str, ...]) -> bool:
    """Whether one of the two begins with the other: ``[engin.x]`` is where ``engin`` stands."""
    shared = min(len(names), len(path))
    return shared > 0 and names[:shared] == path[:shared]


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))
