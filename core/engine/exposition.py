"""The Prometheus text format of a ``/metrics`` body: which lines are needed, and each as a sample. Pure.

Labels are read by prometheus_client's parser, never by hand; each name with its labels once.
"""

import functools
import math
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from specpanel.core.engine.families import ROLES, Role
from specpanel.core.errors import SpecpanelError

LONGEST_LINE = 65_536  # characters; vLLM's longest, cache_config_info, is about 1200
MOST_POSITIONS = 1024
MOST_SERIES = 32_768  # whose labels are remembered; 64 engines have about 16,000


class ExpositionError(SpecpanelError):
    """A metrics body that is cut off or is not in the Prometheus text format."""


class Key(NamedTuple):
    engine: str
    figure: str
    rank: int


class Place(NamedTuple):
    """Where a sample belongs. ``label`` is its draft position or the bound of its bucket."""

    key: Key
    role: Role
    label: float | None
    model: str | None


Sample = tuple[Place, float]


PREFIX = "vllm:"
INDENT = 64  # characters of blanks before a name; more is no metrics line
_NAME = re.compile(r"[a-zA-Z0-9_:]*")
_ANY_VLLM = re.compile(r"^(?:[ \t]*|# (?:HELP|TYPE) )vllm:", re.MULTILINE)
SAMPLE_LIKE = re.compile(r"\s*(?:#|[a-zA-Z_:][a-zA-Z0-9_:]*[ \t{])")


def why_not_vllm(text: str) -> str | None:
    if _ANY_VLLM.search(text):
        return None
    start = text.lstrip()[:1]
    if not start:
        return "the metrics are empty"
    if start == "<":
        return "the address answers with a web page, not with metrics"
    if start in "{[":
        return "the address answers with JSON, not with metrics"
    return "no metric of vLLM's is among them: another server, or vLLM with --disable-log-stats"


def refuse_truncated(text: str) -> None:
    if text.endswith(("\n", "# EOF")):
        return
    tail = text.rpartition("\n")[2]
    raise ExpositionError(
        f"the metrics end in the middle of a line ({_shown(tail)})",
        "They are read again at the next scrape; if it stays so, look for a proxy that cuts answers.",
    )


def _needed_lines(text: str) -> Iterator[str]:
    """Lines whose sample has a role; a body of ten megabytes is mostly other lines."""
    place = text.find(PREFIX)
    while place >= 0:
        end = text.find("\n", place)
        end = len(text) if end < 0 else end
        name = _NAME.match(text, place)
        if name is not None and name.group() in ROLES and _begins_line(text, place):
            yield text[place:end].strip()
        place = text.find(PREFIX, end)


def _begins_line(text: str, place: int) -> bool:
    window = max(0, place - INDENT)
    start = text.rfind("\n", window, place) + 1
    return (start > 0 or window == 0) and not text[start:place].strip(" \t")


def samples_of(text: str) -> Iterator[Sample]:
    """Every sample of ``text`` that has a role, at most one a line.

    Raises:
        ExpositionError: a line that is needed is malformed.
    """
    for line in _needed_lines(text):
        yield _sample(line)


def sample_of(line: str) -> Sample | None:
    """The sample of one line, None where it has no role.

    Raises:
        ExpositionError: the line is needed and malformed.
    """
    place = line.find(PREFIX)
    name = None if place < 0 else _NAME.match(line, place)
    if name is None or name.group() not in ROLES or not _begins_line(line, place):
        return None
    return _sample(line[place:].strip())


def _sample(line: str) -> Sample:
    if len(line) > LONGEST_LINE:
        raise _malformed(line, f"it has {len(line)} characters")
    end = line.rfind("}") + 1
    if end == 0:
        end = _NAME.match(line).end()  # type: ignore[union-attr]  # it matches the empty text, too
    elif line[end : end + 1] not in (" ", "\t"):
        raise _malformed(line, "no space stands before the value")
    try:
        return _place(line[:end]), _value(line[end:])
    except _PARSER_ERRORS as error:
        raise _malformed(line, "name, labels and value were expected") from error


def _value(text: str) -> float:
    """The value after name and labels; a timestamp may follow.

    Raises:
        ValueError: something else stands there.
    """
    value, *timestamp = text.split()
    if len(timestamp) > 1 or "_" in text:
        raise ValueError("more than a value and a timestamp")
    for number in timestamp:
        float(number)
    return float(value)


# What prometheus_client's parser lets out on malformed lines (0.26.0; it documents none).
_PARSER_ERRORS = (ValueError, IndexError, KeyError, TypeError)


@functools.lru_cache(maxsize=MOST_SERIES)
def _place(head: str) -> Place:
    """Where a sample with this name and these labels belongs.

    From scrape to scrape only the values change, so each name with its labels is read once.

    Raises:
        ValueError, IndexError, KeyError, TypeError: the text is malformed.
        ExpositionError: a label that is needed has no usable value.
    """
    # Imported late: the package brings an HTTP server along, 0.15 s of a command's start.
    from prometheus_client.parser import text_string_to_metric_families

    ((sample,),) = (metric.samples for metric in text_string_to_metric_families(head + " 0"))
    labels, role = sample.labels, ROLES[sample.name]
    label: float | None = None
    if role.part == "bucket":
        label = _label_number(labels, "le")
    elif role.kind == "positions" and role.part == "value":
        label = _position(labels)
    key = Key(labels.get("engine", ""), role.figure, role.rank)
    return Place(key, role, label, labels.get("model_name") or None)


def _malformed(line: str, reason: str) -> ExpositionError:
    return ExpositionError(
        f"a line of the metrics cannot be read, {reason} ({_shown(line)})",
        "Check that the address is vLLM's own /metrics.",
    )


def _shown(line: str, width: int = 80) -> str:
    return ascii(line if len(line) <= width else line[: width - 1] + "…")


def _label_number(labels: Mapping[str, str], name: str) -> float:
    try:
        number = float(labels.get(name, ""))
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise ExpositionError(
            f"a histogram of the metrics has a bucket without a bound ({name}={labels.get(name)!a})",
            "Check that the address is vLLM's own /metrics.",
        )
    return number


def _position(labels: Mapping[str, str]) -> float:
    text = labels.get("position", "")
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) < MOST_POSITIONS):
        raise ExpositionError(
            f"accepted tokens of the metrics have no usable position (position={text[:40]!a})",
            "Check that the address is vLLM's own /metrics.",
        )
    return float(int(text))
