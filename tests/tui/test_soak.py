"""Long runs: memory stays flat and work per Frame stays bounded."""

import gc

import psutil
from tui.synthetic import synthetic_frames

from specpanel.app.tui.panel import Panel
from specpanel.app.tui.screens.live import LiveScreen
from specpanel.app.tui.widgets.canvas import Canvas
from specpanel.core.monitor.feed import Feed

FRAMES = 5000
PER_TICK = 50
GROWTH_LIMIT_BYTES = 12 * 2**20


async def test_memory_stays_flat_over_five_thousand_frames() -> None:
    """The history is full after 3600 Frames; from there on nothing may grow."""
    feed = Feed()
    panel = Panel(feed, auto_tick=False)
    process = psutil.Process()
    async with panel.run_test(size=(120, 40)) as pilot:
        full = 0
        for number, frame in enumerate(synthetic_frames(FRAMES), 1):
            feed.publish(frame)
            if number % PER_TICK == 0:
                panel.tick()
                await pilot.pause()
            if number == 3700:
                gc.collect()
                full = process.memory_info().rss
        gc.collect()
        grown = process.memory_info().rss - full
        live = panel.screen
        assert isinstance(live, LiveScreen)
        assert len(live.timeline) == 3600
        rows = sum(canvas.size.height for canvas in live.query(Canvas))
        regions = sum(canvas.refreshed_regions for canvas in live.query(Canvas))
        assert regions / (FRAMES / PER_TICK) < rows
    assert grown < GROWTH_LIMIT_BYTES
