"""Hypothesis strategies for our records, made from their own declarations."""

import dataclasses
import types
from collections.abc import Callable
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

Record = TypeVar("Record")

LARGEST = 2**53


def any_of(record: type[Record]) -> st.SearchStrategy[Record]:
    """Records with every field filled or, where it may be, absent."""
    return _of(record)


def words() -> st.SearchStrategy[str]:
    """Any text that does not happen to say None."""
    return st.text(max_size=30).filter(lambda text: "None" not in text)


def _of(kind: Any) -> st.SearchStrategy[Any]:
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        fields = {field.name: _of(hints[field.name]) for field in dataclasses.fields(kind)}
        make: Callable[..., Any] = kind  # type: ignore[assignment]
        return st.builds(make, **fields)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return st.one_of([_of(one) for one in arguments])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple and arguments[-1:] != (...,):
        return st.tuples(*map(_of, arguments))
    if origin is tuple:
        return st.lists(_of(arguments[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(_of(arguments[0]), _of(arguments[1]), max_size=3)
    return _PLAIN[kind]


_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    type(None): st.none(),
    bool: st.booleans(),
    int: st.integers(0, LARGEST),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: words(),
}
