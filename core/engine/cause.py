"""One known failure of vLLM: the pattern of its text, what it means, what to change. Pure."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cause:
    """A row of the tables of known causes.

    ``sentence`` and ``fix`` may use the pattern's named groups. ``where``, when given, must be found in the
    traceback too. A group named ``length`` is the largest max_model_len that would work. ``setting`` is the
    profile's field to change, dotted; None where none helps.
    """

    code: str
    pattern: re.Pattern[str]
    sentence: str
    fix: str
    where: re.Pattern[str] | None = None
    setting: str | None = None


def cause(
    code: str,
    pattern: str,
    sentence: str,
    fix: str,
    where: str | None = None,
    setting: str | None = None,
) -> Cause:
    """A row; case does not count, and a dot stands for a line end, too."""
    return Cause(
        code,
        re.compile(pattern, re.IGNORECASE | re.DOTALL),
        sentence,
        f"{fix}.",
        re.compile(where) if where else None,
        setting,
    )
