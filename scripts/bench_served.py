"""What being watched costs the server: time per output token with a watcher and without, taking turns.

A real vLLM on this machine's CPU serves the demonstration model; watcher and server share its cores, so
this is the worst that can be. Prompts are the same on both sides and answers are greedy, so each prompt is
compared with itself.
"""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from bench_serving import COMMAND, serving

from specpanel.core.settings.profile import Traffic
from specpanel.core.speculation.paired import paired_ratio
from specpanel.core.traffic.endpoint import Endpoint
from specpanel.core.traffic.load import Load
from specpanel.core.traffic.prompts import builtin_prompts
from specpanel.core.traffic.records import RequestRecord

LIMIT_PERCENT = 0.5
PROMPTS = 6
TOKENS = 48


@contextmanager
def _watcher(url: str, wanted: bool) -> Iterator[None]:
    if not wanted:
        yield
        return
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    child = subprocess.Popen([*COMMAND, "watch", url, "--json"], **quiet)
    try:
        yield
    finally:
        child.terminate()
        child.wait()


async def _block(url: str, requests: int) -> list[RequestRecord]:
    found: list[RequestRecord] = []
    traffic = Traffic(requests=requests, warmup=1, max_tokens=TOKENS, temperature=0.0)
    prompts = builtin_prompts()[: PROMPTS + 1]
    async with Endpoint(url) as endpoint:
        load = Load(endpoint, prompts, traffic, on_record=found.append, stop=asyncio.Event())
        await load.run()
    return found


def served_section(blocks: int, port: int = 20695) -> str:
    """Measure ``blocks`` blocks on each side; the section of the page."""
    sides: dict[bool, list[RequestRecord]] = {False: [], True: []}
    with serving("demo-ngram", port) as url:
        for block in range(2 * blocks):
            watched = block % 4 in (1, 2)  # alone, watched, watched, alone: a drift meets both
            with _watcher(url, watched):
                sides[watched] += asyncio.run(_block(url, PROMPTS))
    found = paired_ratio(sides[True], sides[False])
    interval = found.ratio_interval
    if found.ratio is None or interval is None:
        return "## Watching a server\n\nNothing was measured.\n"
    low, high = (100 * (edge - 1) for edge in (interval.low, interval.high))
    return (
        "## Watching a server\n\n"
        f"`make bench`: vLLM on this CPU, its cores shared with `specpanel watch --json`, {blocks} blocks of "
        f"{PROMPTS} requests on each side in turn. Watched, an output token takes "
        f"{100 * (found.ratio - 1):+.2f} % (95 %: {low:+.2f} to {high:+.2f} %) of "
        f"{found.tpot_without_ms or 0.0:.1f} ms longer (asked: at most {LIMIT_PERCENT:g} %).\n"
    )
