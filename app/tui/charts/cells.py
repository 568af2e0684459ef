"""What charts over time share: rows of single cells, notes in them, and the time axis below."""

from collections.abc import Sequence

from rich.cells import cell_len

from specpanel.app.tui.ink import Span, shorten

LABEL_CELLS = 5
"""Cells left of the value axis."""

_NOTE_CELLS = 24


def time_ticks(window_s: float, columns: int) -> list[tuple[float, str]]:
    """Moments on the time axis as seconds before now, with their labels, oldest first."""
    wanted = max(1, min(6, columns // 12))
    steps = (5, 10, 15, 30, 60, 120, 180, 300, 600, 900, 1200, 1800, 3600, 7200, 14400, 43200)
    step = next((step for step in steps if window_s / step <= wanted), steps[-1])
    ticks = [step * number for number in range(int(window_s // step), 0, -1)]
    minutes = step % 60 == 0 or window_s > 120
    labels = [(float(back), f"-{back / 60:g} min" if minutes else f"-{back} s") for back in ticks]
    return [*labels, (0.0, "now")]


def time_axis(window_s: float, columns: int) -> str:
    """The labels of the time axis, in exactly ``columns`` cells; a label without room is left out."""
    axis = [" "] * columns
    free_until = columns + 1
    for back_s, text in reversed(time_ticks(window_s, columns)):
        at = round((1 - back_s / window_s) * (columns - 1))
        at = min(columns - len(text), max(0, at - len(text) // 2))
        if at >= 0 and at + len(text) < free_until:
            axis[at : at + len(text)] = text
            free_until = at
    return "".join(axis)


def runs(cells: Sequence[Span]) -> list[Span]:
    """Neighbouring cells of one ink as one span."""
    found: list[Span] = []
    texts: list[str] = []
    current = ""
    for text, ink in cells:
        if ink != current and texts:
            found.append(("".join(texts), current))
            texts = []
        current = ink
        texts.append(text)
    if texts:
        found.append(("".join(texts), current))
    return found


def write(cells: list[Span], at: int, text: str, ink: str) -> None:
    """Puts ``text`` over the cells from ``at`` on; the caller knows that it fits."""
    for char in text:
        width = cell_len(char)
        if width:
            cells[at] = (char, ink)
        for extra in range(1, width):
            cells[at + extra] = ("", ink)
        at += width


def write_note(
    cells: list[Span], owner: Sequence[int], room: range, text: str, ellipsis: str
) -> None:
    """Puts a mark's note into the free cells at the start of ``room``; a line keeps its cells."""
    free = next((at for at in room if owner[at]), room.stop)
    text = shorten(text, min(_NOTE_CELLS, free - room.start - 1), ellipsis)
    write(cells, room.start, text, "mark")
