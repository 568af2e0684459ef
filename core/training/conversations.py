"""From a line of training data to the conversations in it. Pure.

Read are the shapes that data sets use: ``messages`` or ``conversations`` with role and content or from and
value, and prompts alone (``prompt`` or ``text``). What cannot be used is named with its reason.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from specpanel.core.errors import ConfigurationError

UNREADABLE_LIMIT = 0.05
_ROLES = {
    "system": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
}
_CONVERTED = ("human", "gpt", "model", "function", "observation")

Schema = Literal["messages", "conversations", "prompt", "text"]


@dataclass(frozen=True, slots=True)
class Turn:
    role: str  # system, user or assistant
    text: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """What was said, beginning with a system or user turn. ``kind`` is the class of the prompt."""

    id: str
    kind: str
    turns: tuple[Turn, ...]

    @property
    def question(self) -> tuple[Turn, ...]:
        """All turns up to the last of the user."""
        last = max(n for n, turn in enumerate(self.turns) if turn.role == "user")
        return self.turns[: last + 1]

    @property
    def answered(self) -> bool:
        return any(turn.role == "assistant" for turn in self.turns)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A line that was not used. ``unreadable``: no JSON object at all, which counts towards the limit."""

    line: int
    reason: str
    unreadable: bool


@dataclass(slots=True)
class Reading:
    """What became of all lines. ``schemas`` counts by shape; ``converted`` had other names of roles."""

    conversations: list[Conversation] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    schemas: Counter[str] = field(default_factory=Counter)
    converted: int = 0
    tool_rows: int = 0
    blank: int = 0
    lines: int = 0

    @property
    def unreadable(self) -> int:
        return sum(one.unreadable for one in self.skipped)


class _UnusableError(ValueError):
    """The line is JSON and cannot be used; the text says why."""


def read_lines(lines: Iterable[bytes], name: str, *, answers_needed: bool) -> Reading:
    """All conversations of a JSONL file.

    Args:
        name: of the source, for ids and messages.
        answers_needed: a conversation without an assistant turn cannot be used.
    """
    reading = Reading()
    for number, raw in enumerate(lines, 1):
        reading.lines = number
        if not raw.strip():
            reading.blank += 1
            continue
        try:
            entry = json.loads(raw.decode("utf-8"))
        except UnicodeDecodeError:
            reading.skipped.append(Skipped(number, "not UTF-8 text", unreadable=True))
            continue
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", "nested too deeply")
            reading.skipped.append(Skipped(number, f"not JSON: {reason}", unreadable=True))
            continue
        try:
            _take(reading, entry, number, name, answers_needed)
        except _UnusableError as error:
            reading.skipped.append(Skipped(number, str(error), unreadable=False))
    return reading


def refuse_bad(reading: Reading, name: str) -> None:
    """Stop where the data is not what it was taken for.

    Raises:
        ConfigurationError: more than 5 % of the lines cannot be read, or nothing is left.
    """
    used = reading.lines - reading.blank
    if used and reading.unreadable > UNREADABLE_LIMIT * used:
        first = next(one for one in reading.skipped if one.unreadable)
        raise ConfigurationError(
            f"{name}: {reading.unreadable} of {used} lines cannot be read, more than "
            f"{UNREADABLE_LIMIT:.0%}; the first is line {first.line} ({first.reason})",
            "Mend the file; a few bad lines are passed over.",
        )
    if not reading.conversations:
        why = Counter(one.reason for one in reading.skipped).most_common(1)
        told = f"; {why[0][1]} times: {why[0][0]}" if why else ""
        raise ConfigurationError(
            f"{name} holds no conversation that can be used{told}",
            'A line is such as {"messages": [{"role": "user", "content": "..."}]} or '
            '{"prompt": "..."}.',
        )


def _take(reading: Reading, entry: Any, number: int, name: str, answers_needed: bool) -> None:
    if isinstance(entry, list):
        raise _UnusableError("a list where an object is needed: put the turns under messages")
    if not isinstance(entry, dict):
        raise _UnusableError("no JSON object")
    schema = _schema(entry)
    converted = False
    if schema in ("prompt", "text") and isinstance(entry[schema], str):
        if answers_needed:
            raise _UnusableError(f"{schema} alone has no answer to train on")
        turns: tuple[Turn, ...] = (Turn("user", _filled(entry[schema])),)
        if isinstance(entry.get("system"), str):
            turns = (Turn("system", entry["system"]), *turns)
    else:
        turns, converted, tools = _turns(entry[schema])
        if tools:
            reading.tool_rows += 1
            raise _UnusableError("it has turns of tools, which are not trained on yet")
    if not any(turn.role == "user" for turn in turns):
        raise _UnusableError("no turn of a user")
    conversation = Conversation(
        _word(entry.get("id"), f"{name}-{number}"), _word(entry.get("kind"), "own"), turns
    )
    if answers_needed and not conversation.answered:
        raise _UnusableError("no assistant turn: nothing to train on")
    reading.schemas[schema] += 1
    reading.converted += converted
    reading.conversations.append(conversation)


def _schema(entry: dict[str, Any]) -> Schema:
    for name in ("messages", "conversations", "prompt", "text"):
        if name in entry:
            return name
    raise _UnusableError(f"unknown schema (its keys: {', '.join(sorted(map(str, entry))[:6])})")


def _turns(listed: Any) -> tuple[tuple[Turn, ...], bool, bool]:
    """The turns, whether names were converted, and whether tools took part."""
    if not isinstance(listed, list) or not all(isinstance(turn, dict) for turn in listed):
        raise _UnusableError("the turns are no list of objects")
    turns: list[Turn] = []
    converted = tools = False
    for turn in listed:
        named = turn.get("role", turn.get("from"))
        role = _ROLES.get(named) if isinstance(named, str) else None
        if role is None:
            raise _UnusableError(f"unknown role {str(named)[:20]!r}")
        converted |= named in _CONVERTED or "from" in turn
        if role == "tool" or turn.get("tool_calls"):
            tools = True
            continue
        content = turn.get("content", turn.get("value"))
        if content is None and "tool_calls" in turn:
            tools = True
            continue
        turns.append(Turn(role, _filled(content)))
    return tuple(turns), converted, tools


def _filled(value: Any) -> str:
    if isinstance(value, list):
        texts = [part.get("text") for part in value if isinstance(part, dict)]
        if len(texts) == len(value) and all(isinstance(text, str) for text in texts):
            value = "".join(str(text) for text in texts)
    if not isinstance(value, str) or not value.strip():
        raise _UnusableError("a turn without text")
    return value


def _word(value: Any, default: str) -> str:
    return value if isinstance(value, str) and value.isprintable() and value else default


def without_duplicates(
    conversations: Sequence[Conversation],
) -> tuple[tuple[Conversation, ...], int]:
    """Conversations whose question was not asked before, and how many were left out.

    Case and spaces make no difference: such a pair would be in training and among the held-out.
    """
    seen: set[tuple[str, ...]] = set()
    kept: list[Conversation] = []
    for conversation in conversations:
        asked = tuple(" ".join(turn.text.lower().split()) for turn in conversation.question)
        if asked not in seen:
            seen.add(asked)
            kept.append(conversation)
    return tuple(kept), len(conversations) - len(kept)
