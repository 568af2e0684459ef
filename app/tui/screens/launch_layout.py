"""How the Launch screen divides a terminal. Pure."""

from dataclasses import dataclass
from typing import Literal

View = Literal["form", "profiles", "side"]
"""What has the room where there is room for one thing."""

_THREE_COLUMNS_FROM = 100
_FRAMES_FROM_ROWS = 32
_SHORT_ROWS = 20


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """``wide``: profiles, form and preview stand side by side. Heights are in rows, titles included."""

    wide: bool
    framed: bool
    help_rows: int
    summary_rows: int


def plan_launch(width: int, height: int) -> LaunchPlan:
    wide = width >= _THREE_COLUMNS_FROM
    framed = height >= _FRAMES_FROM_ROWS
    help_rows = 5 if framed else 3 if height >= _SHORT_ROWS else 2
    summary_rows = 0 if wide else 2 if height >= _SHORT_ROWS else 1
    return LaunchPlan(wide, framed, help_rows, summary_rows)
