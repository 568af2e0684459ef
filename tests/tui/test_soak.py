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
GROWTH_LIMIT_BYTES = 2**20


async def test_memory_grows_by_less_than_a_megabyte_in_an_hour() -> None:
    """From ten minutes on, over 4400 Frames at one a second."""
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
    print("GROWN", grown)
    assert grown < GROWTH_LIMIT_BYTES
