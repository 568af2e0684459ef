"""Ctrl-C, a closed terminal and a polite kill all mean: finish and leave."""

import asyncio
import signal
from collections.abc import Callable

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def on_stop_signals(stop: Callable[[], None]) -> None:
    """Call ``stop`` from the running loop at each of these signals, instead of raising anything."""
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
