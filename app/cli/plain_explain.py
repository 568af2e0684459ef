"""What vLLM chose, and what is wrong with its acceptance, as lines for a person. Pure."""

from collections.abc import Iterator, Sequence

from specpanel.core.engine.chosen import Choice
from specpanel.core.speculation.pathologies import Pathology

_MARKS = {"error": "✗", "warning": "!", "note": "·"}


def choice_lines(choices: Sequence[Choice]) -> Iterator[str]:
    """One line for all that was said, and one for each thing that is otherwise than wished."""
    said = [f"{choice.name} {choice.chosen}" for choice in choices if choice.chosen is not None]
    if said:
        yield "vLLM chose: " + ", ".join(said)
    for choice in choices:
        if choice.agrees is False and choice.wished is not None and choice.chosen is not None:
            where = f" ({choice.setting})" if choice.setting else ""
            yield f"! {choice.name}: wished {choice.wished}, vLLM took {choice.chosen}{where}"


def finding_line(found: Pathology) -> str:
    """The finding in one line, with its likeliest cause."""
    cause = f" — likely: {found.causes[0].text}" if found.causes else ""
    return f"{_MARKS[found.severity]} {found.sentence}{cause}"


def finding_lines(found: Pathology) -> Iterator[str]:
    """The finding with its evidence and every cause, the likeliest first, and how to tell.

    A note is one line.
    """
    if found.severity == "note":
        yield finding_line(found)
        return
    yield f"{_MARKS[found.severity]} {found.sentence}"
    for evidence in found.evidence:
        yield f"  counted: {evidence}"
    for number, cause in enumerate(found.causes, start=1):
        where = f" [{cause.setting}]" if cause.setting else ""
        yield f"  {number}. {cause.text}{where}"
        yield f"     {cause.tell}"
