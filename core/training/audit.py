"""The audit log: one line of JSON for every promotion that was tried, whatever came of it."""

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from specpanel.core.errors import RecordingError
from specpanel.core.monitor.recording import line
from specpanel.core.settings.paths import data_folder
from specpanel.core.training.judging import Gain

KIND = "promotion"
Result = Literal[
    "on trial",
    "promoted",
    "measured",
    "rolled back",
    "kept the old one",
    "refused",
    "failed",
    "interrupted",
]
Way = Literal["in place", "restart"]


@dataclass(frozen=True, slots=True)
class Promotion:
    """One attempt; "on trial" is written when the candidate is swapped in, another result at the end.

    "measured": only that was asked for. ``predicted`` is the acceptance length that the candidate's trainer
    foretold, where its run is known.

    ``before`` and ``candidate`` are folders; fingerprints tell what really ran.

    ``paused_s`` is how long the server did no step, in one swap; None where it came to none. ``url_after``
    is where the candidate serves after a promotion by restart.
    """

    unix: float
    server: str
    url: str
    way: Way
    result: Result
    reason: str
    before: str | None
    candidate: str
    fingerprint_before: str | None
    fingerprint_after: str | None
    gain: Gain | None
    predicted: float | None
    margin: float
    paused_s: float | None
    took_s: float
    user: str
    url_after: str | None = None


_promotions = TypeAdapter(Promotion)


def audit_path() -> Path:
    """Where promotions are written, for all servers and runs of this user."""
    return data_folder() / "promotions.ndjson"


def promotion_line(promotion: Promotion) -> str:
    return line(KIND, asdict(promotion))


def write(promotion: Promotion, path: Path | None = None) -> None:
    """Append one line; it is on the disk when this returns.

    Raises:
        RecordingError: it cannot be written.
    """
    path = path or audit_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        content = (promotion_line(promotion) + "\n").encode()
        # One write in append mode: two specpanels at once do not mix their lines.
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, content)
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        raise RecordingError(
            f"the audit log {path} cannot be written: {error.strerror or error}",
            "Free some space there, or set XDG_DATA_HOME to a folder that you may write to.",
        ) from error


def read(path: Path | None = None) -> tuple[Promotion, ...]:
    """Every promotion, oldest first. A line that is none, such as one cut short, is passed over.

    Raises:
        RecordingError: the log is there and cannot be read.
    """
    path = path or audit_path()
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise RecordingError(
            f"the audit log {path} cannot be read: {error.strerror or error}"
        ) from error
    found = (_promotion(text) for text in lines)
    return tuple(one for one in found if one is not None)


def _promotion(text: bytes) -> Promotion | None:
    try:
        content: Any = json.loads(text)
        return _promotions.validate_python(content) if content.get("kind") == KIND else None
    except (ValueError, ValidationError, AttributeError):
        return None


def now() -> float:
    return time.time()
