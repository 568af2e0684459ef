"""Keep what was asked and answered, to train a drafter on: only where asked for, only our own requests.

The file is the user's alone (mode 0600), holds one conversation a line as ``data.source`` of a recipe reads
it, each question once, and never grows beyond its bound.
"""

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

from specpanel.core.errors import RecordingError
from specpanel.core.traffic.records import Prompt, RequestRecord

PRIVATE = 0o600


class Capture:
    """Appends to one file until it is full. ``kept`` counts conversations, those of before included.

    Raises:
        RecordingError: the file cannot be opened, is no file, or is somebody else's.
    """

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self.path = path.expanduser()
        self.kept = 0
        self.full = False
        self._limit_bytes = limit_bytes
        self._asked: set[bytes] = set()
        self._file = self._opened()

    def take(self, prompt: Prompt, record: RequestRecord) -> None:
        """Keep one answered request; failed ones, empty answers and known questions are passed over.

        Raises:
            RecordingError: it cannot be written.
        """
        if self.full or not record.ok or not record.text.strip():
            return
        mark = _mark(prompt.system, prompt.text)
        if mark in self._asked:
            return
        line = _line(prompt, record, mark)
        try:
            if os.fstat(self._file).st_size + len(line) > self._limit_bytes:
                self.full = True
                return
            os.write(self._file, line)
        except OSError as error:
            raise self._failure(error) from error
        self._asked.add(mark)
        self.kept += 1

    def close(self) -> None:
        os.close(self._file)

    def _opened(self) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(self.path, flags, PRIVATE)
        except OSError as error:
            raise self._failure(error) from error
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
                raise RecordingError(
                    f"{self.path} is no file of yours, so nothing is captured into it",
                    "Name another with traffic.capture.",
                )
            os.fchmod(file, PRIVATE)
            self._read_before()
        except OSError as error:
            os.close(file)
            raise self._failure(error) from error
        except RecordingError:
            os.close(file)
            raise
        return file

    def _read_before(self) -> None:
        """Know the questions that are there again."""
        with self.path.open("rb") as lines:
            for raw in lines:
                question = _question(raw)
                if question is not None:
                    self._asked.add(_mark(*question))
                    self.kept += 1

    def _failure(self, error: OSError) -> RecordingError:
        return RecordingError(
            f"{self.path} cannot be written: {error.strerror or error}",
            "Free some space there, or leave traffic.capture out.",
        )


def refuse_no_file(path: Path) -> None:
    """Say before anything is started that nothing can be captured there.

    Raises:
        RecordingError: something is there that is no file.
    """
    try:
        there = path.exists() and not path.is_file()
    except OSError:
        return  # who opens it says why it cannot
    if there:
        raise RecordingError(
            f"{path} is no file, so nothing can be captured into it",
            "Name another with traffic.capture.",
        )


def _mark(system: str | None, text: str) -> bytes:
    return hashlib.sha256(f"{system or ''}\0{text}".encode()).digest()[:16]


def _line(prompt: Prompt, record: RequestRecord, mark: bytes) -> bytes:
    turns = [{"role": "user", "content": prompt.text}]
    if prompt.system is not None:
        turns.insert(0, {"role": "system", "content": prompt.system})
    turns.append({"role": "assistant", "content": record.text})
    content = {
        "id": f"{prompt.id}-{mark.hex()[:8]}",
        "kind": prompt.kind,
        "messages": turns,
        "finish_reason": record.finish_reason,
        "unix": record.started_unix,
    }
    return (json.dumps(content, ensure_ascii=False) + "\n").encode()


def _question(raw: bytes) -> tuple[str | None, str] | None:
    """System and user turn of a line that was captured before; None where it is none."""
    try:
        turns: Any = json.loads(raw)["messages"]
        said = {turn["role"]: turn["content"] for turn in turns}
        return said.get("system"), said["user"]
    except (ValueError, KeyError, TypeError):
        return None
