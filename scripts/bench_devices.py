"""What reading devices costs, in replay: CPU and memory of the reader, and CPU of the panel's side.

The vendor's library is the stand-in of the tests, so the cost of the driver itself is not in it.
Prints Markdown:

    python scripts/bench_devices.py [--seconds 60]
"""

import argparse
import asyncio
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import psutil
import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from fakes.devices.machine import script, this_is

from specpanel.core.devices.watch import DeviceWatch
from specpanel.core.monitor.recording import line

MACHINES = (
    ("8 x H200", "h200x8"),
    ("8 x MI300X", "mi300x_spx"),
    ("64 x H200", "h200x64"),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one machine, over ``seconds`` at one reading a second."""

    reader_cpu_percent: float
    reader_rss_mb: float
    answer_ms: float
    watch_cpu_percent: float  # asking, decoding, making the sample
    frame_cpu_percent: float  # writing the sample as a line of JSON, as a recording does
    answers: int


async def measure(name: str, seconds: float, folder: Path) -> Cost:
    with this_is(script(name), folder):
        watch = DeviceWatch()
        running = asyncio.create_task(watch.run())
        try:
            sample = await watch.settled(30)
            assert sample.state == "ok", sample.reason
            await asyncio.sleep(3)  # the first answers import and fill caches
            assert watch.pid is not None
            reader = psutil.Process(watch.pid)
            began_s, own_s = time.monotonic(), time.process_time()
            before = reader.cpu_times()
            answered_s, answers, writing_s = watch.answered_s, 0, 0.0
            while time.monotonic() - began_s < seconds:
                await asyncio.sleep(1)
                sample = watch.sample()
                answers += watch.answered_s != answered_s
                answered_s = watch.answered_s
                writes_s = time.process_time()
                line("device_sample", asdict(sample))
                writing_s += time.process_time() - writes_s
            took_s = time.monotonic() - began_s
            own_s = time.process_time() - own_s
            after = reader.cpu_times()
            used_s = after.user + after.system - before.user - before.system
            return Cost(
                100 * used_s / took_s,
                reader.memory_info().rss / 1e6,
                watch.took_ms,
                100 * (own_s - writing_s) / took_s,
                100 * writing_s / took_s,
                answers,
            )
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each machine")
    seconds = parser.parse_args().seconds
    typer.echo(
        f"{date.today()}, Python {sys.version.split()[0]}, {psutil.cpu_count()} cores, "
        f"load {psutil.getloadavg()[0]:.1f}, {seconds:.0f} s each, one reading a second.\n"
    )
    typer.echo(
        "| machine (replay) | answers | reader, % of a core | reader, RSS MB | one reading, ms "
        "| panel's side, % of a core | writing it as JSON, % of a core |"
    )
    typer.echo("|---|---|---|---|---|---|---|")
    for title, name in MACHINES:
        with tempfile.TemporaryDirectory() as folder:
            cost = asyncio.run(measure(name, seconds, Path(folder)))
        typer.echo(
            f"| {title} | {cost.answers} | {cost.reader_cpu_percent:.2f} | {cost.reader_rss_mb:.1f} "
            f"| {cost.answer_ms:.1f} | {cost.watch_cpu_percent:.2f} | {cost.frame_cpu_percent:.2f} |"
        )


if __name__ == "__main__":
    main()
