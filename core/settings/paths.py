"""Where specpanel keeps its files, by the XDG rules. Nothing here creates a folder."""

from pathlib import Path

import platformdirs

_APPLICATION = "specpanel"


def config_folder() -> Path:
    """Settings that a person writes: profiles, themes, keys."""
    return Path(platformdirs.user_config_dir(_APPLICATION))


def profiles_folder() -> Path:
    """The user's profiles, one TOML file each."""
    return config_folder() / "profiles"


def cache_folder() -> Path:
    """What can be made again: the demonstration model."""
    return Path(platformdirs.user_cache_dir(_APPLICATION))


def state_folder() -> Path:
    """What outlives a run: state files of running servers, their logs."""
    return Path(platformdirs.user_state_dir(_APPLICATION))


def servers_folder() -> Path:
    """One state file a running server."""
    return state_folder() / "servers"


def logs_folder() -> Path:
    """What servers wrote, one file a launch."""
    return state_folder() / "logs"


def data_folder() -> Path:
    """Recordings and results."""
    return Path(platformdirs.user_data_dir(_APPLICATION))
