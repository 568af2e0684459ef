"""How the MLA screen divides a terminal. Pure."""

from dataclasses import dataclass
from typing import Literal

View = Literal["all", "settings", "tiers", "advice", "map"]

_WIDE_COLUMNS, _TALL_ROWS = 112, 34
_TWO_COLUMNS, _TWO_ROWS = 76, 20
_FRAMES_FROM_ROWS = 32


@dataclass(frozen=True, slots=True)
class MlaPlan:
    """``views`` are gone through with a key; ``left`` are the columns of settings and advice."""

    views: tuple[View, ...]
    framed: bool
    left: int
    settings_rows: int


def plan_mla(width: int, height: int) -> MlaPlan:
    framed = height >= _FRAMES_FROM_ROWS
    if width >= _WIDE_COLUMNS and height >= _TALL_ROWS:
        return MlaPlan(("all", "map"), framed, 46, 14)
    if width >= _TWO_COLUMNS and height >= _TWO_ROWS:
        return MlaPlan(("tiers", "map", "advice"), framed, 30, 7)
    return MlaPlan(("tiers", "settings", "map", "advice"), framed, 0, 0)
