"""Sections of docs/measurements.md that different scripts write: each replaces its own and keeps the rest."""

import re
from pathlib import Path

_BEGIN = "<!-- {name}: written by {script} -->"
_END = "<!-- end of {name} -->"


def put_section(page: Path, name: str, script: str, text: str) -> None:
    """Put ``text`` where the section ``name`` stands, or at the end of the page."""
    begin, end = _BEGIN.format(name=name, script=script), _END.format(name=name)
    section = f"{begin}\n{text.strip()}\n{end}\n"
    before = page.read_text(encoding="utf-8") if page.exists() else "# Measurements\n"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}\n", re.DOTALL)
    after, found = pattern.subn(lambda _: section, before)
    page.write_text(after if found else f"{before.rstrip()}\n\n{section}", encoding="utf-8")


def sections(page: Path) -> str:
    """All sections of the page, by script or by hand, for who writes what stands before them to keep."""
    if not page.exists():
        return ""
    text = page.read_text(encoding="utf-8")
    start = re.search(r"^(?:<!-- |## )", text, re.MULTILINE)
    return "" if start is None else f"\n{text[start.start() :]}"
