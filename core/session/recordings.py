"""Where recordings lie and what they are called."""

import os
import re
import time
from contextlib import suppress
from itertools import count
from pathlib import Path

from specpanel.core.private import PRIVATE
from specpanel.core.settings.paths import data_folder

SUFFIX = ".ndjson"


def recordings_folder() -> Path:
    """Where runs and panels record."""
    return data_folder() / "recordings"


def recording_path(name: str, folder: Path | None = None) -> Path:
    """A file for a run called ``name`` that begins now, made empty, so that no other run takes it.

    Where it cannot be made, whoever records there tells why.
    """
    safe = re.sub(r"[^A-Za-z0-9._+-]", "-", name).lstrip(".-") or "run"
    stem = f"{safe[:100]}-{time.strftime('%Y%m%d-%H%M%S')}"
    where = recordings_folder() if folder is None else folder
    with suppress(OSError):
        where.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        path = where / (f"{stem}{SUFFIX}" if number == 1 else f"{stem}-{number}{SUFFIX}")
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE))
        except FileExistsError:
            continue
        except OSError:
            pass
        return path
    raise AssertionError  # numbers do not end
