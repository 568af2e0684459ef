"""A file of hidden states as the connectors write it, looked at without torch.

``{hidden_states [tokens, layers, hidden], token_ids [tokens]}`` in safetensors
(https://github.com/huggingface/safetensors): a length, a JSON header, the data.
"""

import array
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specpanel.core.errors import SpecpanelError

_HEADER_LIMIT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class StatesFacts:
    """``shape`` is (tokens, layers, hidden)."""

    shape: tuple[int, ...]
    dtype: str
    size_bytes: int
    largest: float | None


def check_states(path: Path, token_ids: Sequence[int], layers: int, hidden: int) -> StatesFacts:
    """What the file holds, after holding it against what was asked for.

    Raises:
        SpecpanelError: another shape, other tokens, a value that is not finite, or all zero.
    """
    try:
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        if not 2 <= size <= min(_HEADER_LIMIT_BYTES, len(data) - 8):
            raise ValueError("its header is missing")
        header: dict[str, Any] = json.loads(data[8 : 8 + size])
        states, tokens = header["hidden_states"], header["token_ids"]
        shape = tuple(int(n) for n in states["shape"])
        kind = str(states["dtype"])
        raw = _cut(data, 8 + size, states)
        found_ids = _integers(_cut(data, 8 + size, tokens), str(tokens["dtype"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpecpanelError(f"the hidden states in {path} cannot be read: {error}") from None
    wanted = (len(token_ids), layers, hidden)
    if shape != wanted:
        raise SpecpanelError(
            f"the hidden states have the shape {list(shape)} and not {list(wanted)} "
            "(tokens, layers, hidden size)",
            "Server and trainer must use the same layers: leave --target-layer-ids to the recipe.",
        )
    if list(found_ids) != list(token_ids):
        raise SpecpanelError(
            "the hidden states are of other tokens than those that were asked for",
            "Another program uses the extraction server or its folder: give it its own.",
        )
    largest = _largest(raw, kind)
    if largest is not None and not math.isfinite(largest):
        raise SpecpanelError(
            "the hidden states hold values that are not finite",
            "Run the target in bfloat16 or float32 (target.dtype).",
        )
    if largest == 0.0:
        raise SpecpanelError(
            "the hidden states are all zero: the server wrote them before they were there",
            "Report it with the versions that specpanel doctor prints.",
        )
    return StatesFacts(shape, kind, len(data), largest)


def _cut(data: bytes, begin: int, entry: dict[str, Any]) -> bytes:
    first, last = entry["data_offsets"]
    cut = data[begin + first : begin + last]
    if len(cut) != last - first:
        raise ValueError("it ends early")
    return cut


def _integers(raw: bytes, kind: str) -> "array.array[int]":
    codes = {"I64": "q", "I32": "i"}
    if kind not in codes:
        raise ValueError(f"token ids of type {kind}")
    return _native(array.array(codes[kind], raw))


def _native(values: "array.array[int]") -> "array.array[int]":
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _largest(raw: bytes, kind: str) -> float | None:
    """The largest absolute value, infinite or NaN where one is; None for a type that is not looked into."""
    if kind == "F32":
        values = array.array("f", raw)
        if sys.byteorder == "big":
            values.byteswap()
        return _largest_of(max(values), min(values), sum(values))
    if kind == "BF16":
        # A bfloat16 is the upper half of a float32; without its sign, order of bits is order of size.
        magnitude = max(bits & 0x7FFF for bits in _native(array.array("H", raw)))
        if magnitude >= 0x7F80:
            return math.inf
        return array.array("f", (magnitude << 16).to_bytes(4, sys.byteorder))[0]
    return None


def _largest_of(most: float, least: float, total: float) -> float:
    """NaN goes unseen by max and min, but not by a sum."""
    if math.isnan(total):
        return math.nan
    return max(abs(most), abs(least))
