"""How the Train screen divides a terminal. Pure."""

from dataclasses import dataclass
from typing import NamedTuple

PANES = ("loss", "length", "positions", "times", "rate", "speed", "checkpoints", "plan")
"""The panes in the order that ``[`` and ``]`` go through them."""

_WIDE = 108
_FRAMED_FROM_ROWS = 32
_LIST_COLUMNS = 40
_SMALL_BELOW_ROWS = 20
_PAIRS_FROM_COLUMNS = 76


class Box(NamedTuple):
    """A place between the top bar and the key line, in cells."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class TrainPlan:
    """Where everything stands; what is in no box is hidden."""

    framed: bool
    boxes: dict[str, Box]


def plan_train(
    width: int, height: int, *, selected: int = 0, zoomed: bool = False, begun: bool = True
) -> TrainPlan:
    """The boxes of list, head, foot and panes for ``width`` by ``height`` cells between the bars.

    Where nothing is ``begun``, words on how to begin (``welcome``) take the place of the charts.
    """
    framed = height + 2 >= _FRAMED_FROM_ROWS
    name = PANES[selected % len(PANES)]
    if zoomed and begun:
        return TrainPlan(framed, {"head": Box(0, 0, width, 1), name: Box(0, 1, width, height - 1)})
    wide = framed and width >= _WIDE
    boxes = _wide(width, height) if wide else _narrow(width, height, selected, framed)
    return TrainPlan(framed, boxes if begun else _with_welcome(boxes, height))


def _with_welcome(boxes: dict[str, Box], height: int) -> dict[str, Box]:
    head = boxes["head"]
    kept: dict[str, Box] = {name: boxes[name] for name in ("list", "head") if name in boxes}
    if head.x:  # the plan keeps its place beside, and that of the checkpoints
        above = boxes["list"]
        kept["plan"] = Box(0, above.height, above.width, height - above.height)
    below = head.y + head.height
    kept["welcome"] = Box(head.x, below, head.width, height - below)
    return kept


def _wide(width: int, height: int) -> dict[str, Box]:
    right = width - _LIST_COLUMNS
    list_rows = max(9, height * 2 // 5)
    lower = height - list_rows
    checkpoint_rows = max(7, lower * 3 // 5)
    boxes = {
        "list": Box(0, 0, _LIST_COLUMNS, list_rows),
        "checkpoints": Box(0, list_rows, _LIST_COLUMNS, checkpoint_rows),
        "plan": Box(0, list_rows + checkpoint_rows, _LIST_COLUMNS, lower - checkpoint_rows),
    }
    head, foot = 8, 4
    rows = height - head - foot
    tall = max(7, rows * 2 // 5)
    second = (rows - tall + 1) // 2
    x, half = _LIST_COLUMNS, right // 2
    y = 0
    boxes["head"] = Box(x, y, right, head)
    y += head
    for pair, high in zip(
        (PANES[0:2], PANES[2:4], PANES[4:6]), (tall, second, rows - tall - second), strict=True
    ):
        boxes[pair[0]] = Box(x, y, half, high)
        boxes[pair[1]] = Box(x + half, y, right - half, high)
        y += high
    boxes["foot"] = Box(x, y, right, foot)
    return boxes


def _narrow(width: int, height: int, selected: int, framed: bool) -> dict[str, Box]:
    """The list above, then the chosen pane with its neighbour, then the next two where there is room."""
    small = height + 2 < _SMALL_BELOW_ROWS
    list_rows = 3 if small else max(5, height // 5)
    head, foot = 2, 1 if small else 2
    if framed:
        list_rows, head, foot = list_rows + 2, 4, 4
    boxes = {
        "list": Box(0, 0, width, list_rows),
        "head": Box(0, list_rows, width, head),
        "foot": Box(0, height - foot, width, foot),
    }
    y, rows = list_rows + head, height - list_rows - head - foot
    if small or width < _PAIRS_FROM_COLUMNS:
        boxes[PANES[selected]] = Box(0, y, width, rows)
        return boxes
    tall = rows * 3 // 5
    first = selected - selected % 2
    for offset, high in ((0, tall), (2, rows - tall)):
        one = (first + offset) % len(PANES)
        half = width // 2
        boxes[PANES[one]] = Box(0, y, half, high)
        boxes[PANES[one + 1]] = Box(half, y, width - half, high)
        y += high
    return boxes
