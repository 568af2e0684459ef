"""The switcher, by keys alone, over real profiles and real processes that speak vLLM's protocol."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.engine.workbench import Workbench
from textual.pilot import Pilot
from textual.widgets import Input
from tui.synthetic import synthetic_frames

from specpanel.app.tui.charts.glyphs import ASCII, BRAILLE, Glyphs
from specpanel.app.tui.comparison import changes
from specpanel.app.tui.ink import text_of
from specpanel.app.tui.panel import Panel
from specpanel.app.tui.screens.dialogs import (
    ErrorScreen,
    MarkScreen,
    QuitScreen,
    StoppingScreen,
    StopScreen,
)
from specpanel.app.tui.screens.live import LiveScreen
from specpanel.app.tui.screens.logs import LogsScreen
from specpanel.app.tui.screens.switcher import SwitcherScreen
from specpanel.app.tui.widgets.choice_list import hits
from specpanel.app.tui.widgets.kpi_strip import strip_rows
from specpanel.core.engine.process import running_servers
from specpanel.core.errors import ExitCode
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Frame, Quantile
from specpanel.core.monitor.recording import read_recording
from specpanel.core.session.choices import Choice, choices
from specpanel.core.session.desk import Desk
from specpanel.core.session.history import past_runs
from specpanel.core.settings.files import write_profile
from specpanel.core.settings.profile import Profile

SIZES = [(120, 40), (80, 24)]
DEADLINE_S = 30.0
HOSTILE = ("[/foo]", "[draft] kept?", '["a", 1]', "[@click=app.bell]x[/]", "模型 [b", "a\x1b[31mb")


@pytest.fixture
def bench(
    tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Workbench]:
    bench = Workbench(tmp_path / "bench")
    for name, value in bench.environment({"start_s": 0.1}).items():
        monkeypatch.setenv(name, value)
    try:
        yield bench
    finally:
        bench.clear()


def profile_of(bench: Workbench, name: str, port: int, **script: Any) -> Profile:
    environment = {"FAKE_VLLM": json.dumps({"start_s": 0.1, **script})}
    profile = bench.profile(port=port, environment=environment)
    return profile.model_copy(update={"name": name})


class Driver:
    """A panel over a desk, and the keys for it."""

    def __init__(self, panel: Panel, desk: Desk, pilot: Pilot[None]) -> None:
        self.panel = panel
        self.desk = desk
        self.pilot = pilot

    @property
    def rows(self) -> list[str]:
        return [strip.text for strip in self.panel.screen._compositor.render_strips()]

    @property
    def text(self) -> str:
        return "\n".join(self.rows)

    @property
    def switcher(self) -> SwitcherScreen:
        assert isinstance(self.panel.screen, SwitcherScreen)
        return self.panel.screen

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self.panel.tick()
                await self.pilot.pause()

    async def see(self, *texts: str) -> None:
        await self.until(lambda: all(text in self.text for text in texts))

    async def rest(self) -> None:
        await self.until(lambda: self.desk.busy is None)

    async def open_switcher(self) -> None:
        await self.press("s")
        await self.until(lambda: self.switcher.list.hits)

    async def consider(self, query: str) -> None:
        """Types a query and asks what its best fit means."""
        self.switcher.query_line.value = ""
        await self.press(*("plus" if char == "+" else char for char in query), "enter")
        await self.until(lambda: "Cost: " in self.text or self.mark in self.text)

    @property
    def mark(self) -> str:
        return self.panel.glyphs.states["exited"]


@asynccontextmanager
async def opened(
    profile: Profile | None = None,
    *,
    size: tuple[int, int] = (120, 40),
    recordings: Path | None = None,
    glyphs: Glyphs = BRAILLE,
    traffic: bool = False,
) -> AsyncIterator[Driver]:
    desk = Desk(Feed(), traffic=traffic, recordings=recordings)
    panel = Panel(
        desk.feed,
        desk=desk,
        begin=None if profile is None else lambda desk: desk.start(profile),
        auto_tick=False,
        glyphs=glyphs,
    )
    async with panel.run_test(size=size, notifications=True) as pilot:
        driver = Driver(panel, desk, pilot)
        try:
            if profile is not None:
                await driver.rest()
                await driver.see("serving")
            yield driver
        finally:
            await desk.close(leave=False)


@pytest.mark.parametrize("size", SIZES)
async def test_a_variant_is_found_understood_and_switched_to_and_back_by_keys_alone(
    bench: Workbench, size: tuple[int, int]
) -> None:
    profile = profile_of(bench, "bench", 8315)
    # A load that ends: the pilot waits for a quiet process at every key.
    some = profile.traffic.model_copy(update={"requests": 20})
    profile = profile.model_copy(update={"traffic": some})
    async with opened(profile, size=size, traffic=True) as driver:
        desk = driver.desk
        await driver.until(lambda: (f := desk.feed.latest) and f.latency and f.latency.tpot)
        await driver.open_switcher()
        await driver.consider("k8")
        await driver.see("drafter.k", "4 → 8", "beside the old server", "enter Do it")
        assert desk.busy is None
        await driver.press("enter")
        assert isinstance(driver.panel.screen, LiveScreen)
        await driver.see("● serving", "⇄")
        await driver.rest()
        await driver.see("ngram k=8")
        await driver.until(
            lambda: "▲" in driver.text or "▼" in driver.text or "=0.00" in driver.text
        )
        await driver.press("S")
        await driver.rest()
        await driver.see("ngram k=4")
    assert running_servers() == []


@pytest.mark.parametrize("size", SIZES)
async def test_what_forbids_a_switch_is_said_and_a_second_enter_does_nothing(
    bench: Workbench, size: tuple[int, int]
) -> None:
    async with opened(profile_of(bench, "bench", 8315), size=size) as driver:
        await driver.open_switcher()
        await driver.consider("suffix")
        await driver.see("arctic-inference")
        assert "enter Do it" not in driver.text
        await driver.press("enter")
        assert driver.desk.busy is None
        await driver.press("escape")
        await driver.see("enter shows it")
        await driver.press("escape")
        assert isinstance(driver.panel.screen, LiveScreen)


async def test_a_running_server_is_adopted_from_the_switcher_and_a_profile_started_with_none(
    bench: Workbench, tmp_path: Path
) -> None:
    write_profile(profile_of(bench, "mine", 8316))
    async with opened() as driver:
        await driver.open_switcher()
        await driver.consider("mine")
        await driver.see("no server of ours has to make way")
        await driver.press("enter")
        await driver.rest()
        await driver.see("serving")
        await driver.desk.close(leave=True)
    async with opened() as driver:
        await driver.open_switcher()
        assert driver.switcher.list.choice is not None
        assert driver.switcher.list.choice.kind == "running"
        await driver.press("enter")
        await driver.see("it runs already")
        await driver.press("enter")
        await driver.rest()
        await driver.see("serving :8316")


async def test_a_start_that_fails_is_a_dialog_and_the_old_server_goes_on(bench: Workbench) -> None:
    write_profile(profile_of(bench, "broken", 8317, crash_at="weights"))
    async with opened(profile_of(bench, "bench", 8315)) as driver:
        await driver.open_switcher()
        await driver.consider("broken")
        await driver.press("enter")
        await driver.until(lambda: isinstance(driver.panel.screen, ErrorScreen))
        await driver.see("something that no table knows", "Log:")
        await driver.press("enter")
        await driver.see("● serving :8315")
        driver.panel.tick()
        assert isinstance(driver.panel.screen, LiveScreen)


async def test_a_failed_start_leads_to_its_log_and_stays_told(bench: Workbench) -> None:
    async with opened(size=(80, 24)) as driver:
        driver.desk.start(profile_of(bench, "broken", 8317, crash_at="weights"))
        await driver.until(lambda: isinstance(driver.panel.screen, ErrorScreen))
        await driver.see("l         Open the log that it names")
        await driver.press("l")
        await driver.until(lambda: isinstance(driver.panel.screen, LogsScreen))
        await driver.see("something that no table knows")
        await driver.press("2")
        await driver.see("The server ended with code 1", "6 the log")


async def test_a_start_that_never_became_a_server_stays_told_and_offers_no_log(
    bench: Workbench,
) -> None:
    profile = profile_of(bench, "bench", 8317)
    engine = profile.engine.model_copy(update={"python": "/nowhere/[python]"})
    async with opened() as driver:
        driver.desk.start(profile.model_copy(update={"engine": engine}))
        await driver.until(lambda: isinstance(driver.panel.screen, ErrorScreen))
        assert "Open the log" not in driver.text
        await driver.press("l")
        assert isinstance(driver.panel.screen, ErrorScreen)
        await driver.press("enter")
        await driver.see("✗", "/nowhere/[python]", "1 profiles")


async def test_a_moment_is_marked_with_words_or_without(bench: Workbench, tmp_path: Path) -> None:
    async with opened(profile_of(bench, "bench", 8315), recordings=tmp_path / "runs") as driver:
        await driver.press("m")
        assert isinstance(driver.panel.screen, MarkScreen)
        await driver.press(*"cold", "enter")
        await driver.until(lambda: any(frame.mark == "cold" for frame in driver.desk.feed))
        await driver.press("m", "enter")
        await driver.until(lambda: any(frame.mark == "mark 2" for frame in driver.desk.feed))
        await driver.press("m", "escape")
        assert isinstance(driver.panel.screen, LiveScreen)
    (run,) = past_runs(tmp_path / "runs")
    assert run.ended == "stopped"
    marks = [frame.mark for frame in read_recording(run.path) if frame.mark]
    assert marks == ["cold", "mark 2"]


async def test_stopping_asks_traffic_is_toggled_and_what_cannot_be_is_said(
    bench: Workbench,
) -> None:
    async with opened(profile_of(bench, "bench", 8315)) as driver:
        await driver.press("t")
        await driver.until(lambda: driver.desk.sending)
        await driver.press("t")
        assert not driver.desk.sending
        await driver.press("x")
        assert isinstance(driver.panel.screen, StopScreen)
        await driver.press("enter")  # the harmless answer
        assert isinstance(driver.panel.screen, LiveScreen)
        assert driver.desk.busy is None
        await driver.press("x", "y")
        await driver.see("○ stopped")
        await driver.rest()
        await driver.press("x")
        await driver.see("no server of ours to stop")
        await driver.press("S")
        await driver.see("no configuration before this one")


@pytest.mark.parametrize(("key", "left"), [("enter", 1), ("s", 0)])
async def test_leaving_asks_what_becomes_of_the_server(
    bench: Workbench, key: str, left: int
) -> None:
    async with opened(profile_of(bench, "bench", 8315)) as driver:
        await driver.press("ctrl+c")
        assert isinstance(driver.panel.screen, QuitScreen)
        await driver.see("bench at http://127.0.0.1:8315")
        await driver.press("c")
        assert isinstance(driver.panel.screen, LiveScreen)
        await driver.press("q", key)
        await driver.until(lambda: not driver.panel.is_running)
        assert driver.panel.exit_code == ExitCode.DONE
    assert len(running_servers()) == left


async def test_a_second_quit_kills_a_server_that_does_not_want_to_end(bench: Workbench) -> None:
    profile = profile_of(bench, "bench", 8315, hang_on_sigterm=True)
    engine = profile.engine.model_copy(update={"stop_timeout_s": 600.0})
    async with opened(profile.model_copy(update={"engine": engine})) as driver:
        await driver.press("q", "s")
        await driver.until(lambda: isinstance(driver.panel.screen, StoppingScreen))
        await driver.press("q")
        await driver.until(lambda: not driver.panel.is_running)
    assert running_servers() == []


async def test_without_a_server_leaving_does_not_ask() -> None:
    async with opened() as driver:
        await driver.press("m")
        await driver.see("nothing to mark")
        await driver.press("q")
        await driver.until(lambda: not driver.panel.is_running)


async def test_over_a_recording_the_keys_of_the_desk_say_why_they_do_nothing() -> None:
    panel = Panel(Feed(), auto_tick=False)
    async with panel.run_test(notifications=True) as pilot:
        for key in "sSxtm":
            await pilot.press(key)
            await pilot.pause()
            assert isinstance(panel.screen, LiveScreen)
        rows = "\n".join(strip.text for strip in panel.screen._compositor.render_strips())
        assert "This is a recording" in rows


@pytest.mark.parametrize("size", [*SIZES, (60, 15)])
async def test_the_switcher_fits_and_shows_hostile_names_as_they_are(
    size: tuple[int, int],
) -> None:
    async with opened(size=size, glyphs=ASCII) as driver:
        await driver.open_switcher()
        screen = driver.switcher
        names = tuple(Choice("profile", name, name, error=name) for name in HOSTILE)
        for name in HOSTILE:
            screen._found = names
            screen.query_line.value = ""
            screen._filter()
            while screen.list.choice is not names[HOSTILE.index(name)]:
                await driver.press("down")
            await driver.press("enter")
            shown = name.replace("\x1b[31m", "")
            assert any(shown in row for row in screen.list.text_rows()), name
            assert any(f"x {shown}" in row for row in screen.outlook.text_rows()), name
            assert all("esc Back" in row for row in screen.key_line.text_rows())
            await driver.press("escape")
        assert driver.panel.screen.query_one(Input).has_focus


async def test_the_list_scrolls_with_the_chosen_one_in_sight() -> None:
    async with opened(size=(60, 15)) as driver:
        await driver.open_switcher()
        shown = driver.switcher.list
        for _ in shown.hits:
            assert any(row.startswith("▸") for row in shown.text_rows())
            await driver.press("down")
        assert shown.chosen == len(shown.hits) - 1


def test_a_query_fits_names_kinds_and_drafters_best_first() -> None:
    found = (
        Choice("profile", "slow-k-eight", "eagle3 K=8, model"),
        Choice("variant", "bench+k8", "ngram K=8"),
        Choice("running", "other", "suffix K=4, http://127.0.0.1:8300"),
    )
    assert hits(found, "k8")[0].choice.name == "bench+k8"
    assert [hit.choice.name for hit in hits(found, "running")] == ["other"]
    assert hits(found, "zzz") == ()
    assert [hit.choice for hit in hits(found, "")] == list(found)


def test_choices_hold_variants_presets_and_recent_configurations_once(
    bench: Workbench, tmp_path: Path
) -> None:
    current = profile_of(bench, "bench", 8315)
    found = choices(current, recordings=tmp_path / "none")
    assert {choice.kind for choice in found} == {"variant", "profile"}
    assert found[0].name == "bench+none"
    assert "demo-ngram" in [choice.name for choice in found if choice.kind == "profile"]


def _faster(frame: Frame) -> Frame:
    assert frame.latency is not None
    assert frame.latency.tpot is not None
    assert frame.speculation is not None
    tpot = replace(frame.latency.tpot, p50=Quantile(frame.latency.tpot.p50.value_ms - 3.0))
    length = (frame.speculation.acceptance_length or 0.0) + 0.5
    return replace(
        frame,
        latency=replace(frame.latency, tpot=tpot),
        speculation=replace(frame.speculation, acceptance_length=length),
    )


@pytest.mark.parametrize(("glyphs", "up", "down"), [(BRAILLE, "▲", "▼"), (ASCII, "+", "-")])
def test_changes_say_which_way_and_whether_that_is_good(glyphs: Glyphs, up: str, down: str) -> None:
    before = next(synthetic_frames(1))
    found = changes(_faster(before), before, glyphs)
    assert found["acceptance length"] == (f"{up}0.50", "good")
    assert found["TPOT p50 / p99"] == (f"{down}3.00", "good")
    assert found["output"] == ("=0", "muted")
    assert changes(before, _faster(before), glyphs)["TPOT p50 / p99"] == (f"{up}3.00", "bad")
    assert changes(before, None, glyphs) == {}
    assert changes(replace(before, speculation=None), before, glyphs).keys() == {
        "output",
        "TPOT p50 / p99",
        "TTFT p50 / p99",
    }


@pytest.mark.parametrize(("width", "height"), [(120, 3), (80, 2), (60, 2)])
def test_the_strip_keeps_its_columns_when_changes_come(width: int, height: int) -> None:
    from specpanel.app.tui.figures import figures

    before = next(synthetic_frames(1))
    now = _faster(before)
    plain = strip_rows(figures(now), width, height, BRAILLE)
    changed = strip_rows(figures(now), width, height, BRAILLE, changes(now, before, BRAILLE))
    assert text_of(plain[0]) == text_of(changed[0])
    assert any("▲0.50" in text_of(row) for row in changed)
    assert all(len(text_of(row)) == width for row in changed)
