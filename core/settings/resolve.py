"""From a profile's name, flags and environment to the one Profile that is run."""

import re
from pathlib import Path

from pydantic import ValidationError

from specpanel.core.errors import ConfigurationError
from specpanel.core.settings.complaints import complaint
from specpanel.core.settings.files import find_profile, read_profile
from specpanel.core.settings.overrides import Overrides, overlaid
from specpanel.core.settings.profile import Profile


def resolve(name: str | None, overrides: Overrides) -> Profile:
    """The profile called ``name`` (or in that file), with ``overrides`` laid over it.

    Without a name the overrides must hold ``target.model``, and everything else is default.

    Raises:
        ConfigurationError: with the place, the reason and a fix.
    """
    if name is not None:
        return read_profile(find_profile(name), overrides)
    if "target.model" not in overrides.values:
        raise ConfigurationError(
            "no profile and no model was given",
            "Name a profile (specpanel profile list) or say --model FOLDER.",
        )
    table = {"name": _name_for(str(overrides.values["target.model"]))}
    try:
        return Profile.model_validate(overlaid(table, overrides.values))
    except ValidationError as error:
        raise complaint(error, None, "", overrides.sources) from None


def _name_for(model: str) -> str:
    stem = re.sub(r"[^A-Za-z0-9._-]", "-", Path(model).name).strip("-._")
    return stem[:64] or "model"
