"""From pydantic's list of errors to one sentence with the place and a fix."""

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from specpanel.core.errors import ConfigurationError
from specpanel.core.settings.drafters import DRAFTERS, METHODS
from specpanel.core.settings.profile import Profile
from specpanel.core.settings.toml_lines import line_of


def complaint(
    error: ValidationError,
    path: Path | None,
    text: str,
    sources: Mapping[str, str],
) -> ConfigurationError:
    """The first thing that is wrong, and how many more there are.

    Args:
        path: the profile's file; None where the profile came from flags alone.
        sources: how flags and environment set a value, for example ``{"engine.port": "--port"}``:
            an error there is theirs, not the file's.
    """
    problems = error.errors(include_url=False)
    first = problems[0]
    place = tuple(str(part) for part in first["loc"] if str(part) not in METHODS)
    dotted = ".".join(place)
    source = sources.get(dotted)
    if source is None and (dotted == "drafter" or first["type"] == "missing"):
        source = sources.get(f"{place[0]}.method")
    if source is not None:
        where = source
    elif path is None:
        where = dotted
    else:
        line = line_of(text, place)
        where = f"{path}, line {line}: {dotted}" if line else f"{path}: {dotted}"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    reason, fix = _sentence(first, place)
    return ConfigurationError(f"{where}: {reason}{more}", fix)


def _sentence(problem: Any, place: tuple[str, ...]) -> tuple[str, str]:
    kind = problem["type"]
    value = problem.get("input")
    if kind == "union_tag_invalid":
        tag = str(problem["ctx"]["tag"])
        return f"{tag!r} is no drafter", closest(tag, METHODS)
    if kind == "union_tag_not_found":
        return "the drafter has no method", f"Say method = one of {', '.join(METHODS)}."
    if kind == "missing":
        dotted = ".".join(place)
        return f"{dotted} is missing", f"Write it in the profile, or say --set {dotted}=VALUE."
    if kind == "extra_forbidden":
        method = next((str(part) for part in problem["loc"][1:-1] if part in METHODS), None)
        if method is not None:
            known = [name for name in DRAFTERS[method].model_fields if name != "method"]
            return (
                f"the drafter {method} has no {place[-1]}",
                closest(place[-1], known) if known else "Choose a drafter with --drafter.",
            )
        return "there is no such setting", closest(place[-1], _siblings(place))
    reason = problem["msg"]
    reason = reason.removeprefix("Value error, ").replace("Input should be", "should be")
    shown = "" if isinstance(value, dict) else f" (it is {value!r})"
    return f"{reason}{shown}", ""


def closest(word: str, known: Iterable[str]) -> str:
    """A fix that names what was probably meant, or everything there is."""
    choices = list(known)
    near = difflib.get_close_matches(word, choices, n=1)
    if near:
        return f"Did you mean {near[0]}? Known: {', '.join(choices)}."
    return f"Known: {', '.join(choices)}."


def _siblings(place: tuple[str, ...]) -> list[str]:
    """Names of the settings beside the one at ``place``."""
    if len(place) < 2:
        return list(Profile.model_fields)
    section = (
        Profile.model_fields[place[0]].annotation if place[0] in Profile.model_fields else None
    )
    return list(getattr(section, "model_fields", {}))
