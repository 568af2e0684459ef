"""K by batch size: ranges of running requests, each with its K. Pure.

The rules are vLLM 0.32.0's (``v1/spec_decode/dynamic/utils.py``): inclusive ranges that do not overlap,
the first of which starts at 1; a gap and everything above keep the K before them.
"""

import re
import shlex
from collections.abc import Iterable

LARGEST_K = 128
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?:(\d{1,9})", re.ASCII)

Range = tuple[int, int, int]  # first and last number of requests, K


def schedule_words(value: object) -> object:
    """The schedule as sorted words such as ``1-4:5``.

    Takes one text, a list of words, or vLLM's own form, a list of [first, last, K].

    Raises:
        ValueError: a word that is no range, or ranges that break vLLM's rules.
    """
    if isinstance(value, str):
        value = shlex.split(value.replace(",", " "))
    if not isinstance(value, list | tuple):
        return value
    ranges = sorted(_range(item) for item in value)
    _check(ranges)
    return tuple(f"{first}-{last}:{k}" for first, last, k in ranges)


def ranges_of(words: Iterable[str]) -> tuple[Range, ...]:
    """The ranges that ``schedule_words`` wrote."""
    return tuple(_range(word) for word in words)


def draft_tokens_at(words: Iterable[str], requests: int, k: int) -> int:
    """K that vLLM uses while ``requests`` are running; never above ``k``."""
    chosen = k
    for first, _, tokens in ranges_of(words):
        if first <= requests:
            chosen = tokens
    return min(chosen, k)


def _range(item: object) -> Range:
    if isinstance(item, str):
        found = _RANGE.fullmatch(item.strip())
        if found is None:
            raise ValueError(f"{item[:40]!r} is no range: write FIRST-LAST:K, for example 1-4:5")
        first, last, k = found.groups()
        return int(first), int(last or first), int(k)
    if isinstance(item, list | tuple) and len(item) == 3:
        numbers = [part for part in item if isinstance(part, int) and not isinstance(part, bool)]
        if len(numbers) == 3:
            return numbers[0], numbers[1], numbers[2]
    raise ValueError("each range is FIRST-LAST:K, or a list of first, last and K")


def _check(ranges: list[Range]) -> None:
    before = 0
    for first, last, k in ranges:
        name = f"{first}-{last}:{k}"
        if first < 1:
            raise ValueError(f"{name} begins below one request")
        if last < first:
            raise ValueError(f"{name} ends before it begins")
        if not 0 <= k <= LARGEST_K:
            raise ValueError(f"{name} has a K outside 0 … {LARGEST_K}")
        if first <= before:
            raise ValueError(f"{name} overlaps the range before it, which ends at {before}")
        if not before and first != 1:
            raise ValueError(f"the first range begins at {first}, and it must begin at 1")
        before = last
