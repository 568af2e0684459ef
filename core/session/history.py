"""Past runs: what the recordings in a folder tell, read from their two ends, and two of them compared.

A recording may be hundreds of megabytes, so a list reads at most ``HEAD_BYTES`` and ``TAIL_BYTES`` of
each. Nothing is ever deleted by itself.
"""

import json
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from specpanel.core.errors import ConfigurationError, RecordingError
from specpanel.core.monitor.frame import Frame
from specpanel.core.monitor.recording import SCHEMA_VERSION
from specpanel.core.ordinary import open_ordinary
from specpanel.core.session.bookends import CLOSED, Writer, writer_of
from specpanel.core.session.history_figures import (
    Figures,
    figures_of_frames,
    figures_of_summary,
    number,
)
from specpanel.core.session.recordings import SUFFIX as SUFFIX
from specpanel.core.session.recordings import recording_path as recording_path
from specpanel.core.session.recordings import recordings_folder as recordings_folder
from specpanel.core.session.summary import Summary
from specpanel.core.settings.profile import Profile

HEAD_BYTES = 256 * 1024
TAIL_BYTES = 1024 * 1024

# "left": closed while its server still served; "abruptly": nothing closed it and its writer is gone.
Ended = Literal[
    "done",
    "interrupted",
    "failed",
    "stopped",
    "exited",
    "left",
    "abruptly",
    "writing",
    "no server",
    "broken",
]

_LATELY_S = 30.0  # a run that ends its server writes nothing meanwhile
_STAMP = re.compile(r"-\d{8}-\d{6}(-\d+)?$")
_FIX = "specpanel runs lists them."


@dataclass(frozen=True, slots=True)
class PastRun:
    """One recording. ``why`` says how it failed, or what is wrong with a broken file.

    ``summary`` is None, too, where another version of specpanel wrote one that this one cannot read
    whole; its figures are there all the same.
    """

    path: Path
    size_bytes: int
    name: str
    ended: Ended
    why: str | None = None
    started_unix: float | None = None
    duration_s: float | None = None
    model: str | None = None
    drafter: str | None = None
    draft_tokens: int | None = None
    vllm_version: str | None = None
    figures: Figures | None = None
    summary: Summary | None = None
    settings: Profile | None = None
    writer: Writer | None = None

    @property
    def id(self) -> str:
        """What the command line calls it: the name of its file."""
        return self.path.stem


def past_runs(folder: Path | None = None) -> list[PastRun]:
    """Every recording of the folder, newest first; a broken one hides no other.

    Raises:
        RecordingError: the folder is there and cannot be read.
    """
    where = recordings_folder() if folder is None else folder
    try:
        paths = [path for path in where.iterdir() if path.suffix == SUFFIX]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise RecordingError(
            f"the folder of recordings {where} cannot be read: {error.strerror or error}"
        ) from error
    found = [run for path in paths if (run := _found(path)) is not None]
    return sorted(found, key=lambda run: (run.started_unix or 0.0, run.id), reverse=True)


def _found(path: Path) -> PastRun | None:
    """The run, None where its file has gone in the meantime."""
    with suppress(FileNotFoundError):
        return read_run(path)
    return None


def total_bytes(runs: list[PastRun]) -> int:
    return sum(run.size_bytes for run in runs)


def find_run(name: str, folder: Path | None = None) -> PastRun:
    """The recording called ``name``: its file's name, the beginning of only one, a path, or ``last``.

    Raises:
        ConfigurationError: there is none, or several begin so.
        RecordingError: the folder cannot be read.
    """
    if not name:
        raise ConfigurationError("a run's name cannot be empty", _FIX)
    runs = past_runs(folder)
    for run in runs:
        if name in (run.id, run.path.name):
            return run
    path = Path(name)
    with suppress(OSError):
        if path.is_file():
            return read_run(path)
    if name == "last" and runs:
        return runs[0]
    close = [run for run in runs if run.id.startswith(name)]
    if len(close) == 1:
        return close[0]
    if close:
        raise ConfigurationError(
            f"several recorded runs begin with {name}: {', '.join(run.id for run in close[:5])}",
            "Say more of its name.",
        )
    raise ConfigurationError(f"no recorded run is called {name}", _FIX)


def delete_run(run: PastRun) -> None:
    """Delete the recording.

    Raises:
        RecordingError: it is being written, or cannot be deleted. One that has gone is no error.
    """
    try:
        if read_run(run.path).ended == "writing":
            raise RecordingError(
                f"the recording {run.id} is being written", "End its run or its panel first."
            )
        run.path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        raise RecordingError(
            f"the recording {run.path} cannot be deleted: {error.strerror or error}"
        ) from error


