"""What a form lists: a heading a section and, below it, the rows that are not folded away. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from specpanel.app.tui.ink import clean
from specpanel.core.engine.command import redacted, redacted_argv
from specpanel.core.settings.rows import Row, text_of

_ALWAYS = frozenset({"target.model", "drafter.method", "drafter.model", "drafter.k", "engine.port"})


@dataclass(frozen=True, slots=True)
class Heading:
    """The head of a section: how many of its settings are set, and how many rest on their default."""

    section: str
    set_count: int
    default_count: int
    hidden_count: int
    unfolded: bool


Entry = Heading | Row


def key_of(entry: Entry) -> str:
    """What the cursor remembers of an entry: the section, or the dotted name."""
    return entry.section if isinstance(entry, Heading) else entry.dotted


def entries(
    rows: Sequence[Row],
    errors: Mapping[str, str],
    *,
    words: str = "",
    unfolded: Collection[str] = (),
) -> tuple[Entry, ...]:
    """The entries of a form.

    Args:
        words: only rows that match are listed, folded or not.
        unfolded: sections that list their defaults, too. A row with an error is always listed.
    """
    listed: list[Entry] = []
    for section, group in groupby(rows, key=lambda row: row.section):
        every = tuple(group)
        if words:
            shown = [row for row in every if row.matches(words)]
        else:
            shown = [
                row
                for row in every
                if section in unfolded
                or row.source != "default"
                or row.dotted in _ALWAYS
                or row.dotted in errors
            ]
        if words and not shown:
            continue
        defaults = sum(row.source == "default" for row in every)
        hidden = len(every) - len(shown)
        listed.append(
            Heading(section, len(every) - defaults, defaults, hidden, section in unfolded)
        )
        listed.extend(shown)
    return tuple(listed)


def value_text(row: Row) -> str:
    """The value as it stands in its row, or the default; secrets are not shown."""
    value = row.default if row.value is None else row.value
    if row.kind == "variables" and isinstance(value, Mapping):
        value = {name: redacted(name, str(content)) for name, content in value.items()}
        return clean(" ".join(f"{name}={content}" for name, content in value.items())) or "none"
    if row.kind == "words" and isinstance(value, list):
        value = list(redacted_argv(tuple(map(str, value))))
    text = clean(text_of(row, value))
    if text:
        return text
    if row.required:
        return ""
    if row.kind == "words":
        return "none"
    return "vLLM decides" if row.flag else "not set"


KIND_WORDS: Mapping[str, str] = {
    "text": "text",
    "integer": "whole number",
    "number": "number",
    "choice": "one of a list",
    "toggle": "yes or no",
    "words": "words as in a shell",
    "variables": "NAME=value, blanks between",
}


def facts_of(row: Row) -> list[str]:
    """Type, bounds, name, flag and where the value comes from, one text each."""
    default = "" if row.default in (None, "", [], {}) else f" (default {text_of(row, row.default)})"
    source = {
        "default": "the default",
        "profile": f"from the profile{default}",
        "edited": f"edited{default}",
    }[row.source]
    facts = [KIND_WORDS[row.kind], row.bounds, row.flag or "", row.dotted, source]
    if row.value is not None and not row.required:
        facts.append("del resets")
    return [fact for fact in facts if fact]
