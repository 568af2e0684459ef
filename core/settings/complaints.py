"""From pydantic's list of errors to one sentence with the place and a fix."""

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from specpanel.core.errors import ConfigurationError
from specpanel.core.settings.drafters import DRAFTERS, METHODS
from specpanel.core.settings.nearest import nearest_setting
from specpanel.core.settings.profile import Profile
from specpanel.core.settings.toml_lines import line_of

_LONGEST_SHOWN = 80


def complaint(
    error: ValidationError,
    path: Path | None,
    text: str,
    sources: Mapping[str, str],
) -> ConfigurationError:
    """The first thing that is wrong, and how many more there are; ``every`` tells them all.

    Args:
        path: the profile's file; None where the profile came from flags alone.
        sources: how flags and environment set a value, for example ``{"engine.port": "--port"}``:
            an error there is theirs, not the file's.
    """
    problems = error.errors(include_url=False)
    every = tuple(_told(problem, path, text, sources) for problem in problems)
    first, more = every[0], len(every) - 1
    whole = f"{first.message} (and {more} more)" if more else first.message
    found = ConfigurationError(whole, first.fix)
    found.every = every
    return found


def _told(
    problem: Any, path: Path | None, text: str, sources: Mapping[str, str]
) -> ConfigurationError:
    """One thing that is wrong, with its place."""
    place = _place(problem["loc"])
    dotted = ".".join(place)
    source = sources.get(dotted)
    if source is None and problem["type"] == "missing":
        source = sources.get(f"{place[0]}.method")
    if source is None and dotted == "drafter":
        source = next((how for name, how in sources.items() if name.startswith("drafter.")), None)
    if source is not None:
        where = source
    elif path is None:
        where = dotted
    else:
        line = line_of(text, place)
        where = f"{path}, line {line}: {dotted}" if line else f"{path}: {dotted}"
    reason, fix = _sentence(problem, place)
    return ConfigurationError(f"{where}: {reason}", fix)


def _place(loc: tuple[int | str, ...]) -> tuple[str, ...]:
    """Names down to the setting, without the method that pydantic puts behind ``drafter``."""
    parts = tuple(str(part) for part in loc)
    if parts[0] == "drafter" and len(parts) > 1 and parts[1] in METHODS:
        return (parts[0], *parts[2:])
    return parts


def _sentence(problem: Any, place: tuple[str, ...]) -> tuple[str, str]:
    kind = problem["type"]
    value = problem.get("input")
    if kind == "union_tag_invalid":
        tag = str(problem["ctx"]["tag"])
        return f"{tag!r} is no drafter", closest(tag, METHODS)
    if kind == "union_tag_not_found":
        return "the drafter has no method", f"Say --drafter with one of {', '.join(METHODS)}."
    if kind == "missing":
        dotted = ".".join(place)
        flag = {
            "drafter.model": "--draft-model FOLDER",
            "target": "--model FOLDER",
            "target.model": "--model FOLDER",
        }.get(dotted, f"--set {dotted}=VALUE")
        return f"{dotted} is missing", f"Write it in the profile, or say {flag}."
    if kind == "extra_forbidden":
        method = next((str(part) for part in problem["loc"][1:-1] if part in METHODS), None)
        if method is not None:
            known = [name for name in DRAFTERS[method].model_fields if name != "method"]
            return (
                f"the drafter {method} has no {place[-1]}",
                closest(place[-1], known) if known else "Choose a drafter with --drafter.",
            )
        if len(place) < 2:
            return "there is no such setting", closest(place[-1], Profile.model_fields)
        return "there is no such setting", nearest_setting(".".join(place[:2]))
    if kind in ("model_type", "model_attributes_type"):
        return f"should be a table of settings{_shown(place, value)}", f"Write it as [{place[0]}]."
    if place == ("name",) and kind == "string_pattern_mismatch":
        return (
            f"{value!r} cannot be the name of a profile",
            "Call the file by letters, digits, dot, dash and underscore, beginning with a letter "
            "or digit.",
        )
    reason = problem["msg"]
    reason = reason.removeprefix("Value error, ").replace("Input should be", "should be")
    return f"{reason}{_shown(place, value)}", ""


def _shown(place: tuple[str, ...], value: object) -> str:
    """The value that is wrong, unless it says nothing or may hold a secret."""
    if isinstance(value, dict) or place[:2] in (("engine", "environment"), ("engine", "arguments")):
        return ""
    text = repr(value)
    return f" (it is {text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + '…'})"


def closest(word: str, known: Iterable[str]) -> str:
    """A fix that names what was probably meant, else everything there is."""
    choices = list(known)
    near = difflib.get_close_matches(word, choices, n=1)
    return f"Did you mean {near[0]}?" if near else f"Known: {', '.join(choices)}."
