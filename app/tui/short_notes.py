"""The notes on acceptance in fewer words, for one row of 80 columns. Pure."""

import re

# As the monitor words them, and recordings keep them; and what is left of each.
_SHORTER = (
    (
        re.compile(r"(only \d+% of steps) had a draft; the others yield .* not in this figure"),
        r"\1 drafted (acceptance is of those)",
    ),
    (
        re.compile(r"some steps drafted fewer than \d+ tokens, so rates after position 1 are"),
        "later rates",
    ),
)


def shorter(note: str) -> str:
    """The same in fewer words, where there are such."""
    for pattern, words in _SHORTER:
        note = pattern.sub(words, note)
    return note
