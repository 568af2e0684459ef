"""What being watched costs the server: time per output token while a watcher runs and while it stands still.

A real vLLM on this machine's CPU answers one request after another, plainly decoding; watcher and server
share its cores, so this is the worst that can be. The watcher is stopped and let go on every few seconds,
in the order still, running, running, still, so that a drift of the machine meets both. Those four spells
are one unit: an interval from resampled requests would take the machine's own unrest for certainty.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import httpx
from bench_serving import COMMAND, serving

from specpanel.core.speculation.few_units import resampled_interval

LIMIT_PERCENT = 0.5
SPELL_S = 3.0
SETTLING_S = 0.5  # of each spell: what had waited is made up for
TOKENS = 512
ORDER = (False, True, True, False)


@dataclass(slots=True)
class Unit:
    """Times between tokens, in seconds, added up while the watcher stood still and while it ran."""

    total_s: dict[bool, float] = field(default_factory=lambda: {False: 0.0, True: 0.0})
    gaps: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})


@contextmanager
def _watcher(url: str) -> Iterator[subprocess.Popen[bytes]]:
    """A watcher with its children in a group of their own, standing still."""
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    child = subprocess.Popen([*COMMAND, "watch", url, "--json"], start_new_session=True, **quiet)
    try:
        time.sleep(5.0)  # it has connected, and has read several times
        os.killpg(child.pid, signal.SIGSTOP)
        yield child
    finally:
        os.killpg(child.pid, signal.SIGCONT)
        child.terminate()
        child.wait()


def _arrivals(http: httpx.Client, model: str) -> Generator[tuple[float, bool], None, None]:
    """When each piece of an answer came, and whether the one before it was of the same answer; for ever."""
    body = {"model": model, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    body |= {"prompt": "Tell a long story about the sea.", "stream": True}
    while True:
        follows = False
        with http.stream("POST", "/v1/completions", json=body) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    yield time.monotonic(), follows
                    follows = True


def _unit(arrivals: Iterator[tuple[float, bool]], group: int) -> Unit:
    found = Unit()
    last_s, _ = next(arrivals)
    for runs in ORDER:
        os.killpg(group, signal.SIGCONT if runs else signal.SIGSTOP)
        began_s = time.monotonic()
        while last_s < began_s + SPELL_S:
            came_s, follows = next(arrivals)
            if follows and last_s >= began_s + SETTLING_S:
                found.total_s[runs] += came_s - last_s
                found.gaps[runs] += 1
            last_s = came_s
    return found


def served_section(units: int, port: int = 20695) -> str:
    """Measure ``units`` units, 12 s each; the section of the page."""
    found: list[Unit] = []
    with serving("demo-plain", port) as url, httpx.Client(base_url=url, timeout=60) as http:
        model = json.loads(http.get("/v1/models").content)["data"][0]["id"]
        with _watcher(url) as watcher, closing(_arrivals(http, model)) as arrivals:
            _unit(arrivals, watcher.pid)  # warm-up
            found = [_unit(arrivals, watcher.pid) for _ in range(units)]
    columns = [
        [float(getattr(unit, part)[runs]) for unit in found]
        for runs in (True, False)
        for part in ("total_s", "gaps")
    ]
    interval = resampled_interval(columns, lambda sums: (sums[0] / sums[1]) / (sums[2] / sums[3]))
    if interval is None:
        return "## Watching a server\n\nNothing was measured.\n"
    still_ms = 1000 * sum(columns[2]) / sum(columns[3])
    value, low, high = (
        100 * (edge - 1) for edge in (interval.estimate, interval.low, interval.high)
    )
    return (
        "## Watching a server\n\n"
        "`make bench`: vLLM on this CPU answers one request after another, its cores shared with `specpanel "
        f"watch --json`,\nwhich runs and stands still in turn, {SPELL_S:g} s each; {units} units of four "
        f"such spells. While it runs, an output token takes\n{value:+.2f} % (95 %: {low:+.2f} to "
        f"{high:+.2f} %) of {still_ms:.1f} ms longer (asked: at most {LIMIT_PERCENT:g} %).\n"
    )
