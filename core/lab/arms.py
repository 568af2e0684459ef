"""What an experiment compares: profiles with names, how each is told apart, and what differs. Pure."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from specpanel.core.engine.registry import table_without_secrets
from specpanel.core.errors import ConfigurationError
from specpanel.core.session.switching import Change, differences
from specpanel.core.settings.profile import Profile, Traffic

# What does not change how fast a token is made.
_INDIFFERENT = frozenset({"port", "host", "python", "start_silence_s", "stop_timeout_s"})


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of a comparison."""

    name: str
    profile: Profile


def arms_of(profiles: Sequence[Profile], traffic: Traffic | None = None) -> tuple[Arm, ...]:
    """Each profile as an arm, all with the first one's traffic (or ``traffic``), names made different.

    Raises:
        ConfigurationError: fewer than two, or profiles with different targets.
    """
    if len(profiles) < 2:
        raise ConfigurationError("a comparison needs two profiles or more", "Name another one.")
    first = profiles[0]
    if any(other.target.model != first.target.model for other in profiles[1:]):
        raise ConfigurationError(
            "the profiles have different targets, so their answers are different work",
            "Compare drafters of one target.",
        )
    shared = traffic or first.traffic
    names: list[str] = []
    for profile in profiles:
        count = sum(name.partition("#")[0] == profile.name for name in names)
        names.append(f"{profile.name}#{count + 1}" if count else profile.name)
    return tuple(
        Arm(name, profile.model_copy(update={"traffic": shared}))
        for name, profile in zip(names, profiles, strict=True)
    )


def launch_fingerprint(profile: Profile) -> str:
    """The same for profiles that launch the same thing, whatever their names, ports and traffic."""
    table = table_without_secrets(profile)
    kept = {
        "target": table.get("target"),
        "engine": {
            key: value
            for key, value in (table.get("engine") or {}).items()
            if key not in _INDIFFERENT
        },
        "drafter": table.get("drafter"),
        "mla": table.get("mla"),
    }
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def what_differs(a: Profile, b: Profile) -> tuple[Change, ...]:
    """Settings of the launch that differ; the traffic is shared."""
    return tuple(
        change
        for change in differences(a, b)
        if not change.setting.startswith(("traffic.", "engine.port"))
    )
