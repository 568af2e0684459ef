"""What the arguments that are passed on to vLLM say, where specpanel has no setting of its own. Pure."""

from collections.abc import Mapping

from specpanel.core.preflight.surroundings import Surroundings
from specpanel.core.settings.profile import Profile

_SHORT = {
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-tp": "--tensor-parallel-size",
    "-ac": "--attention-config",
    "-cc": "--compilation-config",
}


def argument(profile: Profile, flag: str) -> str | None:
    """The last value of a flag among ``engine.arguments``; "" for one without a value, None if absent."""
    found: str | None = None
    words = profile.engine.arguments
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        name = _SHORT.get(name, name.replace("_", "-"))
        if name != flag:
            continue
        if equals:
            found = value
        else:
            after = words[place + 1] if place + 1 < len(words) else ""
            found = "" if after.startswith("-") else after
    return found


def whole_argument(profile: Profile, flag: str) -> int | None:
    """The flag's value as a whole number; None where it is absent or none."""
    value = argument(profile, flag)
    return int(value) if value is not None and value.isdigit() else None


def pipeline_parallel_size(profile: Profile) -> int:
    return whole_argument(profile, "--pipeline-parallel-size") or 1


def data_parallel_size(profile: Profile) -> int:
    return whole_argument(profile, "--data-parallel-size") or 1


def tensor_parallel_size(profile: Profile) -> int:
    return profile.engine.tensor_parallel_size or 1


def variables(profile: Profile, around: Surroundings) -> Mapping[str, str]:
    """The environment that vLLM will see, as far as it is known: inherited, then the profile's."""
    return {**around.variables, **profile.mla.variables(), **profile.engine.environment}


def is_on(value: str | None) -> bool:
    """Whether vLLM reads a variable's value as true."""
    return (value or "").strip().lower() in ("1", "true")
