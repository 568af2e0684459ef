"""State files: one a server that specpanel started, so that a later specpanel finds it again.

The file is written before the process starts and carries an id that is also in the child's environment:
even a panel killed between the two leaves no server that nobody knows of.
"""

import os
import re
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from specpanel.core.engine.command import redacted, redacted_argv
from specpanel.core.engine.metrics_folder import forget_metrics
from specpanel.core.errors import ConfigurationError, NotRunningError
from specpanel.core.private import private_opener
from specpanel.core.settings.paths import servers_folder
from specpanel.core.settings.profile import Profile

SCHEMA_VERSION = 1
_ROOM_BYTES = 8192  # more than a state file has


class ServerRecord(BaseModel):
    """One server as its state file describes it. Times are Unix seconds."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    schema_version: int = SCHEMA_VERSION
    id: str
    name: str
    profile: str
    model: str
    drafter: str
    draft_tokens: int | None = None
    host: str
    port: int
    log: Path
    argv: tuple[str, ...]
    started_unix: float
    owner_pid: int
    pid: int | None = None  # None until the process exists; its session has the same number
    start_mark: str | None = None  # identifies the process beyond its pid (see identity.py)
    settings_table: dict[str, Any] | None = None  # the profile, secrets left out
    forced: tuple[str, ...] = ()  # preflight's errors that were overridden

    @property
    def settings(self) -> Profile | None:
        """The profile it was started from; None where another version wrote one that we cannot read."""
        try:
            return (
                None if self.settings_table is None else Profile.model_validate(self.settings_table)
            )
        except ValidationError:
            return None

    @property
    def url(self) -> str:
        host = "127.0.0.1" if self.host in ("0.0.0.0", "", "::") else self.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def new_id() -> str:
    return uuid.uuid4().hex


def table_without_secrets(profile: Profile) -> dict[str, Any]:
    """The profile as a table for the state file; variables that look like secrets are left out."""
    table = profile.model_dump(mode="json")
    environment = table["engine"]["environment"]
    table["engine"]["environment"] = {
        name: value for name, value in environment.items() if redacted(name, value) == value
    }
    table["engine"]["arguments"] = list(redacted_argv(profile.engine.arguments))
    return table


def record_path(record: ServerRecord) -> Path:
    return servers_folder() / f"{record.id}.json"


def save(record: ServerRecord) -> None:
    """Write the state file whole or not at all.

    Raises:
        ConfigurationError: its folder cannot be written.
    """
    path = record_path(record)
    partial = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(partial, "w", encoding="utf-8", opener=private_opener) as file:
            file.write(record.model_dump_json(indent=2) + "\n")
        os.replace(partial, path)
    except OSError as error:
        raise _unwritable(f"the state file {path}", error) from error


def require_folder() -> None:
    """Refuse, before anything slow is done, where no state file could be written.

    Raises:
        ConfigurationError: its folder cannot be made or written, or its disk is full.
    """
    folder = servers_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(bytes(_ROOM_BYTES))
    except OSError as error:
        raise _unwritable(f"a state file in {folder}", error) from error


def _unwritable(what: str, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"{what} cannot be written: {error.strerror or error}",
        "Without it nobody could find the server again: set XDG_STATE_HOME to another folder.",
    )


def forget(record: ServerRecord) -> None:
    forget_metrics(record.id)
    record_path(record).unlink(missing_ok=True)


def records() -> list[ServerRecord]:
    """Every readable state file, oldest first. A file that cannot be read hides no other."""
    return sorted(_readable(), key=lambda record: record.started_unix)


def _readable() -> Iterator[ServerRecord]:
    for path in servers_folder().glob("*.json"):
        try:
            yield ServerRecord.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            continue


def free_name(wanted: str, taken: set[str]) -> str:
    """``wanted``, or ``wanted-2`` and so on where a running server has that name."""
    if wanted not in taken:
        return wanted
    return next(f"{wanted}-{n}" for n in range(2, len(taken) + 3) if f"{wanted}-{n}" not in taken)


def log_path(folder: Path, name: str) -> Path:
    """A fresh log file for one launch: the name, the time and a part that makes it unique."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".-")[:100] or "server"
    return folder / f"{safe}-{stamp}-{uuid.uuid4().hex[:4]}.log"


def find(name: str, among: list[ServerRecord]) -> ServerRecord:
    """The record with this name, id prefix, pid or port.

    Raises:
        NotRunningError: there is none.
    """
    for record in reversed(among):
        if name in (record.name, str(record.pid), str(record.port), f":{record.port}"):
            return record
    for record in among:
        if len(name) >= 4 and record.id.startswith(name):
            return record
    known = ", ".join(record.name for record in among) or "none"
    raise NotRunningError(f"no running server is called {name} (running: {known})")
