"""Wait until device memory has come back after a stop: a start that measures it meanwhile fails.

vLLM takes what is free before and after it loads; where another process frees memory in between, its
memory profiling ends with an error (vllm#56830).
"""

import asyncio
import time
from collections.abc import Callable

from specpanel.core.monitor.frame import Frame

STEADY_S = 5.0
MOST_S = 60.0
LOOK_S = 0.5
STEP_BYTES = 64 << 20  # drivers' own bookkeeping moves by less


def used_device_bytes(frame: Frame | None) -> int | None:
    """Memory in use on all devices together; None where there are none or one does not tell."""
    sample = None if frame is None else frame.devices
    if sample is None or sample.state != "ok" or not sample.readings:
        return None
    used = [reading.memory_used_bytes for reading in sample.readings]
    known = [size for size in used if size is not None]
    return sum(known) if len(known) == len(used) else None


async def until_memory_is_steady(
    used_bytes: Callable[[], int | None],
    stop: asyncio.Event,
    *,
    steady_s: float = STEADY_S,
    most_s: float = MOST_S,
    look_s: float = LOOK_S,
) -> bool:
    """Wait until ``used_bytes`` has stood still for ``steady_s``; False where it does not in ``most_s``.

    Returns at once where nothing is known of devices, and when ``stop`` is set.
    """
    began_s = since_s = time.monotonic()
    stood = used_bytes()
    while stood is not None and not stop.is_set():
        now_s = time.monotonic()
        if now_s - since_s >= steady_s:
            return True
        if now_s - began_s >= most_s:
            return False
        try:
            async with asyncio.timeout(look_s):
                await stop.wait()
        except TimeoutError:
            pass
        used = used_bytes()
        if used is None or abs(used - stood) > STEP_BYTES:
            stood, since_s = used, time.monotonic()
    return True
