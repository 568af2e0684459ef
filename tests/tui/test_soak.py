"""Long runs: memory stays flat and work per Frame stays bounded."""

import gc
import tracemalloc
from dataclasses import replace

import psutil
from tui.synthetic import synthetic_frames

from specpanel.app.tui.charts.subjects import TRACKS
from specpanel.app.tui.panel import Panel
from specpanel.app.tui.screens.live import LiveScreen
from specpanel.app.tui.timeline import Timeline
from specpanel.app.tui.widgets.canvas import Canvas
from specpanel.core.monitor.feed import Feed

FRAMES = 5000
PER_TICK = 50
GROWTH_LIMIT_BYTES = 4 * 2**20


def test_an_hour_more_of_frames_takes_no_more_memory() -> None:
    """What is kept for the charts is there from the start."""
    timeline = Timeline(TRACKS)
    frames = list(synthetic_frames(60))
    for number in range(600):
        timeline.take(replace(frames[number % 60], elapsed_s=float(number)))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(600, 4200):
            timeline.take(replace(frames[number % 60], elapsed_s=float(number)))
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(timeline) == 3600
    assert grown < 50_000


async def test_memory_stays_flat_over_five_thousand_frames() -> None:
    """From ten minutes on only caches of text and style grow, and those are bounded."""
    feed = Feed()
    panel = Panel(feed, auto_tick=False)
    process = psutil.Process()
    async with panel.run_test(size=(120, 40)) as pilot:
        early = 0
        for number, frame in enumerate(synthetic_frames(FRAMES), 1):
            feed.publish(frame)
            if number % PER_TICK == 0:
                panel.tick()
                await pilot.pause()
            if number == 600:
                gc.collect()
                early = process.memory_info().rss
        gc.collect()
        grown = process.memory_info().rss - early
        live = panel.screen
        assert isinstance(live, LiveScreen)
        assert len(live.timeline) == 3600
        rows = sum(canvas.size.height for canvas in live.query(Canvas))
        regions = sum(canvas.refreshed_regions for canvas in live.query(Canvas))
        assert regions / (FRAMES / PER_TICK) < rows
    assert grown < GROWTH_LIMIT_BYTES
