"""All that is known of the devices, as rows of inked text: each absent figure with its reason. Pure."""

from collections.abc import Sequence

from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.ink import Line, Span, clean, width_of
from specpanel.core.devices import words
from specpanel.core.devices.arrangement import DeviceRow, rows
from specpanel.core.devices.records import DeviceLibrary, DeviceProcess, DeviceReading, DeviceSample

_FIELDS: tuple[tuple[str, str, str], ...] = (
    ("utilisation", "utilisation_percent", "%"),
    ("memory activity", "memory_activity_percent", "%"),
    ("temperature", "temperature_c", "°C"),
    ("memory temperature", "memory_temperature_c", "°C"),
    ("core clock", "core_clock_mhz", "MHz"),
    ("memory clock", "memory_clock_mhz", "MHz"),
)


def detail_lines(
    sample: DeviceSample, libraries: Sequence[DeviceLibrary], width: int, glyphs: Glyphs
) -> list[Line]:
    """Every device with all its figures, each absent one with its reason; then how they are read."""
    lines: list[Line] = []
    if not sample.devices:
        lines += [((f" {clean(words.none_found(sample))}", "warn"),), ()]
    elif sample.reason:
        lines += [((f" {clean(sample.reason)}", "warn"),), ()]
    for row in rows(sample):
        lines += [*_details(row, sample, width, glyphs), ()]
    for library in libraries:
        lines.append(_library(library))
    return lines


def _details(row: DeviceRow, sample: DeviceSample, width: int, glyphs: Glyphs) -> list[Line]:
    device, reading = row.device, row.reading
    pad = " " + "  " * row.depth
    use = {True: "the server uses it", False: "not the server's", None: ""}[row.serving]
    head: list[Span] = [(f"{pad}{device.label} {clean(device.name)}", "title")]
    for text, ink in (
        (device.partition or "", "text"),
        (use, "good" if row.serving else "muted"),
        (words.state(reading, sample.age_s), "warn"),
    ):
        if text:
            head += [(f" {glyphs.dot} ", "grid"), (clean(text), ink)]
    identity = (device.uuid, device.bus_id or "", f"{device.memory_kind} memory")
    joined = f" {glyphs.dot} ".join(clean(text) for text in identity if text)
    lines: list[Line] = [tuple(head), ((f"{pad}  {joined}", "muted"),)]
    if reading is None:
        return [*lines, ((f"{pad}  no reading", "warn"),)]
    lines += _flowed(_facts(reading), f"{pad}  ", width)
    if reading.reason:
        lines.append(((f"{pad}  {clean(reading.reason)}", "warn"),))
    lines += [_process(process, f"{pad}  ") for process in reading.processes or ()]
    if reading.processes == ():
        lines.append(((f"{pad}  no process that can be seen from here holds its memory", "muted"),))
    return lines


def _facts(reading: DeviceReading) -> list[tuple[str, str]]:
    facts = [("memory", words.memory(reading)), ("power", words.power(reading))]
    facts += [(label, words.figure(reading, name, unit)) for label, name, unit in _FIELDS]
    throttled = reading.throttle_reasons
    facts.append(("throttled", "n/a" if throttled is None else ", ".join(throttled) or "no"))
    if reading.power_source:
        facts.append(("power from", reading.power_source))
    if reading.temperature_source:
        facts.append(("temperature of", reading.temperature_source))
    for name, value in reading.vendor_fields.items():
        facts.append((name, f"{value:g}" if isinstance(value, float) else str(value)))
    return facts


def _process(process: DeviceProcess, indent: str) -> Line:
    used = process.memory_used_bytes
    held = "memory n/a" if used is None else f"{used / words.GIB:.1f} GiB"
    name = clean(process.name or "name not known")
    return ((f"{indent}pid {process.pid} ", "muted"), (f"{name} ", "text"), (held, "strong"))


def _flowed(facts: Sequence[tuple[str, str]], indent: str, width: int) -> list[Line]:
    """Whole facts, as many a row as fit."""
    lines: list[Line] = []
    spans: list[Span] = [(indent, "text")]
    for label, value in facts:
        part: Line = (
            (f"{clean(label)} ", "muted"),
            (clean(value), "muted" if value.startswith("n/a") else "strong"),
            ("   ", "text"),
        )
        if len(spans) > 1 and width_of(spans) + width_of(part) > width:
            lines.append(tuple(spans))
            spans = [(indent, "text")]
        spans += part
    return [*lines, tuple(spans)]


def _library(library: DeviceLibrary) -> Line:
    versions = [clean(text) for text in (library.version, library.binding, library.driver) if text]
    spans: list[Span] = [
        (f" {clean(library.name)} ", "text"),
        (library.state, "good" if library.state == "used" else "muted"),
    ]
    if versions:
        spans.append((f"  {' '.join(versions)}", "muted"))
    if library.reason:
        spans.append((f"  {clean(library.reason)}", "muted"))
    return tuple(spans)
