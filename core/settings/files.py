"""Profiles as TOML files: read with file, line and reason in every error, written whole."""

import contextlib
import difflib
import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tomli_w
from pydantic import ValidationError

from specpanel.core.errors import ConfigurationError
from specpanel.core.printable import one_line
from specpanel.core.private import private_opener
from specpanel.core.settings.complaints import complaint
from specpanel.core.settings.overrides import Overrides, overlaid
from specpanel.core.settings.paths import profiles_folder
from specpanel.core.settings.profile import Profile, is_profile_name
from specpanel.core.settings.toml_lines import line_of

PRESETS = Path(__file__).parent / "presets"
_LARGEST_BYTES = 1 << 20

Origin = Literal["yours", "preset"]


@dataclass(frozen=True, slots=True)
class ProfileFile:
    """One profile on disk: either ``profile`` or the ``error`` that keeps it from being one.

    ``laid_over`` are settings that something else than the file gave, by dotted name with who gave them, and
    ``own`` is then what the file says by itself, where it can stand alone.
    """

    name: str
    path: Path
    origin: Origin
    profile: Profile | None
    error: ConfigurationError | None
    laid_over: Mapping[str, str] = field(default_factory=dict)
    own: Profile | None = None

    def to_write(self, edited: Profile) -> Profile:
        """What of edits over ``profile`` belongs into a file: not what was laid over it and left alone."""
        if not self.laid_over or self.own is None or self.profile is None:
            return edited
        from specpanel.core.settings.own_settings import without_laid_over

        return without_laid_over(edited, self.profile, self.own, self.laid_over)


def read_table(path: Path) -> tuple[dict[str, Any], str]:
    """The file's content as a table, and its text.

    Raises:
        ConfigurationError: not there, not readable, not UTF-8, too large or not TOML.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ConfigurationError(f"{path} is not a file")
        size = status.st_size
        if size > _LARGEST_BYTES:
            raise ConfigurationError(f"{path} is too large for a profile ({size} bytes)")
        text = path.read_text(encoding="utf-8-sig")
        return tomllib.loads(text), text
    except FileNotFoundError:
        raise ConfigurationError(
            f"there is no profile at {path}", "specpanel profile list shows what there is."
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not a text in UTF-8: {error.reason}") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(
            f"{path} is not TOML: {error}", "specpanel profile new writes one to start from."
        ) from None
    except RecursionError:
        raise ConfigurationError(f"{path} cannot be read: it is nested too deeply") from None
    except ValueError as error:  # tomllib lets Python's own out, for a number of 5000 digits
        raise ConfigurationError(f"{path} cannot be read: {error}") from None


def read_profile(path: Path, overrides: Overrides | None = None) -> Profile:
    """The profile in ``path``, with ``overrides`` laid over it.

    Raises:
        ConfigurationError: with file, line and reason.
    """
    table, text = read_table(path)
    table = {"name": path.stem, **table}
    if table["name"] != path.stem:
        line = line_of(text, ("name",))
        raise ConfigurationError(
            f"{path}, line {line}: name is {table['name']!r}, but the file is called {path.stem!r}",
            "Leave name out: the file's name is the profile's.",
        )
    try:
        return Profile.model_validate(overlaid(table, overrides.values if overrides else {}))
    except ValidationError as error:
        raise complaint(error, path, text, overrides.sources if overrides else {}) from None


def catalogue(folder: Path | None = None, overrides: Overrides | None = None) -> list[ProfileFile]:
    """Every profile: the user's first, then presets that no file of the user's hides.

    A broken file is listed with its error and hides no other. ``overrides`` are laid over each.
    """
    found: dict[str, ProfileFile] = {}
    places: tuple[tuple[Origin, Path], ...] = (
        ("yours", folder or profiles_folder()),
        ("preset", PRESETS),
    )
    for origin, place in places:
        for path in sorted(place.glob("*.toml")):
            if path.stem not in found:
                found[path.stem] = _listed(path, origin, overrides)
    return list(found.values())


def _listed(path: Path, origin: Origin, overrides: Overrides | None) -> ProfileFile:
    try:
        profile = read_profile(path, overrides)
        if overrides is None or not overrides.values:
            return ProfileFile(path.stem, path, origin, profile, None)
        own = None
        with contextlib.suppress(ConfigurationError):  # what lies over it may be what it lacks
            own = read_profile(path)
        return ProfileFile(path.stem, path, origin, profile, None, overrides.sources, own)
    except ConfigurationError as error:
        return ProfileFile(path.stem, path, origin, None, error)


def find_profile(name: str) -> Path:
    """The file of a profile given by name or by path.

    Raises:
        ConfigurationError: there is none; names that come close are told.
    """
    if name.endswith(".toml") or os.sep in name:
        path = Path(os.path.expanduser(name))
        if not _is_file(path):
            if os.path.exists(path):  # unlike Path's, it has an answer for every name
                raise ConfigurationError(f"{path} is not a file", "Name a profile's TOML file.")
            raise ConfigurationError(
                f"there is no profile at {path}", "specpanel profile list shows what there is."
            )
        return path
    if not name.strip():
        raise ConfigurationError(
            f"there is no profile called {name!r}", "specpanel profile list shows all."
        )
    for folder in (profiles_folder(), PRESETS):
        path = folder / f"{name}.toml"
        if _is_file(path):
            return path
    names = sorted(
        {file.stem for folder in (profiles_folder(), PRESETS) for file in folder.glob("*.toml")}
    )
    close = difflib.get_close_matches(name, names, n=3)
    meant = f"Did you mean {' or '.join(close)}? " if close else ""
    raise ConfigurationError(
        f"there is no profile called {name}", f"{meant}specpanel profile list shows all."
    )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long, a folder that may not be searched
        return False


def profile_text(profile: Profile) -> str:
    """The profile as TOML, defaults left out."""
    table = profile.model_dump(mode="json", exclude_defaults=True, exclude={"name"})
    table["schema_version"] = profile.schema_version
    table["drafter"] = {
        "method": profile.drafter.method,
        **profile.drafter.model_dump(mode="json", exclude_defaults=True),
    }
    return tomli_w.dumps({"schema_version": table.pop("schema_version"), **table})


def require_free(name: str, *, overwrite: bool = False) -> Path:
    """Where a profile of that name would be written.

    Raises:
        ConfigurationError: no profile can be called so, or a file of that name is there already and is not to
            be written over.
    """
    if not is_profile_name(name):
        raise ConfigurationError(
            f"{one_line(name, 80)!r} cannot be the name of a profile",
            "Take letters, digits, dot, dash, plus and underscore, at most 64, a letter or digit first.",
        )
    path = profiles_folder() / f"{name}.toml"
    if path.exists() and not overwrite:
        raise ConfigurationError(
            f"there is already a profile called {name} at {path}",
            "Choose another name, or say --force.",
        )
    return path


def write_profile(profile: Profile, *, overwrite: bool = False) -> Path:
    """Write the profile into the user's folder; whole or not at all.

    Raises:
        ConfigurationError: a file of that name is there already, or the folder is not writable.
    """
    path = require_free(profile.name, overwrite=overwrite)
    partial = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(partial, "w", encoding="utf-8", opener=private_opener) as file:
            file.write(profile_text(profile))
        os.replace(partial, path)
    except (OSError, UnicodeEncodeError) as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        reason = error.strerror if isinstance(error, OSError) else "it holds what is no text"
        raise ConfigurationError(f"{path} cannot be written: {reason or error}") from None
    return path
