"""How the Live screen divides a terminal. Pure."""

from dataclasses import dataclass

MINIMUM_COLUMNS, MINIMUM_ROWS = 60, 15
CHARTS = 4

_TWO_COLUMNS_FROM = 100
_FRAMES_FROM_ROWS = 32
_NOTES_FROM_ROWS = 28
_CHART_ROWS = 8
_TWO_CHARTS_ROWS = 24
_ROWS_TO_SCROLL = 4  # with fewer a sum in one row says more


@dataclass(frozen=True, slots=True)
class LivePlan:
    """``charts`` are visible, in ``columns`` by ``rows``; ``framed`` panes have a whole border."""

    columns: int
    rows: int
    charts: int
    framed: bool
    kpi_rows: int
    device_rows: int = 0  # inside the frame


def too_small(width: int, height: int) -> str | None:
    """What is needed, in one line, when nothing useful fits; otherwise ``None``."""
    if width >= MINIMUM_COLUMNS and height >= MINIMUM_ROWS:
        return None
    return f"needs {MINIMUM_COLUMNS}x{MINIMUM_ROWS}, has {width}x{height}"


def plan_live(width: int, height: int, *, zoomed: bool = False, devices: int = 0) -> LivePlan:
    """``devices`` are the rows that all devices of the machine take; fewer are given where room is short."""
    framed = height >= _FRAMES_FROM_ROWS
    kpi_rows = 3 if height >= _NOTES_FROM_ROWS else 2
    if zoomed:
        return LivePlan(1, 1, 1, framed, kpi_rows)
    device_rows = _device_rows(height, devices, framed=framed)
    frame_rows = 2 if framed else 0
    body = height - 1 - kpi_rows - (1 + frame_rows) - 1
    body -= device_rows + frame_rows if device_rows else 0
    columns = 2 if width >= _TWO_COLUMNS_FROM else 1
    charts = max(1, min(CHARTS, columns * max(1, body // _CHART_ROWS)))
    return LivePlan(columns, -(-charts // columns), charts, framed, kpi_rows, device_rows)


def _device_rows(height: int, needed: int, *, framed: bool) -> int:
    room = (height - _TWO_CHARTS_ROWS) // 2 if framed else 2
    if needed <= room:
        return needed
    return room if room >= _ROWS_TO_SCROLL else 1
