"""An hour on a real vLLM: a panel and `watch --record` beside a request now and then.

    python scripts/soak_served.py [--minutes 60] [--write]     --write puts it into docs/measurements.md

Both are looked at every minute. In the end what was recorded is held against the server's own counters.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import psutil
from bench_page import put_section
from bench_serving import serving
from bench_terminal import Terminal

from specpanel.core.engine.metrics import parse_exposition
from specpanel.core.monitor.frame import Frame
from specpanel.core.monitor.recording import read_recording
from specpanel.core.settings.profile import Traffic
from specpanel.core.traffic.endpoint import Endpoint
from specpanel.core.traffic.prompts import builtin_prompts

ROOT = Path(__file__).parents[1]
SETTLING_S = 600.0  # memory grows from here on
BETWEEN_S = 30.0
TOKENS = 24
COUNTED = ("drafts", "draft_tokens", "accepted_tokens", "generation_tokens")


@dataclass(frozen=True, slots=True)
class Minute:
    at_s: float
    panel_mb: float
    watcher_mb: float
    panel_cpu_s: float
    watcher_cpu_s: float


@contextmanager
def recorder_of(url: str, path: Path) -> Iterator[psutil.Process]:
    command = [sys.executable, "-m", "specpanel.app", "watch", url, "--json", "--record", str(path)]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield psutil.Process(child.pid)
    finally:
        child.terminate()
        child.wait()


def minute_of(began_s: float, panel: psutil.Process, watcher: psutil.Process) -> Minute:
    used = [sum(process.cpu_times()[:2]) for process in (panel, watcher)]
    held = [process.memory_info().rss / 2**20 for process in (panel, watcher)]
    return Minute(time.monotonic() - began_s, *held, *used)


async def attend(
    url: str, terminal: Terminal, watcher: psutil.Process, seconds: float
) -> list[Minute]:
    """Send a request now and then, keep the panel's terminal empty, and look at both every minute."""
    panel, prompts = psutil.Process(terminal.pid), builtin_prompts()
    settings = Traffic(max_tokens=TOKENS, temperature=0.0)
    began_s = time.monotonic()
    found = [minute_of(began_s, panel, watcher)]
    number = 0
    async with Endpoint(url) as endpoint:
        while time.monotonic() - began_s < seconds:
            answered = asyncio.create_task(
                endpoint.ask(prompts[number % len(prompts)], settings, number)
            )
            await asyncio.to_thread(terminal.read_for, BETWEEN_S)
            if (error := (await answered).error) is not None:
                sys.stderr.write(f"request {number}: {error}\n")
            number += 1
            if time.monotonic() - began_s >= 60 * len(found):
                found.append(minute_of(began_s, panel, watcher))
                last = found[-1]
                sys.stderr.write(
                    f"{last.at_s / 60:.0f} min: panel {last.panel_mb:.1f} MB, "
                    f"watch {last.watcher_mb:.1f} MB\n"
                )
        await asyncio.to_thread(terminal.read_for, 4.0)  # the last counters reach the recording
    return [*found, minute_of(began_s, panel, watcher)]


def counters(url: str) -> dict[str, int]:
    """What the server has counted since it started."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        total = parse_exposition(answer.read().decode()).counters.total
    return {name: value for name in COUNTED if (value := getattr(total, name)) is not None}


def recorded(frames: list[Frame]) -> dict[str, int]:
    """What the recording says in the end: all that the server counted, from its start on."""
    totals = [frame.totals for frame in frames if frame.totals is not None][-1]
    return {name: getattr(totals, name) for name in COUNTED}


def soak(url: str, seconds: float, folder: Path) -> str:
    """The section of the page."""
    path = folder / "soak.ndjson"
    argv = [sys.executable, "-m", "specpanel.app", "watch", url, "--tui"]
    with recorder_of(url, path) as watcher, Terminal(argv) as terminal:
        minutes = asyncio.run(attend(url, terminal, watcher, seconds))
    served = counters(url)
    frames = list(read_recording(path))
    told = recorded(frames)
    first = next(minute for minute in minutes if minute.at_s >= min(SETTLING_S, seconds / 6))
    last = minutes[-1]
    span_s = last.at_s - first.at_s
    times = [frame.time_unix for frame in frames]
    longest_s = max(after - early for early, after in pairwise(times))
    differing = [
        f"{told[name]} {name.replace('_', ' ')}" for name in COUNTED if served[name] != told[name]
    ]
    counted = ", ".join(f"{served[name]} {name.replace('_', ' ')}" for name in COUNTED)
    return (
        f"## {last.at_s / 60:.0f} minutes of a real server\n\n"
        f"`python scripts/soak_served.py --minutes {seconds / 60:g}`: vLLM on this CPU with the "
        f"n-gram drafter, a request every {BETWEEN_S:g} s, the panel on a terminal of 140x45 and "
        "`watch --record` beside it.\n\n"
        "| | panel | watch --record |\n|---|---|---|\n"
        f"| memory in the end | {last.panel_mb:.1f} MB | {last.watcher_mb:.1f} MB |\n"
        f"| growth over the last {span_s / 60:.0f} minutes | {last.panel_mb - first.panel_mb:+.1f} MB | "
        f"{last.watcher_mb - first.watcher_mb:+.1f} MB |\n"
        f"| CPU, of one core | {100 * (last.panel_cpu_s - first.panel_cpu_s) / span_s:.1f} % | "
        f"{100 * (last.watcher_cpu_s - first.watcher_cpu_s) / span_s:.1f} % |\n\n"
        f"{len(frames)} Frames, the longest time between two {longest_s:.1f} s, "
        f"{path.stat().st_size / last.at_s * 3600 / 1e6:.1f} MB an hour. "
        f"The server counted {counted}; the recording "
        + ("says the same.\n" if not differing else f"says otherwise: {', '.join(differing)}.\n")
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--port", type=int, default=20696)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving("demo-ngram", chosen.port) as url:
        text = soak(url, chosen.minutes * 60, Path(folder))
    sys.stdout.write(text)
    if chosen.write:
        page = ROOT / "docs" / "measurements.md"
        put_section(page, "soak-served", "scripts/soak_served.py", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
