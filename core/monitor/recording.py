"""Frames, requests and summaries as lines of JSON: the same for ``--json``, recordings and replay.

Every line is an object with ``schema_version`` and ``kind`` first. Lines of an unknown kind are passed
over, so that an older specpanel reads a newer recording as far as it can.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from specpanel.core.devices.records import DeviceSample
from specpanel.core.errors import RecordingError
from specpanel.core.monitor.frame import Frame
from specpanel.core.ordinary import lines_of
from specpanel.core.private import private_opener

SCHEMA_VERSION = 1


def line(kind: str, content: dict[str, Any]) -> str:
    """One line of the stream, without its line end."""
    return _line(kind, plain(content))


def _line(kind: str, content: dict[str, Any]) -> str:
    found = {"schema_version": SCHEMA_VERSION, "kind": kind, **content}
    text = json.dumps(found, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a character, from a server or a file name: no text, but JSON
        text = json.dumps(found)
    return text


def frame_line(frame: Frame) -> str:
    parts = [_KIND_OF_FRAME]
    for name in _fields_of(Frame):
        value = getattr(frame, name)
        text = _devices(value) if name == "devices" and value is not None else _part(name).of(value)
        parts.append(f'"{name}": {text}')
    text = f"{{{', '.join(parts)}}}"
    try:
        text.encode()
    except UnicodeEncodeError:
        return _line("frame", plain(frame))
    return text


_KIND_OF_FRAME = f'"schema_version": {SCHEMA_VERSION}, "kind": "frame"'


class _Kept:
    """The newest value of a part as JSON: over a server that rests most are the same in many Frames."""

    def __init__(self) -> None:
        self._newest: tuple[object, str] = (None, "null")

    def of(self, value: object) -> str:
        kept = self._newest
        if value is not kept[0]:
            self._newest = kept = value, json.dumps(plain(value), ensure_ascii=False)
        return kept[1]


@cache
def _part(name: str) -> _Kept:
    return _Kept()


def _devices(sample: DeviceSample) -> str:
    """The sample as JSON; its devices and readings are the same in many."""
    parts = []
    for name in _fields_of(DeviceSample):
        value = getattr(sample, name)
        kept = name in ("devices", "readings")
        text = (
            _part(f"devices.{name}").of(value)
            if kept
            else json.dumps(plain(value), ensure_ascii=False)
        )
        parts.append(f'"{name}": {text}')
    return f"{{{', '.join(parts)}}}"


def plain(value: Any) -> Any:
    """Records as objects of JSON, which has no NaN and no infinity: they are absent values."""
    kind: type = type(value)
    if kind is float:
        return value if math.isfinite(value) else None
    if value is None or kind is int or kind is str or kind is bool:
        return value
    if names := _fields_of(kind):
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@cache
def _fields_of(kind: type) -> tuple[str, ...]:
    """The fields of a kind of record; empty for all that is none."""
    return tuple(one.name for one in fields(kind)) if is_dataclass(kind) else ()


class Recorder:
    """Writes lines to a file, each flushed at once: a killed program loses no finished line.

    Raises:
        RecordingError: the file cannot be written (on a full disk, with the name of the file), or holds
            something already.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_file() and path.stat().st_size:
                raise RecordingError(
                    f"{path} is there already and is not overwritten",
                    "Name another file for the recording, or remove this one.",
                )
            self._file = open(path, "w", encoding="utf-8", buffering=1, opener=private_opener)  # noqa: SIM115 - until `close`
        except OSError as error:
            raise _unwritable(path, error) from error

    def write(self, text: str) -> None:
        try:
            self._file.write(text + "\n")
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as error:
            raise _unwritable(self.path, error) from error


def _unwritable(path: Path, error: OSError) -> RecordingError:
    return RecordingError(
        f"the recording {path} cannot be written: {error.strerror or error}",
        "Give --record a file in a folder with room that you may write to.",
    )


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a recording, in order. A last line cut short by a crash is left out.

    Raises:
        RecordingError: there is no such file, or a line before the last is not ours.
    """
    broken: tuple[int, str] | None = None
    try:
        for number, text in enumerate(lines_of(path), start=1):
            if not text.strip():
                continue
            if broken is not None:
                raise _unreadable(path, *broken)
            try:
                found = json.loads(text.decode("utf-8", "replace"))
                _check_version(path, found)
            except (ValueError, RecursionError) as error:
                broken = (number, str(error))
                continue
            yield found
    except OSError as error:
        raise RecordingError(
            f"the recording {path} cannot be read: {error.strerror or error}",
            "Give a file that specpanel run --record wrote.",
        ) from error
    if broken is not None and broken[0] == 1:
        raise _unreadable(path, *broken)


def _check_version(path: Path, found: object) -> None:
    if not isinstance(found, dict) or not isinstance(found.get("schema_version"), int):
        raise ValueError("no object with a schema_version")
    if found["schema_version"] > SCHEMA_VERSION:
        raise RecordingError(
            f"{path} was written by a newer specpanel (format {found['schema_version']})",
            "Update specpanel to read it.",
        )


def _unreadable(path: Path, number: int, reason: str) -> RecordingError:
    return RecordingError(
        f"{path}, line {number}, is not a line of a recording: {reason}",
        "Give a file that specpanel run --record wrote.",
    )


def read_recording(path: Path) -> Iterator[Frame]:
    """The Frames of a recording, in order.

    Raises:
        RecordingError: the file is missing, is no recording, or holds a Frame that cannot be read.
    """
    # Loaded to read only: who records needs no checks.
    from pydantic import TypeAdapter, ValidationError

    frames = TypeAdapter(Frame)
    for found in read_lines(path):
        if found.get("kind") != "frame":
            continue
        body = {key: found[key] for key in found if key not in ("schema_version", "kind")}
        try:
            yield frames.validate_python(body)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise RecordingError(
                f"a frame in {path} cannot be read: {where}: {first['msg']}"
            ) from None
