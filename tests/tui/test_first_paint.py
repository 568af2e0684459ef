"""The first picture waits for nothing that it does not show."""

import subprocess
import sys
import threading
from pathlib import Path

from specpanel.app.tui.panel import Panel
from specpanel.core.monitor.feed import Feed
from specpanel.core.session.desk import Desk

IMPORTS = """
import sys
from specpanel.app.tui.opening import run_panel
from specpanel.app.tui.panel import Panel
from specpanel.app.tui.screens.live import LiveScreen
print(*sorted({name.partition(".")[0] for name in sys.modules} | set(sys.modules)))
"""
LATER = {
    "httpx",
    "pydantic",
    "prometheus_client",
    "psutil",
    "pynvml",
    "specpanel.core.session.desk",
    "specpanel.core.engine.client",
}


def test_the_live_screen_is_there_before_the_network_the_settings_and_the_devices() -> None:
    ran = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert set(ran.stdout.split()) & LATER == set()


def test_a_desk_that_only_watches_loads_neither_settings_nor_what_starts_a_server() -> None:
    code = "import sys, specpanel.core.session.desk; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    loaded = set(ran.stdout.split())
    assert "h11" in loaded
    assert loaded & {"pydantic", "httpx", "specpanel.core.settings.profile"} == set()


async def test_the_desk_is_opened_once_the_first_picture_is_there_and_then_asked(
    tmp_path: Path,
) -> None:
    feed, asked, told = Feed(), threading.Event(), list[Desk]()
    painted: list[bool] = []

    def open_desk() -> Desk:
        painted.append(panel.screen.is_mounted and panel.screen.size.width > 0)
        assert asked.wait(20)
        return Desk(feed, recordings=tmp_path)

    panel = Panel(feed, open_desk=open_desk, begin=told.append, auto_tick=False)
    async with panel.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert panel.desk is None
        await pilot.press("m")
        asked.set()
        await panel.workers.wait_for_complete()
        assert painted == [True]
        assert panel.desk is not None
        assert told == [panel.desk]
        # The key that was pressed too early was kept: the desk has answered it.
        await pilot.pause()
        assert any("no server is watched" in notice.message for notice in panel._notifications)
