"""Flag before environment before file before default.

Overrides are a flat mapping of dotted names (``engine.port``) to values; later layers win.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specpanel.core.errors import ConfigurationError
from specpanel.core.settings.complaints import closest
from specpanel.core.settings.drafters.names import canonical
from specpanel.core.settings.nearest import nearest_setting, setting_names

ENVIRONMENT_PREFIX = "SPECPANEL_"
SHORT_NAMES: dict[str, str] = {
    "MODEL": "target.model",
    "DRAFTER": "drafter.method",
    "DRAFT_MODEL": "drafter.model",
    "K": "drafter.k",
    "HOST": "engine.host",
    "PORT": "engine.port",
    "PYTHON": "engine.python",
    "CONCURRENCY": "traffic.concurrency",
    "REQUESTS": "traffic.requests",
    "DURATION": "traffic.duration_s",
    "RATE": "traffic.rate_per_s",
}
# Variables of ours that are no settings: of a server's process, of the panel's look.
_NOT_SETTINGS = {
    *("SPECPANEL_SERVER_ID", "SPECPANEL_THEME", "SPECPANEL_CHARTS"),
    "SPECPANEL_GUIDELLM",  # where that program is
}


@dataclass(frozen=True, slots=True)
class Overrides:
    """Values by dotted name, and how each was given, for error messages."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def over(self, lower: "Overrides") -> "Overrides":
        """These laid over ``lower``."""
        return Overrides(lower.values | self.values, lower.sources | self.sources)


def from_environment(environment: Mapping[str, str] | None = None) -> Overrides:
    """What ``SPECPANEL_PORT`` or ``SPECPANEL_ENGINE__PORT`` say. Empty values count as unset.

    Raises:
        ConfigurationError: a variable with our prefix names no setting.
    """
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, value in (os.environ if environment is None else environment).items():
        if not name.startswith(ENVIRONMENT_PREFIX) or name in _NOT_SETTINGS or not value:
            continue
        rest = name.removeprefix(ENVIRONMENT_PREFIX)
        dotted = SHORT_NAMES.get(rest) or rest.lower().replace("__", ".")
        if dotted not in setting_names():
            known = [ENVIRONMENT_PREFIX + short for short in SHORT_NAMES]
            raise ConfigurationError(f"{name} is no setting of specpanel", closest(name, known))
        values[dotted] = value
        sources[dotted] = name
    return Overrides(values, sources)


def from_assignments(assignments: list[str]) -> Overrides:
    """What ``--set engine.port=8001`` says.

    Raises:
        ConfigurationError: no ``=``, or no such setting.
    """
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigurationError(
                f"--set {assignment}: there is no = in it", "Write it like --set engine.port=8001."
            )
        if name not in setting_names():
            raise ConfigurationError(
                f"--set {assignment}: there is no such setting", nearest_setting(name)
            )
        values[name] = value
    return Overrides(values, {name: f"--set {name}" for name in values})


def overlaid(table: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """``table`` with overrides laid over it; ``table`` itself stays as it is.

    Another drafter method drops what the file says of its own drafter: those settings belong to that.
    """
    merged: dict[str, Any] = {
        key: dict(value) if isinstance(value, dict) else value for key, value in table.items()
    }
    method = overrides.get("drafter.method")
    drafter = merged.get("drafter")
    if method is not None and isinstance(drafter, dict):
        written = drafter.get("method")
        if canonical(str(written)) != canonical(str(method)):
            merged["drafter"] = {}
    for dotted, value in overrides.items():
        section, _, name = dotted.partition(".")
        place = merged.setdefault(section, {})
        if isinstance(place, dict):
            place[name] = value
    return merged
