"""``specpanel devices``: the accelerators of this machine, what they do, and why a figure is not there."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from specpanel.app.cli import options
from specpanel.app.cli.report import guarded, talk
from specpanel.core.printable import one_line, padded

if TYPE_CHECKING:
    from specpanel.core.devices.arrangement import DeviceRow
    from specpanel.core.devices.records import DeviceSample
    from specpanel.core.devices.watch import DeviceWatch

HELP = "Show the GPUs of this machine: load, memory, power, temperature, and who uses them."

_WAIT_S = 30.0
_HEAD = f"{'GPU':<6}{'NAME':<15}{'UTIL':>9}{'MEMORY':>16}{'POWER':>11}{'TEMP':>6}  STATE"
_WIDTH = 80
_SHORT = 4  # a reason no longer than this stands in the cell
_SHOWN = {
    "utilisation_percent": "utilisation",
    "memory_used_bytes": "memory",
    "power_w": "power",
    "temperature_c": "temperature",
}


@guarded
def devices(
    watch: Annotated[
        bool, typer.Option("--watch/--once", help="Go on, once a second, until Ctrl-C.")
    ] = False,
    processes: Annotated[
        bool, typer.Option("--processes", help="List the processes on each device as well.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    import asyncio

    if asyncio.run(_show(watch, processes, as_json)):
        raise typer.Exit(130)


async def _show(watching: bool, processes: bool, as_json: bool) -> bool:
    """Print samples; whether it was interrupted."""
    import asyncio

    from specpanel.app.cli.signals import on_stop_signals
    from specpanel.core.devices.watch import PERIOD_S, DeviceWatch
    from specpanel.core.errors import SpecpanelError

    stop = asyncio.Event()
    on_stop_signals(stop.set)
    watch = DeviceWatch()
    watch.want_processes(processes)
    running = asyncio.create_task(watch.run())
    stopping = asyncio.create_task(stop.wait())
    try:
        first = asyncio.create_task(watch.settled(_WAIT_S))
        await asyncio.wait({first, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            first.cancel()
            return True
        sample = await first
        if watch.inventory is None:
            raise SpecpanelError(
                f"no device could be read: {sample.reason or 'the reader did not start'}",
                "Look at the kernel's log (dmesg) for the driver.",
            )
        if as_json:
            _print_inventory(watch)
        while True:
            _print(sample, watch, processes, as_json)
            if not watching:
                return False
            await asyncio.wait({stopping}, timeout=PERIOD_S)
            if stop.is_set():
                return True
            sample = watch.sample()
    finally:
        running.cancel()
        stopping.cancel()
        await asyncio.gather(running, stopping, return_exceptions=True)


def _print_inventory(watch: "DeviceWatch") -> None:
    from dataclasses import asdict

    from specpanel.core.monitor.recording import line

    if watch.inventory is not None:
        typer.echo(line("device_inventory", asdict(watch.inventory)))


def _print(sample: "DeviceSample", watch: "DeviceWatch", processes: bool, as_json: bool) -> None:
    from dataclasses import asdict

    from specpanel.core.monitor.recording import line

    if as_json:
        typer.echo(line("device_sample", asdict(sample)))
        return
    for text in table(sample, _servers(sample), processes=processes):
        typer.echo(text)
    if not sample.devices and watch.inventory is not None:
        for library in watch.inventory.libraries:
            if library.fix:
                talk(f"  {library.name}: {library.fix}")


def _servers(sample: "DeviceSample") -> dict[str, list[str]]:
    """Names of the servers that specpanel started, by the uuid of the device that they use."""
    found: dict[str, list[str]] = {}
    if not sample.devices:
        return found
    from specpanel.core.devices.serving import ServerDevices
    from specpanel.core.engine.process import running_servers

    for record in running_servers():
        for uuid in ServerDevices().uuids(sample, record.pid, ()) or ():
            found.setdefault(uuid, []).append(record.name)
    return found


def table(
    sample: "DeviceSample", servers: dict[str, list[str]], *, processes: bool = False
) -> Iterator[str]:
    """The lines of the table, none wider than 80 columns, with what there is to say below it."""
    from specpanel.core.devices import arrangement, words

    if not sample.devices:
        yield words.none_found(sample)
        return
    if sample.state != "ok" and sample.reason:
        yield _cut(f"{sample.state}: {sample.reason}")
    rows = arrangement.rows(sample)
    mixed = len({row.device.vendor for row in rows}) > 1
    yield _HEAD
    for row in rows:
        yield _line(row, mixed, servers.get(row.device.uuid, []), sample.age_s)
        for process in (row.reading and row.reading.processes) or ():
            size = (
                ""
                if process.memory_used_bytes is None
                else f"{process.memory_used_bytes / 2**30:.1f} GiB"
            )
            yield _cut(
                f"{'':<6}  pid {process.pid:<8} {padded(one_line(process.name or '?', 40), 24)} {size:>10}"
            )
    yield from _notes(rows, mixed, processes)


def _label(row: "DeviceRow", mixed: bool) -> str:
    vendor = {"nvidia": "NV ", "amd": "AMD "}[row.device.vendor] if mixed else ""
    return f"{'  ' * row.depth if not mixed else ''}{vendor}{row.device.label}"


def _line(row: "DeviceRow", mixed: bool, servers: list[str], age_s: float | None) -> str:
    from specpanel.core.devices import words

    reading = row.reading
    said = ", ".join(text for text in (*servers, words.state(reading, age_s)) if text)
    cells = (
        words.figure(reading, "utilisation_percent", "%"),
        words.memory(reading),
        words.power(reading),
        words.figure(reading, "temperature_c", "°C"),
    )
    util, memory, power, warmth = (_brief(cell) for cell in cells)
    text = (
        f"{_label(row, mixed):<6}{padded(words.short_name(row.device)[:14], 15)}"
        f"{util:>9}{memory:>16}{power:>11}{warmth:>6}  {said}"
    )
    return _cut(text.rstrip())


def _brief(cell: str) -> str:
    """``n/a (MIG)`` stays; a longer reason goes below the table."""
    head, opened, why = cell.partition(" (")
    return head if opened and len(why) - 1 > _SHORT else cell


def _notes(rows: "tuple[DeviceRow, ...]", mixed: bool, processes: bool) -> Iterator[str]:
    """Reasons that do not fit into a cell, each once, with the devices that it is true of."""
    shown = {**_SHOWN, "processes": "processes"} if processes else _SHOWN
    found: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for row in rows:
        label, reading = _label(row, mixed).strip(), row.reading
        if reading is None:
            continue
        if reading.reason:
            found.setdefault(((), reading.reason), []).append(label)
        by_reason: dict[str, list[str]] = {}
        for name, word in shown.items():
            if (why := reading.absent.get(name)) and len(why) > _SHORT:
                by_reason.setdefault(why, []).append(word)
        for why, words in by_reason.items():
            found.setdefault((tuple(words), why), []).append(label)
        if row.device.memory_kind == "unified":
            told = "memory is the host's; the total is used + what is available"
            found.setdefault(((), told), []).append(label)
        if row.device.kind == "partition" and "NPS1" in (row.device.partition or ""):
            told = "memory is one for all partitions of the card"
            found.setdefault(((), told), []).append(label)
    for (words_of_note, why), labels in found.items():
        # A list of processes can be there and be wanting all the same.
        no = "" if words_of_note == ("processes",) else "no "
        what = f"{no}{', '.join(words_of_note)}: " if words_of_note else ""
        yield _cut(f"GPU {_span(labels)}: {what}{why}")


def _span(labels: list[str]) -> str:
    return ", ".join(labels) if len(labels) <= 4 else f"{labels[0]} … {labels[-1]}"


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"
