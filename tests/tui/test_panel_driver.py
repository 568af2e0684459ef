"""The driver behind the panel: its failure, its end, and what leaving does to it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot
from tui.synthetic import synthetic_frames

from specpanel.app.tui.opening import require_terminal
from specpanel.app.tui.panel import Notify, Panel
from specpanel.app.tui.screens.dialogs import ErrorScreen, StoppingScreen
from specpanel.app.tui.screens.live import LiveScreen
from specpanel.core.errors import ConfigurationError, ExitCode, LaunchError
from specpanel.core.monitor.feed import Feed

DEADLINE_S = 30.0


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Lets the app run until the condition holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await pilot.pause()


class Server:
    """A driver that fills the feed once and waits, as a session does; it writes down what happens to it."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.events: list[str] = []
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def __call__(self, notify: Notify) -> None:
        for frame in synthetic_frames(5):
            self.feed.publish(frame)
        self.events.append("serving")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.events.append("cancelled")
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                self.events.append("hurried")
            self.events.append("ended")
            raise


async def test_a_driver_that_fails_is_a_dialog_with_the_fix_and_decides_the_exit_status() -> None:
    async def fail(notify: Notify) -> None:
        raise LaunchError("Port 8250 is taken", "Use --port 8251", exit_code=ExitCode.USAGE)

    panel = Panel(Feed(), driver=fail, auto_tick=False)
    async with panel.run_test() as pilot:
        await until(pilot, lambda: isinstance(panel.screen, ErrorScreen))
        await pilot.pause()
        screen = "\n".join(strip.text for strip in panel.screen._compositor.render_strips())
        assert "Port 8250 is taken" in screen
        assert "Use --port 8251" in screen
        await pilot.press("enter")
        assert isinstance(panel.screen, LiveScreen)
        await pilot.press("q")
    assert panel.exit_code == ExitCode.USAGE


async def test_a_fault_of_ours_is_a_dialog_too_and_exits_1() -> None:
    async def fail(notify: Notify) -> None:
        raise ValueError("[/broken]")

    panel = Panel(Feed(), driver=fail, auto_tick=False)
    async with panel.run_test() as pilot:
        await until(pilot, lambda: isinstance(panel.screen, ErrorScreen))
        await pilot.pause()
        screen = "\n".join(strip.text for strip in panel.screen._compositor.render_strips())
        assert "ValueError: [/broken]" in screen
        await pilot.press("escape", "q")
    assert panel.exit_code == ExitCode.FAILED
    assert isinstance(panel.failure, ValueError)


async def test_a_driver_that_ends_well_leaves_the_picture() -> None:
    feed = Feed()

    async def replay(notify: Notify) -> None:
        for frame in synthetic_frames(5):
            feed.publish(frame)
        notify("replayed 5 [frames]")

    panel = Panel(feed, driver=replay, auto_tick=False)
    async with panel.run_test(notifications=True) as pilot:
        await until(pilot, lambda: len(feed) == 5)
        panel.tick()
        await pilot.pause()
        assert "replayed 5 [frames]" in "\n".join(
            strip.text for strip in panel.screen._compositor.render_strips()
        )
        await pilot.press("q")
    assert panel.exit_code == ExitCode.DONE


@pytest.mark.parametrize("key", ["q", "ctrl+q", "ctrl+c"])
async def test_leaving_waits_until_the_driver_has_cleaned_up(key: str) -> None:
    server = Server(Feed())
    server.may_end.clear()
    panel = Panel(server.feed, driver=server, auto_tick=False)
    async with panel.run_test() as pilot:
        await until(pilot, lambda: server.events == ["serving"])
        await pilot.press(key)
        await until(pilot, lambda: isinstance(panel.screen, StoppingScreen))
        await until(pilot, lambda: server.events == ["serving", "cancelled"])
        assert panel.is_running
        server.may_end.set()
        await until(pilot, lambda: "ended" in server.events)
    assert panel.exit_code == ExitCode.DONE


async def test_a_second_quit_hurries_the_driver() -> None:
    server = Server(Feed())
    server.may_end.clear()
    panel = Panel(server.feed, driver=server, auto_tick=False)
    async with panel.run_test() as pilot:
        await until(pilot, lambda: server.events == ["serving"])
        await pilot.press("q")
        await until(pilot, lambda: server.events == ["serving", "cancelled"])
        await pilot.press("q")
        await until(pilot, lambda: "hurried" in server.events)


async def test_a_broken_theme_is_a_notice_and_not_a_crash(tmp_path: Path) -> None:
    (tmp_path / "odd.toml").write_text('name = "[/odd]"')
    panel = Panel(Feed(), auto_tick=False, theme_folder=tmp_path)
    async with panel.run_test(notifications=True) as pilot:
        await pilot.pause()
        screen = "\n".join(strip.text for strip in panel.screen._compositor.render_strips())
        assert "odd.toml: name must be" in screen
        assert panel.theme == "midnight"


async def test_a_theme_that_was_asked_for_and_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECPANEL_THEME", "nowhere")
    with pytest.raises(ConfigurationError, match="no theme is called nowhere"):
        Panel(Feed(), theme_folder=tmp_path)
    (tmp_path / "nowhere.toml").write_text('name = "nowhere"\n[colors]\nprimary = "red"\n')
    with pytest.raises(ConfigurationError, match=r"nowhere.toml: .*colors"):
        Panel(Feed(), theme_folder=tmp_path)


@pytest.mark.parametrize(
    "theme", ["paper", "contrast", "mono", "textual-dark", "textual-light", "nord"]
)
async def test_every_theme_can_be_worn(theme: str) -> None:
    panel = Panel(Feed(), auto_tick=False, theme=theme)
    async with panel.run_test() as pilot:
        for frame in synthetic_frames(30):
            panel.feed.publish(frame)
        panel.tick()
        await pilot.pause()
        assert panel.theme == theme
        assert panel.patterns == (theme == "mono")


async def test_dash_patterns_come_and_go_with_a_theme_without_hues() -> None:
    panel = Panel(Feed(), auto_tick=False)
    async with panel.run_test(size=(120, 40)) as pilot:
        for frame in synthetic_frames(30):
            panel.feed.publish(frame)
        panel.tick()
        await pilot.pause()

        def dashed() -> bool:
            strips = panel.screen._compositor.render_strips()
            return any("╍╍" in strip.text for strip in strips)

        assert not dashed()
        for theme, patterns in (("mono", True), ("paper", False)):
            panel.theme = theme
            await until(pilot, lambda patterns=patterns: dashed() is patterns)


async def test_the_palette_has_every_action() -> None:
    panel = Panel(Feed(), auto_tick=False)
    async with panel.run_test() as pilot:
        await pilot.pause()
        titles = [command.title for command in panel.get_system_commands(panel.screen)]
        assert any("Freeze the picture" in title for title in titles)
        freeze = next(
            command
            for command in panel.get_system_commands(panel.screen)
            if command.title.startswith("Freeze")
        )
        result = freeze.callback()
        assert isinstance(result, Awaitable)
        await result
        assert isinstance(panel.screen, LiveScreen)
        assert panel.screen.frozen


def test_a_dumb_terminal_is_refused_with_what_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with pytest.raises(ConfigurationError, match="specpanel watch"):
        require_terminal()
