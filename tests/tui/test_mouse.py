"""A click on a row chooses it; a click on the chosen one is Enter."""

import pytest
from tui.stage import MINE, SCENES, staged

from specpanel.app.tui.screens.launch import LaunchScreen
from specpanel.app.tui.screens.live import LiveScreen
from specpanel.app.tui.screens.sessions import SessionsScreen
from specpanel.app.tui.screens.sessions_replay import ReplayScreen
from specpanel.app.tui.screens.switcher import SwitcherScreen

SIZES = [(120, 40), (80, 24)]


def place_of(rows: list[str], text: str) -> tuple[int, int]:
    """Column and row of a text on the screen."""
    return next((row.index(text), y) for y, row in enumerate(rows) if text in row)


@pytest.mark.parametrize("size", SIZES)
async def test_a_session_is_chosen_and_opened(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(SCENES["sessions"], size, monkeypatch) as act:
        screen = act.panel.screen
        assert isinstance(screen, SessionsScreen)
        there = place_of(act.rows, "demo-plain")
        await act.pilot.click(offset=there)
        await act.pilot.pause()
        assert screen.runs.cursor == 1
        await act.pilot.click(offset=(5, 0))  # the top bar is no row
        assert screen.runs.cursor == 1
        await act.pilot.click(offset=there)
        await act.until(lambda: isinstance(act.panel.screen, ReplayScreen))


@pytest.mark.parametrize("size", SIZES)
async def test_a_setting_is_chosen_and_edited(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(SCENES["launch"], size, monkeypatch) as act:
        screen = act.panel.screen
        assert isinstance(screen, LaunchScreen)
        there = place_of(act.rows, "draft tokens (K)")
        await act.pilot.click(offset=there)
        await act.pilot.pause()
        assert screen.form.current_row is not None
        assert screen.form.current_row.dotted == "drafter.k"
        await act.pilot.click(offset=there)
        await act.pilot.pause()
        assert screen.form.editing == "value"


async def test_a_profile_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged(SCENES["launch"], (120, 40), monkeypatch) as act:
        screen = act.panel.screen
        assert isinstance(screen, LaunchScreen)
        await act.pilot.click(offset=place_of(act.rows, "broken"))
        await act.pilot.pause()
        assert screen.shelf.chosen == "broken"
        await act.pilot.click(offset=place_of(act.rows, f"  {MINE.name}  "))
        await act.pilot.pause()
        assert screen.shelf.chosen == MINE.name


@pytest.mark.parametrize("size", SIZES)
async def test_a_choice_of_the_switcher(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(SCENES["switcher"], size, monkeypatch) as act:
        screen = act.panel.screen
        assert isinstance(screen, SwitcherScreen)
        await act.pilot.click(offset=place_of(act.rows, "qwen3-8b-eagle3"))
        await act.pilot.pause()
        assert screen.list.chosen == 2


async def test_a_chart_is_chosen_and_zoomed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged(SCENES["live"], (120, 40), monkeypatch) as act:
        live = act.panel.screen
        assert isinstance(live, LiveScreen)
        there = place_of(act.rows, "Tokens/s")
        await act.pilot.click(offset=there)
        await act.pilot.pause()
        assert (live.selected, live.zoomed) == (3, False)
        await act.pilot.click(offset=there)
        await act.pilot.pause()
        assert live.zoomed