def _written_lately(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime < _LATELY_S
    except OSError:
        return False


def read_run(path: Path) -> PastRun:
    """What the two ends of a recording tell. A file that is none comes back as a broken run.

    Raises:
        FileNotFoundError: there is no file.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        return _broken(path, 0, "it is no regular file")
    run = _read(path, status.st_mtime_ns, status.st_size)
    if run.ended in ("abruptly", "no server") and _is_being_written(run):
        return replace(run, ended="writing", why=None)
    return run


def _is_being_written(run: PastRun) -> bool:
    return _written_lately(run.path) if run.writer is None else run.writer.lives


def _broken(path: Path, size: int, why: str) -> PastRun:
    name, started = _from_name(path)
    return PastRun(path, size, name, "broken", why, started)


def _from_name(path: Path) -> tuple[str, float | None]:
    """Name and start, as the name of the file tells them."""
    stamp = _STAMP.search(path.stem)
    if stamp is None:
        return path.stem, None
    name = path.stem[: stamp.start()] or path.stem
    try:
        return name, time.mktime(time.strptime(stamp.group()[1:16], "%Y%m%d-%H%M%S"))
    except (ValueError, OverflowError):
        return name, None


@lru_cache(maxsize=1024)
def _read(path: Path, _mtime_ns: int, size: int) -> PastRun:
    """The run behind a file that is as it was at this time and size."""
    try:
        head, tail = _ends(path)
        first = _first(head)
        return _told(path, size, head, tail, first)
    except FileNotFoundError:
        raise
    except OSError as error:
        return _broken(path, size, f"it cannot be read: {error.strerror or error}")
    except _NoRecordingError as error:
        return _broken(path, size, str(error))


class _NoRecordingError(Exception):
    """Why a file is no recording, in words."""


def _ends(path: Path) -> tuple[list[bytes], list[bytes]]:
    """Whole lines of the head, and of the tail from the last one back; the tail may be the head."""
    with open_ordinary(path, pipes=False) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(HEAD_BYTES)
        if size <= HEAD_BYTES:
            lines = head.splitlines()
            return lines, lines[::-1]
        start = max(0, size - TAIL_BYTES)
        file.seek(start)
        tail = file.read(TAIL_BYTES).splitlines()[::-1]
    if start > 0:
        tail = tail[:-1]  # its line began before
    return head.splitlines()[:-1], tail


def _first(head: list[bytes]) -> dict[str, Any]:
    text = next((line for line in head if line.strip()), None)
    if text is None:
        raise _NoRecordingError("it is empty" if not head else "it begins with no whole line")
    found = _parsed(text)
    version = None if found is None else found.get("schema_version")
    if found is None or not isinstance(version, int):
        raise _NoRecordingError("its first line is not a line of a recording")
    if version > SCHEMA_VERSION:
        raise _NoRecordingError(f"a newer specpanel wrote it (format {version})")
    return found


def _parsed(text: bytes) -> dict[str, Any] | None:
    """The object of a line; None where it is none, as a last line that a kill cut short."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _of_kind(lines: list[bytes], kind: str) -> Iterator[dict[str, Any]]:
    """Lines of one kind, parsed; the others are told by their beginning and cost nothing."""
    mark = f'"kind": "{kind}"'.encode()
    for text in lines:
        if mark in text[:80] and (found := _parsed(text)) is not None and found["kind"] == kind:
            yield found


def _told(
    path: Path, size: int, head: list[bytes], tail: list[bytes], first: dict[str, Any]
) -> PastRun:
    name, started = _from_name(path)
    # Nothing comes after a summary: no need to look further back than a torn last line.
    table = next(_of_kind(tail[:2], "summary"), None)
    begin = next(_frames(head), None)
    last = next(_frames(tail), None)
    if begin is None and last is None and table is None and first.get("kind") == "frame":
        raise _NoRecordingError("its frames cannot be read")
    closed = next(_of_kind(tail[:2], CLOSED), None)
    ended, why = _end(table, last, closed)
    duration_s = None
    if begin is not None and last is not None:
        duration_s = max(0.0, last.time_unix - begin.time_unix)
    server = {} if last is None else asdict(last.server)
    known = {**server, **{key: value for key, value in (table or {}).items() if value is not None}}
    k = number(known, "draft_tokens")
    return PastRun(
        path=path,
        size_bytes=size,
        name=_text(known, "profile") or _text(known, "name") or name,
        ended=ended,
        why=why,
        started_unix=started if begin is None else begin.time_unix,
        duration_s=duration_s,
        model=_text(known, "model"),
        drafter=_text(known, "drafter"),
        draft_tokens=None if k is None else int(k),
        vllm_version=_text(known, "vllm_version") or _text(known, "version"),
        figures=(table and figures_of_summary(table)) or figures_of_frames(_frames(tail)),
        summary=next(_records(Summary, iter([] if table is None else [table])), None),
        settings=next(_settings(head), None),
        writer=next(map(writer_of, _of_kind(head[:1], Writer.kind)), None),
    )


def _text(table: Mapping[str, Any], key: str) -> str | None:
    found = table.get(key)
    return found if isinstance(found, str) and found else None


def _end(
    summary: Mapping[str, Any] | None, last: Frame | None, closed: Mapping[str, Any] | None
) -> tuple[Ended, str | None]:
    if summary is not None:
        failure = _text(summary, "failure")
        if failure is not None:
            return "failed", failure
        return ("interrupted" if summary.get("interrupted") else "done"), None
    if last is None:
        return "no server", "it ended before its server started"
    server = last.server
    if server.state == "exited":
        code = "" if server.exit_code is None else f" with code {server.exit_code}"
        return "exited", f"the server ended{code}" + (f": {server.detail}" if server.detail else "")
    if server.state == "stopped":
        return "stopped", None
    if closed is not None and closed.get("stopped") is True:
        return "stopped", _text(closed, "reason")
    while_up = f"while the server was {server.state}"
    if closed is not None:
        return "left", f"{_text(closed, 'reason') or 'it was closed'}, {while_up}"
    return "abruptly", f"nothing closed it: what recorded it was killed {while_up}"


# -- lines as records -----------------------------------------------------------------------


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _records(kind: type, found: Iterator[dict[str, Any]]) -> Iterator[Any]:
    """Lines as records of one type, those that do not fit left out."""
    for table in found:
        with suppress(ValidationError, RecursionError):
            yield _adapter(kind).validate_python(table)


def _frames(lines: list[bytes]) -> Iterator[Frame]:
    return _records(Frame, _of_kind(lines, "frame"))


def _settings(head: list[bytes]) -> Iterator[Profile]:
    for found in _of_kind(head, "settings"):
        with suppress(ValidationError):
            yield Profile.model_validate(found.get("profile"))
