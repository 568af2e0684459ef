"""Frames of a long time at high speed, through recording and charts: memory, size, and whether both agree.

python scripts/soak.py [--hours 24] [--write]      --write puts the result into docs/measurements.md
"""

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
from bench_page import put_section

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "tui"))
from synthetic import synthetic_frames  # noqa: E402

from specpanel.app.tui.charts.subjects import TRACKS  # noqa: E402
from specpanel.app.tui.timeline import Timeline  # noqa: E402
from specpanel.core.monitor.feed import Feed  # noqa: E402
from specpanel.core.monitor.frame import Frame  # noqa: E402
from specpanel.core.monitor.recording import Recorder, frame_line, read_recording  # noqa: E402

LIMIT_MB = 5.0
_BLOCK = 3600  # Frames that are made once and repeated with their own times


@dataclass(frozen=True, slots=True)
class Soaked:
    """What a soak found. Growth is from the end of the first tenth, at least ten minutes, to the end."""

    frames: int
    seconds: float
    growth_mb: float
    recording_bytes: int
    differing: int  # Frames that were read back otherwise than they were shown

    @property
    def bytes_an_hour(self) -> float:
        return self.recording_bytes / self.frames * 3600


def _frames(count: int) -> Iterator[Frame]:
    block = list(synthetic_frames(min(_BLOCK, count)))
    for number in range(count):
        frame = block[number % len(block)]
        yield replace(frame, elapsed_s=float(number), time_unix=1.8e9 + number)


def soak(frames: int, folder: Path) -> Soaked:
    """Show and record so many Frames, then read all of them back."""
    path = folder / "soak.ndjson"
    feed, timeline, recorder = Feed(), Timeline(TRACKS), Recorder(path)
    process, began_s = psutil.Process(), time.monotonic()
    warm, early = max(600, frames // 10), 0
    feed.subscribe(timeline.take)
    for number, frame in enumerate(_frames(frames)):
        if number == min(warm, frames - 1):
            gc.collect()
            early = process.memory_info().rss
        feed.publish(frame)
        recorder.write(frame_line(frame))
    recorder.close()
    gc.collect()
    growth = process.memory_info().rss - early
    took_s = time.monotonic() - began_s
    differing = sum(
        read != shown for read, shown in zip(read_recording(path), _frames(frames), strict=True)
    )
    return Soaked(frames, took_s, growth / 2**20, path.stat().st_size, differing)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = soak(round(chosen.hours * 3600), Path(folder))
    text = (
        f"## {chosen.hours:g} hours of Frames at once\n\n"
        f"`python scripts/soak.py --hours {chosen.hours:g}`: {found.frames} Frames shown and recorded in "
        f"{found.seconds:.0f} s. Memory grew by {found.growth_mb:.1f} MB (asked: under {LIMIT_MB:g}); the "
        f"recording takes {found.bytes_an_hour / 1e6:.1f} MB an hour. {found.differing} Frames were read "
        "back otherwise than they were shown.\n"
    )
    sys.stdout.write(text)
    if chosen.write:
        put_section(ROOT / "docs" / "measurements.md", "soak", "scripts/soak.py", text)
    return int(found.growth_mb >= LIMIT_MB or found.differing > 0)


if __name__ == "__main__":
    sys.exit(main())
