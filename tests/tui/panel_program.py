"""A small program for terminal tests and measurements: the real panel over synthetic Frames.

python panel_program.py [--history N] [--every SECONDS] [--fail] [--idle] [--report FILE]
"""

import argparse
import asyncio
import json
import sys
import time

BEGAN = time.perf_counter()

from synthetic import synthetic_frames  # noqa: E402

from specpanel.app.tui.opening import run_panel  # noqa: E402
from specpanel.app.tui.panel import Notify  # noqa: E402
from specpanel.core.errors import LaunchError, SpecpanelError  # noqa: E402
from specpanel.core.monitor.feed import Feed  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--history", type=int, default=0)
    parser.add_argument("--every", type=float, default=1.0)
    parser.add_argument("--fail", action="store_true")
    parser.add_argument("--idle", action="store_true")
    parser.add_argument("--report")
    chosen = parser.parse_args()
    feed = Feed()
    done: list[str] = []

    async def fill(notify: Notify) -> None:
        if chosen.fail:
            raise LaunchError("The server [/foo] could not start", "Free port 8250 [draft]")
        for frame in synthetic_frames(chosen.history):
            feed.publish(frame)
        notify("filling the feed")
        try:
            for frame in synthetic_frames(10**6, start_s=chosen.history):
                await asyncio.sleep(chosen.every)
                feed.publish(frame)
        finally:
            await asyncio.sleep(0.2)  # cleaning up takes its time
            done.append("cleaned up")

    try:
        code = run_panel(feed, None if chosen.idle else fill)
    except SpecpanelError as error:
        sys.stderr.write(f"{error}\n")
        return int(error.exit_code)
    if chosen.report:
        with open(chosen.report, "w", encoding="utf-8") as file:
            json.dump({"done": done, "code": code}, file)
    return code


if __name__ == "__main__":
    sys.exit(main())
