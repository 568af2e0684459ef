"""Prompts: the built-in set, files that users bring, and the order in which they are sent."""

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from specpanel.core.errors import ConfigurationError
from specpanel.core.ordinary import read_ordinary
from specpanel.core.traffic.records import Prompt

KINDS = ("chat", "code", "maths", "story", "repetition")
OWN_KIND = "own"  # the class of a user's prompt that names none

_LIMIT_BYTES = 256 * 1024 * 1024
_TEXT_KEYS = ("text", "prompt", "messages")
_JSONL_SUFFIXES = (".jsonl", ".ndjson")


@cache
def builtin_prompts() -> tuple[Prompt, ...]:
    """The set that comes with specpanel: 80 prompts, 16 in each of ``KINDS``.

    Each fits with 128 tokens of answer into a context of 1024 tokens.
    """
    source = files("specpanel.core.traffic") / "prompt_sets" / "builtin.jsonl"
    lines = source.read_text(encoding="utf-8").splitlines()
    return tuple(_prompt_from_json(line, f"builtin-{n}") for n, line in enumerate(lines, 1))


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """The prompts of a user's file, in its order.

    ``.jsonl`` and ``.ndjson`` hold an object a line, with ``text``, ``prompt`` or ``messages`` (a user
    message, perhaps a system message before it and a reference answer after it, which is left out) and
    optionally ``id``, ``kind`` and ``system``. ``.txt`` holds a prompt a line. Other names are read as
    the former where the first line starts with a brace. Blank lines are skipped.

    Raises:
        ConfigurationError: the file cannot be read, holds no prompt or a line is not one; with file,
            line and reason.
    """
    lines = tuple(_numbered_lines(path))
    if not lines:
        raise ConfigurationError(f"{path} holds no prompts", "Write one prompt a line.")
    plain = path.suffix == ".txt" or (
        path.suffix not in _JSONL_SUFFIXES and not lines[0][1].startswith("{")
    )
    prompts: list[Prompt] = []
    line_of_id: dict[str, int] = {}
    for number, line in lines:
        default_id = f"{path.stem}-{number:03d}"
        try:
            prompt = (
                Prompt(default_id, OWN_KIND, line) if plain else _prompt_from_json(line, default_id)
            )
            if prompt.id in line_of_id:
                raise ValueError(f"the id {prompt.id!r} is that of line {line_of_id[prompt.id]}")
        except ValueError as reason:
            raise ConfigurationError(
                f"{path}, line {number}: {reason}",
                "Write one object a line, such as "
                '{"id": "a-1", "kind": "chat", "text": "..."}, or plain text in a .txt file.',
            ) from reason
        line_of_id[prompt.id] = number
        prompts.append(prompt)
    return tuple(prompts)


def choose(prompts: Sequence[Prompt], kinds: Sequence[str], seed: int) -> tuple[Prompt, ...]:
    """The prompts of the classes ``kinds`` (all where empty), shuffled and interleaved by ``seed``.

    Any prefix holds each class in proportion to its size: with classes of one size their counts differ
    by at most one. The same arguments give the same order, on any machine.

    Raises:
        ConfigurationError: a class that no prompt has; with those that there are.
    """
    known = tuple(dict.fromkeys(prompt.kind for prompt in prompts))
    unknown = [kind for kind in kinds if kind not in known]
    if unknown:
        raise ConfigurationError(
            f"no prompt is of the class {unknown[0]!r}", f"Choose from: {', '.join(known)}."
        )
    order = random.Random(seed)
    chosen = [kind for kind in known if not kinds or kind in kinds]
    order.shuffle(chosen)
    placed: list[tuple[float, int, Prompt]] = []
    for rank, kind in enumerate(chosen):
        members = [prompt for prompt in prompts if prompt.kind == kind]
        order.shuffle(members)
        placed += [((n + 0.5) / len(members), rank, prompt) for n, prompt in enumerate(members)]
    placed.sort(key=lambda place: place[:2])
    return tuple(prompt for _, _, prompt in placed)


def _numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        content = read_ordinary(path, _LIMIT_BYTES)
    except OSError as error:
        raise ConfigurationError(
            f"the prompts in {path} cannot be read: {error.strerror or error}",
            "Name a file of your own prompts, JSONL or one a line.",
        ) from error
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            text = line.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            raise ConfigurationError(
                f"{path}, line {number}: not UTF-8 text", "Save the file as UTF-8."
            ) from error
        if text:
            yield number, text


def _prompt_from_json(line: str, default_id: str) -> Prompt:
    """The prompt in one JSONL line; raises ValueError with the reason where there is none."""
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg} at column {error.colno})") from error
    except RecursionError as error:
        raise ValueError("not JSON that can be read (nested too deeply)") from error
    if not isinstance(entry, dict):
        raise ValueError("not a JSON object")
    present = [key for key in _TEXT_KEYS if key in entry]
    if len(present) != 1:
        found = " and ".join(present) or "none"
        raise ValueError(f"needs one of {', '.join(_TEXT_KEYS)}; it has {found}")
    system: Any = entry.get("system")
    if present == ["messages"]:
        spoken_system, text = _from_messages(entry["messages"])
        system = spoken_system if system is None else system
    else:
        text = entry[present[0]]
    identity = entry.get("id", default_id)
    if isinstance(identity, int) and not isinstance(identity, bool):
        identity = str(identity)
    return Prompt(
        id=_name(identity, "id"),
        kind=_name(entry.get("kind", OWN_KIND), "kind"),
        text=_filled(text, present[0]),
        system=None if system is None else _filled(system, "system"),
    )


def _from_messages(messages: object) -> tuple[str | None, str]:
    """The system message, if any, and the user message of a chat; a trailing answer is left out."""
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise ValueError("messages is not a list of objects")
    turns = [(m.get("role"), _spoken(m.get("content"))) for m in messages]
    if turns and turns[-1][0] == "assistant":
        turns.pop()
    roles = [role for role, _ in turns]
    if roles == ["user"]:
        return None, turns[0][1]
    if roles == ["system", "user"]:
        return turns[0][1], turns[1][1]
    raise ValueError("messages must be one user message, perhaps with a system message before it")


def _spoken(content: object) -> str:
    """The text of a message, given as a string or as OpenAI's list of text parts."""
    if isinstance(content, list):
        return "".join(_part_texts(content))
    return _filled(content, "content")


def _part_texts(parts: Iterable[object]) -> Iterator[str]:
    for part in parts:
        text = part.get("text") if isinstance(part, dict) else None
        if not isinstance(text, str):
            raise ValueError("content has a part that is not text")
        yield text


def _filled(value: object, key: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{key} must be text, and not empty")
    return value


def _name(value: object, key: str) -> str:
    text = _filled(value, key)
    if not text.isprintable() or len(text) > 128:
        raise ValueError(f"{key} must be one printable line of at most 128 characters")
    return text
