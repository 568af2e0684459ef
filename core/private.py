"""Files that only their owner may read: state, logs, recordings and results name models and prompts."""

import os
from pathlib import Path

PRIVATE = 0o600


def private_opener(path: str, flags: int) -> int:
    """For ``open(…, opener=…)``: a new file is its owner's alone; one that is there stays as it is."""
    return os.open(path, flags, PRIVATE)


def make_private(path: Path) -> None:
    """Make an empty file of the owner's own where there is none, for a library that opens it by name."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, PRIVATE))
