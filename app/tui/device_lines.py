"""Devices as rows of inked text: one line each, or all in one row. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specpanel.app.tui.ink import Line, Span, clean, fit, width_of
from specpanel.core.devices import words
from specpanel.core.devices.arrangement import DeviceRow, rows, totals

if TYPE_CHECKING:
    from specpanel.app.tui.charts.glyphs import Glyphs
    from specpanel.core.devices.records import DeviceReading, DeviceSample

ONE_COLUMN_DEVICES = 8
"""More than these stand in two columns."""

_TWO_COLUMNS_FROM = 76
_NAME_CELLS = 14
_SHORT_NAME_CELLS = 10
_WHOLE_NAMES_FROM = 72
_BAR_CELLS = 10
_GAP: Span = ("  ", "text")


def rows_needed(sample: "DeviceSample | None", width: int) -> int:
    """Rows that all devices take at ``width``; 0 without any."""
    if sample is None or not sample.devices:
        return 0
    return -(-len(rows(sample)) // _columns(len(rows(sample)), width))


def _columns(devices: int, width: int) -> int:
    return 2 if devices > ONE_COLUMN_DEVICES and width >= _TWO_COLUMNS_FROM else 1


def device_lines(
    sample: "DeviceSample", width: int, height: int, glyphs: "Glyphs", *, first: int = 0
) -> list[Line]:
    """One line a device, in two columns where there are many; from row ``first`` on.

    Where not all fit, the last row says how many are left out; a single row sums them all up.
    """
    found = rows(sample)
    columns = _columns(len(found), width)
    needed = -(-len(found) // columns)
    if height == 1 and len(found) > 1:
        return [_summary(sample, found, width, glyphs)]
    shown = height if needed <= height else height - 1
    first = max(0, min(first, needed - shown))
    each = (width - (columns - 1) * 2) // columns
    lines: list[Line] = []
    for row in range(first, min(needed, first + shown)):
        spans: list[Span] = []
        for column in range(columns):
            place = column * needed + row
            if spans:
                spans.append(_GAP)
            part = _device(found[place], sample, each, glyphs) if place < len(found) else ()
            spans += fit(part, each, glyphs.ellipsis)
        lines.append(tuple(spans))
    hidden = needed - shown
    if hidden > 0:
        above = f"{first} rows above, " if first else ""
        lines.append(((f" {above}{hidden - first} below: pgdn, or d for all", "muted"),))
    return lines


@dataclass(frozen=True, slots=True)
class _Cell:
    """A cell of fixed width; the one with the lowest ``rank`` is the last to go."""

    spans: Line
    cells: int
    rank: int
    right: bool = True


def _device(row: DeviceRow, sample: "DeviceSample", width: int, glyphs: "Glyphs") -> Line:
    reading = row.reading
    ink = _ink(reading)
    mark = glyphs.states["serving"] if row.serving else " "
    indent = " " * row.depth
    state = words.state(reading, sample.age_s)
    if not state and reading is not None and reading.reason:
        state = reading.reason
    name_cells = _NAME_CELLS if width >= _WHOLE_NAMES_FROM else _SHORT_NAME_CELLS
    cells = [
        _Cell(((f"{mark} ", "good"), (f"{indent}{row.device.label}", "strong")), 6, 0, right=False),
        _Cell(((clean(words.short_name(row.device)), "muted"),), name_cells, 5, right=False),
        _Cell(_bar(reading, glyphs), _BAR_CELLS, 6, right=False),
        _Cell(_figure(words.figure(reading, "utilisation_percent", "%"), ink), 5, 1),
        _Cell(_figure(words.memory(reading), ink), 15, 2),
        _Cell(_figure(words.power(reading), ink), 9, 3),
        _Cell(_figure(words.figure(reading, "temperature_c", "°C"), ink), 5, 4),
    ]
    while sum(cell.cells + 1 for cell in cells) > width and len(cells) > 2:
        cells.remove(max(cells, key=lambda cell: cell.rank))
    spans: list[Span] = []
    for cell in cells:
        text = (
            fit(cell.spans, cell.cells, glyphs.ellipsis)
            if width_of(cell.spans) > cell.cells
            else cell.spans
        )
        blank: Span = (" " * (cell.cells - width_of(text)), "text")
        spans += (blank, *text) if cell.right else (*text, blank)
        spans.append((" ", "text"))
    state_ink = "bad" if reading is not None and reading.state == "lost" else "warn"
    if width_of(spans) + width_of(((clean(state), ""),)) > width:
        state = glyphs.states["warning"]  # the details have the words
    return (*spans, (clean(state), state_ink))


def _figure(text: str, ink: str) -> Line:
    """A cell of a line has no room for a reason; the details have."""
    absent = text.startswith("n/a")
    return (("n/a" if absent else text, "muted" if absent else ink),)


def _ink(reading: "DeviceReading | None") -> str:
    if reading is None or reading.state in ("stale", "asleep"):
        return "muted"
    return "bad" if reading.state == "lost" else "strong"


def _bar(reading: "DeviceReading | None", glyphs: "Glyphs") -> Line:
    share = None if reading is None else reading.utilisation_percent
    if share is None:
        return ((glyphs.bar_track * _BAR_CELLS, "grid"),)
    steps = len(glyphs.bar)
    full, part = divmod(round(share / 100 * _BAR_CELLS * steps), steps)
    bar = glyphs.bar[-1] * full + (glyphs.bar[part - 1] if part else "")
    ink = "muted" if reading is not None and reading.state == "stale" else "gauge"
    return ((bar, ink), (glyphs.bar_track * (_BAR_CELLS - len(bar)), "grid"))


def _summary(
    sample: "DeviceSample", found: Sequence[DeviceRow], width: int, glyphs: "Glyphs"
) -> Line:
    """All devices in one row: the range of the load, sums of memory and power, the hottest."""
    readings = [row.reading for row in found if row.reading is not None]
    sums = totals(sample)
    parts: list[Line] = [((f" {sums.cards} devices", "strong"),)]
    loads = _known(reading.utilisation_percent for reading in readings)
    if loads:
        middle = sum(loads) / len(loads)
        spread = f" ({min(loads):.0f}{chr(0x2013)}{max(loads):.0f})" if len(loads) > 1 else ""
        parts.append(((f"{middle:.0f} %", "strong"), (spread, "muted")))
    if sums.memory_used_bytes is not None:
        total = "?" if sums.memory_total_bytes is None else _gib(sums.memory_total_bytes)
        parts.append(((f"{_gib(sums.memory_used_bytes)}/{total} GiB", "strong"),))
    if sums.power_w is not None:
        parts.append(((f"{sums.power_w:.0f} W", "strong"),))
    heat = _known(reading.temperature_c for reading in readings)
    if heat:
        parts.append((("hottest ", "muted"), (f"{max(heat):.0f} °C", "strong")))
    odd = [words.state(reading, sample.age_s) for reading in readings]
    odd = [text for text in odd if text]
    if odd:
        parts.insert(1, ((f"{len(odd)} {clean(odd[0])}", "warn"),))
    line: Line = parts[0]
    for part in parts[1:]:
        longer: Line = (*line, (f" {glyphs.dot} ", "grid"), *part)
        if width_of(longer) > width:
            break
        line = longer
    return line


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / words.GIB:.0f}"
