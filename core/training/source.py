"""Read what a recipe trains on: the built-in prompts, a file, or a data set on disk."""

import hashlib
import json
import os
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from specpanel.core.errors import ConfigurationError
from specpanel.core.inside import INSIDE
from specpanel.core.ordinary import read_ordinary
from specpanel.core.training.conversations import (
    Conversation,
    Reading,
    read_lines,
    refuse_bad,
    without_duplicates,
)
from specpanel.core.training.prompt_set import builtin_conversations
from specpanel.core.training.recipe import Data

_LIMIT_BYTES = 2 << 30
_DEADLINE_S = 600.0


@dataclass(frozen=True, slots=True)
class Source:
    """``training`` and ``heldout`` share no question. ``duplicates`` were left out."""

    training: tuple[Conversation, ...]
    heldout: tuple[Conversation, ...]
    duplicates: int
    reading: Reading


def read_source(data: Data, trainer_python: str) -> Source:
    """The conversations to train on and those kept from it.

    Args:
        trainer_python: reads a data set on disk, which takes pyarrow.

    Raises:
        ConfigurationError: not there, not readable, more than 5 % bad lines, or too few are left.
    """
    reading = _read(data, trainer_python)
    refuse_bad(reading, data.source)
    unique, duplicates = without_duplicates(reading.conversations)
    chosen = unique[: data.limit] if data.limit is not None else unique
    split = _split if data.split == "spread" else _stable_split
    training, heldout = split(chosen, data.heldout)
    if len(training) < 10:
        raise ConfigurationError(
            f"{data.source} leaves {len(training)} prompts to train on, of which the trainer needs ten",
            "Bring more prompts, or lower data.heldout.",
        )
    return Source(training, heldout, duplicates, reading)


def _split(
    conversations: Sequence[Conversation], heldout: int
) -> tuple[tuple[Conversation, ...], tuple[Conversation, ...]]:
    """Both sides hold the classes alike: of each class its share, spread over it."""
    order = {id(one): number for number, one in enumerate(conversations)}
    by_kind: dict[str, list[Conversation]] = {}
    for one in conversations:
        by_kind.setdefault(one.kind, []).append(one)
    held: set[int] = set()
    wanted, passed = 0.0, 0
    for members in by_kind.values():
        wanted += heldout * len(members) / len(conversations)
        count = round(wanted) - passed  # what rounding took from one class goes to the next
        passed += count
        held |= {order[id(members[int((n + 0.5) * len(members) / count)])] for n in range(count)}
    return (
        tuple(one for n, one in enumerate(conversations) if n not in held),
        tuple(one for n, one in enumerate(conversations) if n in held),
    )


def _stable_split(
    conversations: Sequence[Conversation], heldout: int
) -> tuple[tuple[Conversation, ...], tuple[Conversation, ...]]:
    """The questions with the smallest hashes are held out: what comes later never moves one into them."""

    def mark(one: Conversation) -> str:
        said = "\0".join(f"{turn.role}\0{turn.text}" for turn in one.question)
        return hashlib.sha256(said.encode()).hexdigest()

    held = {id(one) for one in sorted(conversations, key=mark)[:heldout]}
    return (
        tuple(one for one in conversations if id(one) not in held),
        tuple(one for one in conversations if id(one) in held),
    )


def _read(data: Data, trainer_python: str) -> Reading:
    if data.source == "builtin":
        if data.answers == "given":
            raise ConfigurationError(
                "the built-in prompts have no answers",
                "Let the target answer them: data.answers = target.",
            )
        conversations = builtin_conversations()
        return Reading(list(conversations), lines=len(conversations))
    path = Path(os.path.expanduser(data.source))
    given = data.answers == "given"
    if path.is_dir():
        return read_lines(_dataset_lines(path, trainer_python), path.name, answers_needed=given)
    try:
        lines = read_ordinary(path, _LIMIT_BYTES).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except OSError as error:
        raise ConfigurationError(
            f"the training data {path} cannot be read: {error.strerror or error}",
            "Set data.source to builtin, a file, or a folder of a data set.",
        ) from None
    if lines and not lines[-1]:
        lines.pop()  # the end of the last line is no line
    if path.suffix == ".txt":
        lines = [
            json.dumps({"prompt": line.decode("utf-8", "replace")}).encode()
            if line.strip()
            else b""
            for line in lines
        ]
    return read_lines(lines, path.stem, answers_needed=given)


def _dataset_lines(folder: Path, trainer_python: str) -> Iterable[bytes]:
    """Rows of a data set that ``datasets`` wrote to disk, or of the JSONL files in a folder."""
    files = sorted(folder.glob("*.jsonl"))
    if files and not (folder / "state.json").exists():
        return [line for file in files for line in read_ordinary(file, _LIMIT_BYTES).splitlines()]
    return dataset_rows(folder, trainer_python)


def dataset_rows(folder: Path, python: str) -> list[bytes]:
    """Rows of a data set on disk as lines of JSON.

    Raises:
        ConfigurationError: it is none, or ``python`` holds no pyarrow.
    """
    try:
        done = subprocess.run(
            [python, INSIDE / "prepared_rows.py", folder],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_DEADLINE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(f"{folder} cannot be read by {python}: {error}") from None
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ConfigurationError(
            f"{folder} cannot be read: {said[-1] if said else 'nothing came of it'}",
            "Name a folder that datasets.save_to_disk wrote, or one of JSONL files.",
        )
    return lines[:-1]


def write_jsonl(path: Path, rows: Iterable[object]) -> None:
    """Write records or objects, one a line."""
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            content = row if isinstance(row, dict) else asdict(row)  # type: ignore[call-overload]
            file.write(json.dumps(content, ensure_ascii=False) + "\n")


def prompt_entry(conversation: Conversation) -> dict[str, object]:
    """A conversation as a line that ``core/traffic/prompts.py`` reads, where it is a single question."""
    turns = conversation.question
    entry: dict[str, object] = {"id": conversation.id, "kind": conversation.kind}
    roles = [turn.role for turn in turns]
    if roles == ["user"]:
        return {**entry, "text": turns[0].text}
    if roles == ["system", "user"]:
        return {**entry, "system": turns[0].text, "text": turns[1].text}
    return {**entry, "messages": [{"role": turn.role, "content": turn.text} for turn in turns]}
