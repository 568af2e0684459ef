"""What watching costs: reading metrics and devices, many servers, recordings, and the server that is watched.

    python scripts/bench.py [--quick] [--no-served | --only-served]      (make bench)

Writes its section of docs/measurements.md and prints it. Every figure is the median of repeated runs with
the lowest and the highest. CPU is that of a process, in per cent of one core.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import bench_devices
import psutil
from bench_page import put_section
from bench_served import served_section
from bench_tui import SERVER, cpu_s, machine
from fakes.devices.machine import script, this_is  # on the path since bench_devices

from specpanel.core.devices.records import DeviceSample
from specpanel.core.devices.watch import DeviceWatch
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Frame
from specpanel.core.monitor.monitor import Monitor, ServerFacts
from specpanel.core.monitor.recording import frame_line
from specpanel.core.monitor.scraping import Scraper
from specpanel.core.monitor.window import Window

ROOT = Path(__file__).parents[1]
ENGINES = (1, 8, 64)
SERVERS = (1, 4, 16, 64)
MACHINES = (("8 devices", "h200x8"), ("64 devices", "h200x64"))
SERVERS_LIMIT = 25.0  # per cent of a core for the most servers


@dataclass(frozen=True, slots=True)
class Row:
    """One figure over several runs, and what is asked of its median."""

    what: str
    values: Sequence[float]
    shape: str
    asked: str = ""

    def text(self) -> str:
        low, high = min(self.values), max(self.values)
        middle = self.shape.format(statistics.median(self.values))
        spread = f"{self.shape.format(low)} to {self.shape.format(high)}"
        return f"| {self.what} | {middle} | {spread} | {self.asked} |"


@contextmanager
def metrics_server(port: int, engines: int = 1) -> Iterator[str]:
    """The exposition server of the panel's measurements, with so many engines."""
    command = [sys.executable, str(SERVER), str(port), str(engines)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while not _listens(port):
            if time.monotonic() > deadline or process.poll() is not None:
                raise OSError(f"the server at {port} did not start")
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _listens(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def cold_starts(times: int) -> list[float]:
    """CPU seconds of ``specpanel --help``."""
    found = []
    for _ in range(times):
        before = os.times()
        command = [sys.executable, "-m", "specpanel.app", "--help"]
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        used = after.children_user + after.children_system
        found.append(used - before.children_user - before.children_system)
    return found


async def scrape_cpu_ms(url: str, times: int) -> list[float]:
    """CPU of one scrape, from the request to figures; the first, which learns the names, is left out."""
    window, found = Window(), []
    async with Scraper(url) as scraper:
        for _ in range(times + 1):
            began_s = time.process_time()
            scrape = await scraper.scrape()
            assert scrape.counters is not None, scrape.error
            window.add(time.monotonic(), scrape.counters)
            window.engine(), window.speculation(), window.latency()
            found.append((time.process_time() - began_s) * 1000)
    return found[1:]


class SharedDevices:
    """One reader for several monitors: each is given what it read last."""

    def __init__(self, watch: DeviceWatch) -> None:
        self._watch = watch

    async def run(self) -> None:
        await asyncio.Event().wait()

    def sample(self) -> DeviceSample:
        return self._watch.sample()


@dataclass(frozen=True, slots=True)
class Watching:
    """Watching some servers: CPU of all our processes, what a Frame takes, and how many each server got."""

    cpu_percent: float
    frame_bytes: float
    frames_a_second: float  # of each server; 1 when none was late


async def watching(servers: int, url: str, seconds: float) -> Watching:
    """Monitors in one process at 1 Hz, each Frame made into its line of JSON."""
    sizes: list[int] = []

    def take(frame: Frame) -> None:
        sizes.append(len(frame_line(frame).encode()) + 1)

    watch = DeviceWatch()
    tasks = [asyncio.create_task(watch.run())]
    try:
        await watch.settled(30)
        shared = SharedDevices(watch)
        for number in range(servers):
            facts = ServerFacts(url=url, name=f"server-{number}")
            monitor = Monitor(Feed(), lambda facts=facts: facts, on_frame=take, devices=shared)
            tasks.append(asyncio.create_task(monitor.run()))
            await asyncio.sleep(1 / servers)  # servers are not found all at the same moment
        await asyncio.sleep(3)
        process = psutil.Process()
        sizes.clear()
        used_s, began_s = cpu_s(process), time.monotonic()
        await asyncio.sleep(seconds)
        took_s = time.monotonic() - began_s
        share = 100 * (cpu_s(process) - used_s) / took_s
        return Watching(share, statistics.mean(sizes), len(sizes) / took_s / servers)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _in_child(servers: int, url: str, seconds: float) -> Watching:
    """In a process of its own, so that the server of the figures is not counted."""
    command = [sys.executable, __file__, "--watching", str(servers), url, f"{seconds:g}"]
    told = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if told.returncode:
        raise RuntimeError(told.stderr[-2000:])
    return Watching(*map(float, told.stdout.split()))


def _watching_child(words: Sequence[str]) -> None:
    servers, url, seconds = words
    with tempfile.TemporaryDirectory() as folder, this_is(script("h200x8"), Path(folder)):
        found = asyncio.run(watching(int(servers), url, float(seconds)))
    told = (found.cpu_percent, found.frame_bytes, found.frames_a_second)
    sys.stdout.write(" ".join(map(str, told)) + "\n")


def server_rows(port: int, rounds: int, seconds: float) -> Iterator[Row]:
    medians: dict[int, float] = {}
    size = 0.0
    with metrics_server(port) as url:
        for servers in SERVERS:
            runs = [_in_child(servers, url, seconds) for _ in range(rounds)]
            values = [run.cpu_percent for run in runs]
            medians[servers] = statistics.median(values)
            size = runs[-1].frame_bytes
            asked = f"at most {SERVERS_LIMIT:g} %" if servers == SERVERS[-1] else ""
            yield Row(f"watching {servers} servers and 8 devices", values, "{:.1f} %", asked)
    yield Row(
        f"Frames a second of each of {SERVERS[-1]} servers",
        [run.frames_a_second for run in runs],
        "{:.2f}",
        "1",
    )
    few, many = SERVERS[1], SERVERS[-1]
    step = (medians[many] - medians[few]) / (many - few)
    fixed = max(0.0, medians[few] - step * few)
    yield Row("of that, each further server", [step], "{:.2f} %")
    middle = SERVERS[2]
    off = abs(medians[middle] - fixed - step * middle) / max(0.1, medians[middle])
    yield Row(f"{middle} servers, away from that line", [100 * off], "{:.0f} %", "linear")
    yield Row("a recording, 1 server and 8 devices", [size * 3600 / 1e6], "{:.1f} MB an hour")


def device_rows(seconds: float, rounds: int) -> Iterator[Row]:
    for title, name in MACHINES:
        costs = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                costs.append(asyncio.run(bench_devices.measure(name, seconds, Path(folder))))
        readers = [cost.reader_cpu_percent for cost in costs]
        yield Row(f"device reader, {title} (replayed)", readers, "{:.2f} %")
        yield Row(
            f"our side of it, {title}", [cost.watch_cpu_percent for cost in costs], "{:.2f} %"
        )


def scrape_rows(port: int, times: int) -> Iterator[Row]:
    for engines in ENGINES:
        with metrics_server(port, engines) as url:
            values = asyncio.run(scrape_cpu_ms(url, times))
        yield Row(f"scraping and reading {engines} engine(s)", values, "{:.2f} ms")


def headless_section(out: Path, port: int, rounds: int, seconds: float) -> None:
    """Measure everything that needs no real server, into the page and onto the screen."""
    host = machine()
    rows: list[Row] = [Row("specpanel --help", cold_starts(5), "{:.2f} s of CPU")]
    parts: list[tuple[str, Callable[[], Iterator[Row]]]] = [
        ("scrapes", lambda: scrape_rows(port, 20)),
        ("devices", lambda: device_rows(seconds, rounds)),
        ("servers", lambda: server_rows(port, rounds, seconds)),
    ]
    for name, part in parts:
        sys.stderr.write(f"{name}\n")
        rows += part()
    lines = [
        "## Headless",
        "",
        f"Made by `make bench` on {datetime.now(UTC):%Y-%m-%d}: {host}.",
        f"Runs of {seconds:g} s, {rounds} of each; per cent are of one core.",
        "",
        "| | median | lowest to highest | asked |",
        "|---|---|---|---|",
        *(row.text() for row in rows),
    ]
    put_section(out, "headless", "scripts/bench.py", "\n".join(lines))
    sys.stdout.write("\n".join(lines) + "\n")


def main() -> int:
    if sys.argv[1:2] == ["--watching"]:
        _watching_child(sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of each run")
    parser.add_argument("--no-served", action="store_true", help="start no real vLLM")
    parser.add_argument("--only-served", action="store_true", help="measure that alone")
    parser.add_argument("--port", type=int, default=20690)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "measurements.md")
    chosen = parser.parse_args()
    rounds, seconds = (1, 6.0) if chosen.quick else (3, 20.0)
    rounds, seconds = chosen.rounds or rounds, chosen.seconds or seconds
    if not chosen.only_served:
        headless_section(chosen.out, chosen.port, rounds, seconds)
    if not chosen.no_served:
        text = served_section(units=8 if chosen.quick else 60)
        put_section(chosen.out, "served", "scripts/bench.py", text)
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
