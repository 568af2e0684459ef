"""The key that vLLM asks its clients for: where it was given, and kept off the list of processes. Pure.

vLLM 0.32.0 takes ``--api-key`` with one or more values, and one from ``VLLM_API_KEY`` where the flag is
absent (``entrypoints/openai/api_server.py``). A command line can be read by every user of the machine.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from specpanel.core.web import is_loopback

if TYPE_CHECKING:
    from specpanel.core.settings.profile import Profile

VARIABLE = "VLLM_API_KEY"
_FLAG = "--api-key"


def keys_in(arguments: Sequence[str]) -> tuple[str, ...]:
    """The values that the last ``--api-key`` among these arguments has."""
    return _taken_apart(arguments)[1]


def key_in_environment(arguments: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The arguments without a single key, and the variable that carries it instead.

    Several keys have no variable: they stay where they are.
    """
    rest, keys = _taken_apart(arguments)
    return (rest, {VARIABLE: keys[0]}) if len(keys) == 1 else (tuple(arguments), {})


def api_key(profile: "Profile", inherited: Mapping[str, str]) -> str | None:
    """A key that a server started from this profile will take; None where it asks for none."""
    given = keys_in(profile.engine.arguments)
    if given:
        return given[0]
    return profile.engine.environment.get(VARIABLE) or inherited.get(VARIABLE) or None


def key_to_tell(
    profile: "Profile", inherited: Mapping[str, str], url: str, *, ours: bool
) -> str | None:
    """vLLM's own key, for a server of ours or of this machine; no other server is told it."""
    near = ours or is_loopback(urlsplit(url).hostname or "")
    return api_key(profile, inherited) if near else None


def _taken_apart(arguments: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    rest: list[str] = []
    keys: list[str] = []
    inside = False
    for word in arguments:
        name, equals, value = word.partition("=")
        if name.replace("_", "-") == _FLAG:
            keys, inside = ([value], False) if equals else ([], True)
        elif inside and not word.startswith("-"):
            keys.append(word)
        else:
            inside = False
            rest.append(word)
    return tuple(rest), tuple(keys)
