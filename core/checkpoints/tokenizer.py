"""A tokenizer's fingerprint: whether two folders split text the same way, without loading either."""

import hashlib
from pathlib import Path

from specpanel.core.ordinary import read_ordinary

_FILES = ("tokenizer.json", "tekken.json", "tokenizer.model", "vocab.json", "tiktoken.model")
_LIMIT_BYTES = 64 * 1024 * 1024


def tokenizer_digest(folder: Path) -> str | None:
    """SHA-256 of the tokenizer's own file behind its name; None where the folder brings none.

    The same digest means the same tokenizer. Another one means that the files differ, which can be a
    blank or a special token as well as a vocabulary. About 5 ms for a file of 10 MB.
    """
    for name in _FILES:
        file = folder / name
        try:
            if file.is_file():
                return f"{name}:{hashlib.sha256(read_ordinary(file, _LIMIT_BYTES)).hexdigest()}"
        except OSError:
            return None
    return None
