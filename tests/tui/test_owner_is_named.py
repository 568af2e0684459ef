"""Whoever is about to end a server that an experiment needs reads so first, wherever the panel ends it."""

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fakes.engine.workbench import new_record
from tui.stage import MINE, Act

from specpanel.app.tui.owner_words import owner_sentence
from specpanel.app.tui.panel import Panel
from specpanel.app.tui.screens import launch, switcher
from specpanel.app.tui.screens.dialogs import QuitScreen, StopScreen
from specpanel.app.tui.screens.launch import LaunchScreen
from specpanel.app.tui.screens.sessions_dialogs import ConfirmScreen
from specpanel.core.monitor.feed import Feed
from specpanel.core.session.choices import Choice
from specpanel.core.session.desk import Desk
from specpanel.core.session.served import served_record
from specpanel.core.session.switching import SwitchPlan


@pytest.fixture
def experiment(tmp_path: Path) -> Iterator[int]:
    """The pid of a living process that looks like ``specpanel compare``."""
    program = tmp_path / "specpanel"
    program.write_text("import time\ntime.sleep(600)\n", encoding="utf-8")
    process = subprocess.Popen([sys.executable, program, "compare", "a", "b"])
    yield process.pid
    process.kill()
    process.wait()


@asynccontextmanager
async def adopted(
    owner_pid: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Act, list[str]]]:
    """A panel over a server that a process started; and what was done to it meanwhile."""
    done: list[str] = []
    monkeypatch.setattr(Desk, "start", lambda *_, force: done.append("start"))
    monkeypatch.setattr(Desk, "switch_back", lambda _: done.append("switch back"))
    monkeypatch.setattr(Desk, "stop", lambda _: done.append("stop"))
    monkeypatch.setattr(Desk, "plan", lambda *_: SwitchPlan((), "a restart", False, ()))
    monkeypatch.setattr(
        switcher, "choices", lambda *_: (Choice("profile", MINE.name, "none", MINE),)
    )
    monkeypatch.setattr(launch, "catalogue", lambda **_: [])
    desk = Desk(Feed())
    desk.servers.current = served_record(new_record(MINE, folder, owner_pid=owner_pid))
    desk.servers.previous = MINE
    panel = Panel(desk.feed, desk=desk, auto_tick=False)
    async with panel.run_test(size=(120, 40), notifications=True) as pilot:
        await pilot.pause()
        try:
            yield Act(panel, pilot), done
        finally:
            desk.servers.current = None
            await desk.close(leave=True)


def start_on_launch(act: Act) -> None:
    """As ``^r`` does once the settings are well."""
    screen, desk = act.panel.screen, act.panel.desk
    assert isinstance(screen, LaunchScreen)
    assert desk is not None
    screen._start(MINE, desk)


async def test_who_needs_the_server_is_named_before_it_is_ended(
    experiment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with adopted(experiment, tmp_path, monkeypatch) as (act, done):
        served = act.panel.desk and act.panel.desk.current
        assert owner_sentence(served.record if served else None) == (
            f"mine belongs to an experiment (specpanel compare, pid {experiment}), "
            "which fails without it."
        )
        words = "mine belongs to an experiment"
        await act.press("x")
        assert isinstance(act.panel.screen, StopScreen)
        assert words in act.text
        await act.press("n", "q")
        assert isinstance(act.panel.screen, QuitScreen)
        assert words in act.text
        await act.press("c", "S")
        assert isinstance(act.panel.screen, ConfirmScreen)
        assert words in act.text
        await act.press("n", "1")
        start_on_launch(act)
        await act.sees(words)
        assert isinstance(act.panel.screen, ConfirmScreen)
        await act.press("n", "s")
        await act.sees("none")
        await act.press("enter")
        await act.sees("Cost: a restart", words)
        assert done == []
        await act.press("escape", "escape", "S", "y")
        assert done == ["switch back"]


async def test_a_server_that_nobody_else_needs_makes_way_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with adopted(1 << 22, tmp_path, monkeypatch) as (act, done):
        await act.press("x")
        assert "belongs to" not in act.text
        await act.press("n", "S", "1")
        start_on_launch(act)
        assert done == ["switch back", "start"]
