"""What vLLM was doing in the step that killed it, from the dump that it writes then. Pure.

``v1/core/sched/output.py`` and ``logging_utils/dump_input.py`` of vLLM 0.32.0: "Dumping scheduler output
for model execution: SchedulerOutput(...)" and "Dumping scheduler stats: SchedulerStats(...)".
"""

import re
from collections.abc import Sequence

from specpanel.core.engine.logline import LogLine

_DRAFTS = re.compile(r"scheduled_spec_decode_tokens=(\{.*?\})(?:, \w+=|\)|$)")
_USAGE = re.compile(r"kv_cache_usage=([\d.]+)")
_RUNNING = re.compile(r"num_running_reqs=(\d+)")
_LISTS = re.compile(r"\[([-\d, ]*)\]")
_LENGTH = 200  # characters of the drafts shown


def step_evidence(log: Sequence[LogLine]) -> tuple[str, ...]:
    """The drafts of the last dumped step and how full the cache was; empty where nothing was dumped."""
    drafts = next(
        (found for entry in reversed(log) if (found := _DRAFTS.search(entry.message))), None
    )
    usage = next(
        (found for entry in reversed(log) if (found := _USAGE.search(entry.message))), None
    )
    evidence: list[str] = []
    if drafts is not None and drafts[1] != "{}":
        shown = drafts[1] if len(drafts[1]) <= _LENGTH else drafts[1][: _LENGTH - 1] + "…"
        tokens = [
            int(token) for one in _LISTS.findall(drafts[1]) for token in one.split(",") if token
        ]
        empty = bool(tokens) and all(token == -1 for token in tokens)
        what = "all of them -1, so none was real" if empty else f"{len(tokens)} tokens"
        evidence.append(f"drafts of the last step ({what}): {shown}")
    if usage is not None:
        running = next(
            (found for entry in reversed(log) if (found := _RUNNING.search(entry.message))), None
        )
        requests = f", {running[1]} requests running" if running else ""
        evidence.append(f"KV cache {float(usage[1]):.0%} full{requests}")
    return tuple(evidence)
