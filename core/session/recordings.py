"""Where recordings lie and what they are called."""

import os
import re
import time
from pathlib import Path

from specpanel.core.settings.paths import data_folder

SUFFIX = ".ndjson"


def recordings_folder() -> Path:
    """Where runs and panels record."""
    return data_folder() / "recordings"


def recording_path(name: str, folder: Path | None = None) -> Path:
    """A file that does not exist yet, for a run called ``name`` that begins now. Makes nothing."""
    safe = re.sub(r"[^A-Za-z0-9._+-]", "-", name).lstrip(".-") or "run"
    stem = f"{safe[:100]}-{time.strftime('%Y%m%d-%H%M%S')}"
    where = recordings_folder() if folder is None else folder
    taken = [where / f"{stem}{SUFFIX}", *(where / f"{stem}-{n}{SUFFIX}" for n in range(2, 100))]
    return next((path for path in taken if not os.path.lexists(path)), taken[0])
