"""Writes the table of keys into docs/panel.md, from the one table that the panel has."""

import sys
from pathlib import Path

from specpanel.app.tui.keys import KEYS, SCOPE_TITLES

PAGE = Path(__file__).parents[1] / "docs" / "panel.md"
BEGIN, END = "<!-- keys -->\n", "<!-- end of keys -->\n"


def keys_table() -> str:
    """Every key by scope: what is pressed, its id, what it does."""
    parts = []
    for scope, title in SCOPE_TITLES.items():
        rows = [
            f"| `{key.shown.replace('|', '&#124;')}` | `{key.id}` | {key.help} |"
            for key in KEYS
            if key.scope == scope
        ]
        parts.append("\n".join([f"### {title}", "", "| key | id | |", "|---|---|---|", *rows, ""]))
    return "\n".join(parts)


def with_table(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{keys_table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.exit(0)
