"""The Sessions screen by keys: past runs replayed, compared and deleted, servers adopted and stopped."""

import asyncio
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fakes.engine.workbench import FAKE_PYTHON, Workbench, command_for, new_record
from textual.pilot import Pilot
from tui.synthetic import synthetic_frames

from specpanel.app.tui.charts.glyphs import ASCII, Glyphs
from specpanel.app.tui.keys import keys_of
from specpanel.app.tui.panel import Panel
from specpanel.app.tui.screens.dialogs import HelpScreen
from specpanel.app.tui.screens.live import LiveScreen
from specpanel.app.tui.screens.sessions import SessionsScreen, detail_rows
from specpanel.app.tui.screens.sessions_dialogs import ConfirmScreen
from specpanel.app.tui.screens.sessions_replay import ReplayScreen
from specpanel.app.tui.widgets.run_list import RunList
from specpanel.core.engine.interpreter import probe_interpreter
from specpanel.core.engine.process import ServerProcess, running_servers, start_server
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.recording import frame_line, line
from specpanel.core.session.desk import Desk
from specpanel.core.session.history import recordings_folder
from specpanel.core.settings.profile import Profile

REAL = Path(__file__).parents[1] / "data" / "recordings"
SIZES = [(120, 40), (80, 24), (60, 15)]
HOSTILE = "[/foo] [@click=app.bell]x[/] [bold \\[x] 模型 🧪"
DEADLINE_S = 30.0


async def until(pilot: Pilot[None], condition: Callable[[], bool], what: str) -> None:
    """Lets the app run until the condition holds."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                await pilot.pause(0.01)
    except TimeoutError:
        pytest.fail(f"waited in vain for {what}:\n{text(pilot.app)}")


def picture(panel: object) -> list[str]:
    assert isinstance(panel, Panel)
    return [strip.text for strip in panel.screen._compositor.render_strips()]


def text(panel: object) -> str:
    return "\n".join(picture(panel))


@asynccontextmanager
async def sessions(
    size: tuple[int, int] = (120, 40), *, desk: Desk | None = None, glyphs: Glyphs | None = None
) -> AsyncIterator[tuple[Panel, SessionsScreen, Pilot[None]]]:
    """The panel on its Sessions screen, everything read."""
    panel = Panel(Feed() if desk is None else desk.feed, desk=desk, auto_tick=False, glyphs=glyphs)
    async with panel.run_test(size=size, notifications=True) as pilot:
        await pilot.press("7")
        screen = panel.screen
        assert isinstance(screen, SessionsScreen)
        await until(pilot, lambda: not screen.runs.reading, "the list")
        await pilot.pause()
        yield panel, screen, pilot


def aged(path: Path) -> Path:
    """A file that nobody writes any more."""
    then = time.time() - 60
    os.utime(path, (then, then))
    return path


@pytest.fixture
def real_runs(own_folders: Path) -> Path:
    """The two real recordings in the folder of runs: plain decoding, and the n-gram drafter after it."""
    folder = recordings_folder()
    folder.mkdir(parents=True)
    for path in REAL.glob("*.ndjson"):
        aged(Path(shutil.copy(path, folder / path.name)))
    return folder


def recorded(name: str, *lines: str) -> Path:
    path = recordings_folder() / f"{name}.ndjson"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return aged(path)


# -- the list --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
async def test_without_any_session_the_screen_says_what_to_do(size: tuple[int, int]) -> None:
    async with sessions(size) as (panel, _, _):
        assert "no run is recorded yet" in text(panel)
        assert "specpanel run PROFILE" in text(panel)


@pytest.mark.parametrize("size", SIZES)
async def test_past_runs_stand_with_their_figures_and_fill_the_screen(
    size: tuple[int, int], real_runs: Path
) -> None:
    async with sessions(size) as (panel, screen, _):
        rows = picture(panel)
        assert len(rows) == size[1]
        assert {len(row) for row in rows} == {size[0]}
        [ngram] = [run for run in screen.runs.past if run.drafter == "ngram"]
        assert ngram.figures is not None
        assert ngram.figures.acceptance_length is not None
        row = next(row for row in rows if row.lstrip(" ▸│").startswith("demo-ngram "))
        assert f" {ngram.figures.acceptance_length.value:.2f} " in row
        assert "✓ done" in row
        assert "2 runs" in text(panel)


async def test_a_broken_file_and_hostile_words_are_shown_as_they_are(real_runs: Path) -> None:
    recorded("broken", "nonsense")
    summary = {"profile": HOSTILE, "model": HOSTILE, "legs": [], "failure": HOSTILE}
    frames = [frame_line(frame) for frame in synthetic_frames(2)]
    recorded("hostile", *frames, line("summary", summary))
    async with sessions() as (panel, screen, pilot):
        shown = text(panel)
        assert "✗ broken: its first line is not a line of a recording" in shown
        assert len(screen.runs.past) == 4
        while getattr(screen.runs.chosen, "id", "") != "hostile":
            await pilot.press("down")
        await pilot.pause()
        assert "[/foo] [@click=app.bell]x[/]" in text(panel)
        assert "[bold \\[x]" in text(panel)


async def test_the_ascii_set_reaches_every_corner(real_runs: Path) -> None:
    async with sessions(glyphs=ASCII) as (panel, screen, pilot):
        assert text(panel).isascii()
        await pilot.press("space", "down", "c")
        await until(pilot, lambda: screen.detail.comparison is not None, "the comparison")
        await pilot.pause()
        assert text(panel).isascii()


async def test_the_filter_narrows_and_escape_brings_everything_back(real_runs: Path) -> None:
    async with sessions((80, 24)) as (panel, screen, pilot):
        await pilot.press("slash", *"ngram")
        await pilot.pause()
        assert [getattr(entry, "drafter", "") for entry in screen.runs.entries] == ["ngram"]
        await pilot.press("enter", "slash", *"q[/x]")
        await pilot.pause()
        assert "Nothing matches q[/x]" in text(panel)
        await pilot.press("escape")
        await pilot.pause()
        assert len(screen.runs.entries) == 2


async def test_a_new_recording_is_seen_after_a_reread_and_the_cursor_stays(real_runs: Path) -> None:
    async with sessions() as (_, screen, pilot):
        await pilot.press("down")
        chosen = screen.runs.chosen
        recorded("newest", *(frame_line(frame) for frame in synthetic_frames(3)))
        await pilot.press("r")
        await until(pilot, lambda: len(screen.runs.past) == 3, "the new recording")
        assert screen.runs.chosen == chosen


async def test_many_runs_scroll_with_the_cursor(own_folders: Path) -> None:
    for number in range(40):
        frames = synthetic_frames(2, start_s=number * 100)
        recorded(f"run{number:02}", *(frame_line(frame) for frame in frames))
    async with sessions((80, 24)) as (panel, screen, pilot):
        await pilot.press("end")
        await pilot.pause()
        assert getattr(screen.runs.chosen, "id", "") == "run00"
        assert any(row.startswith("▸") for row in picture(panel))
        await pilot.press("home", "pagedown", "up")
        assert getattr(screen.runs.chosen, "id", "") == "run30"


@pytest.mark.parametrize(("width", "seen"), [(120, "up "), (80, "http://"), (60, "ngram K=4")])
def test_what_a_server_is_needed_for_is_seen_before_its_age_and_its_address(
    tmp_path: Path, width: int, seen: str
) -> None:
    profile = Profile.model_validate({"name": "a-long-name-of-a-server", "target": {"model": "m"}})
    server = new_record(profile, tmp_path, draft_tokens=4)
    runs = RunList()
    runs.running, runs.current, runs.needs = (server,), server.id, {server.id: "an experiment"}
    [_, row] = ["".join(part for part, _ in line) for line in runs.compose_inside(width, 9)]
    assert len(row) <= width
    assert "  in the panel  for an experiment" in row
    assert seen in row


# -- comparing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
async def test_two_marked_runs_stand_side_by_side_with_the_paired_ratio(
    size: tuple[int, int], real_runs: Path
) -> None:
    async with sessions(size) as (panel, screen, pilot):
        await pilot.press("end", "space", "home", "space", "c")
        await until(pilot, lambda: screen.detail.comparison is not None, "the comparison")
        await pilot.pause()
        found = screen.detail.comparison
        assert found is not None
        assert (found.a.id, found.b.id) == ("demo-plain", "demo-ngram")
        [same] = [row for row in found.rows if row.figure == "TPOT, same prompts"]
        assert same.ratio is not None
        assert same.ratio.low is not None
        shown = text(panel)
        assert "B against A" in shown
        assert f"{same.ratio.value:.2f}" in shown
        if size[0] >= 80:
            assert f"({same.ratio.low:.2f} … {same.ratio.high:.2f})" in shown
        if size[1] >= 40:
            assert "drafter.method: none → ngram" in shown
        assert "esc Close" in shown
        await pilot.press("escape")
        await pilot.pause()
        assert "B against A" not in text(panel)


async def test_one_mark_is_compared_with_the_run_under_the_cursor(real_runs: Path) -> None:
    async with sessions() as (_, screen, pilot):
        await pilot.press("space", "down", "c")
        await until(pilot, lambda: screen.detail.comparison is not None, "the comparison")


async def test_comparing_without_marks_says_what_to_do(real_runs: Path) -> None:
    async with sessions() as (panel, screen, pilot):
        await pilot.press("c")
        await pilot.pause()
        assert "mark two past runs with space" in text(panel)
        assert screen.detail.comparison is None


# -- replay ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
async def test_a_replay_is_marked_as_one_and_the_panels_own_frames_are_not_touched(
    size: tuple[int, int], real_runs: Path
) -> None:
    async with sessions(size) as (panel, _, pilot):
        own = list(synthetic_frames(5))
        for frame in own:
            panel.feed.publish(frame)
        await pilot.press("enter")
        replay = panel.screen
        assert isinstance(replay, ReplayScreen)
        await until(pilot, lambda: replay.done, "the replay")
        panel.tick()
        await pilot.pause()
        assert "REPLAY" in picture(panel)[0]
        assert "synthetic" not in text(panel)
        assert len(replay.timeline) > 10
        assert list(panel.feed) == own
        await pilot.press("2")
        panel.tick()
        await pilot.pause()
        live = panel.screen
        assert isinstance(live, LiveScreen)
        assert not isinstance(live, ReplayScreen)
        assert "REPLAY" not in picture(panel)[0]
        assert len(live.timeline) == 5
        await pilot.press("7", "escape")
        assert isinstance(panel.screen, SessionsScreen)


async def test_a_replay_can_be_played_from_its_start_and_faster(real_runs: Path) -> None:
    async with sessions() as (panel, _, pilot):
        await pilot.press("enter", "p")
        playing = panel.screen
        assert isinstance(playing, ReplayScreen)
        assert playing.speed == 1.0
        await pilot.press("p", "p", "p")
        faster = panel.screen
        assert isinstance(faster, ReplayScreen)
        assert faster.speed == 64.0

        def count() -> int:
            panel.tick()
            return len(faster.timeline)

        await until(pilot, lambda: count() >= 2, "the first frames")
        await pilot.press("o")
        whole = panel.screen
        assert isinstance(whole, ReplayScreen)
        await until(pilot, lambda: whole.done, "all of it")
        await pilot.press("z")
        assert whole.zoomed
        await pilot.press("escape")
        assert not whole.zoomed
        await pilot.press("escape")
        assert isinstance(panel.screen, SessionsScreen)


async def test_a_recording_broken_in_its_middle_is_shown_up_to_there(own_folders: Path) -> None:
    frames = [frame_line(frame) for frame in synthetic_frames(20)]
    recorded("half", *frames[:10], "{torn", *frames[10:])
    async with sessions() as (panel, _, pilot):
        await pilot.press("enter")
        replay = panel.screen
        assert isinstance(replay, ReplayScreen)
        await until(pilot, lambda: replay.done, "the replay")
        await pilot.pause()
        assert len(replay.timeline) == 10
        assert "line 11" in text(panel)


async def test_a_broken_run_is_not_replayed_and_a_run_without_frames_says_so(
    own_folders: Path,
) -> None:
    recorded("broken", "nonsense")
    async with sessions() as (panel, _, pilot):
        await pilot.press("enter")
        await pilot.pause()
        assert "broken cannot be replayed" in text(panel)
    recorded("broken", line("note", {"text": "nothing came"}))
    async with sessions() as (panel, _, pilot):
        await pilot.press("enter")
        # There is nothing to look at, so the list is there again with the reason over it.
        await until(pilot, lambda: "broken holds no frames" in text(panel), "the reason")
        assert isinstance(panel.screen, SessionsScreen)


@pytest.mark.parametrize("key", ["x", "t", "m", "S"])
async def test_a_replay_asks_nothing_of_the_server_behind_it(real_runs: Path, key: str) -> None:
    async with sessions() as (panel, _, pilot):
        await pilot.press("enter")
        assert isinstance(panel.screen, ReplayScreen)
        await pilot.press(key)
        await until(pilot, lambda: "esc goes back to the servers" in text(panel), "the refusal")
        assert isinstance(panel.screen, ReplayScreen)


async def test_help_lists_the_keys_of_the_list_and_of_a_replay(real_runs: Path) -> None:
    async with sessions() as (panel, _, pilot):
        for scope, keys in (("sessions", "question_mark"), ("replay", "enter,question_mark")):
            await pilot.press(*keys.split(","))
            await until(pilot, lambda: isinstance(panel.screen, HelpScreen), "the help")
            await pilot.pause()
            shown = text(panel)
            first = keys_of(scope)[0]  # type: ignore[arg-type]
            assert first.help in shown
            await pilot.press("escape")


# -- deleting --------------------------------------------------------------------------------------


async def test_deleting_asks_and_enter_keeps(real_runs: Path) -> None:
    async with sessions((80, 24)) as (panel, screen, pilot):
        name = getattr(screen.runs.chosen, "id", "")
        await pilot.press("d")
        assert isinstance(panel.screen, ConfirmScreen)
        await pilot.pause()
        assert name in text(panel)
        await pilot.press("enter")
        assert len(os.listdir(real_runs)) == 2
        await pilot.press("d", "y")
        await until(pilot, lambda: len(screen.runs.past) == 1, "one run less")
        assert not (real_runs / f"{name}.ndjson").exists()


# -- running servers -------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path, own_folders: Path) -> Iterator[ServerProcess]:
    """A server of ours that serves: the fake engine, started as a run would."""
    bench = Workbench(tmp_path / "bench")
    try:
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setenv("FAKE_VLLM_PYTHON", sys.executable)
            facts = probe_interpreter(str(FAKE_PYTHON))
        profile = bench.profile(port=8341)
        record = new_record(profile, bench.folder, settings_table=profile.model_dump(mode="json"))
        environment = bench.environment({"start_s": 0.1})
        started = start_server(record, command_for(profile, facts), environment)
        until_s = time.monotonic() + DEADLINE_S
        while "Application startup complete" not in record.log.read_text():
            assert time.monotonic() < until_s, record.log.read_text()
            time.sleep(0.02)
        yield started
    finally:
        bench.clear()


def reap(server: ServerProcess) -> bool:
    """Whether the server has ended: this process is its parent and must ask."""
    return server.exit_code is not None


async def test_a_running_server_is_adopted_and_stopped_by_keys(
    server: ServerProcess, real_runs: Path
) -> None:
    desk = Desk(Feed(), recordings=real_runs)
    async with sessions(desk=desk) as (panel, screen, pilot):
        assert "RUNNING  1" in text(panel)
        assert "http://127.0.0.1:8341" in text(panel)
        await pilot.press("enter")
        await until(pilot, lambda: desk.current is not None, "the server on the desk")
        assert isinstance(panel.screen, LiveScreen)

        def is_serving() -> bool:
            panel.tick()
            return "serving" in picture(panel)[0]

        await until(pilot, is_serving, "Frames of it")
        await pilot.press("7")
        await until(pilot, lambda: not screen.runs.reading, "the list")
        await pilot.pause()
        assert "in the panel" in text(panel)
        await pilot.press("enter")
        assert isinstance(panel.screen, LiveScreen), "the current one is only shown"

        await pilot.press("7", "home", "x")
        assert isinstance(panel.screen, ConfirmScreen)
        await pilot.press("n")
        assert server.exit_code is None
        await pilot.press("x", "y")
        await until(pilot, lambda: reap(server) and desk.busy is None, "the end of the server")

        def is_gone() -> bool:
            panel.tick()
            return not screen.runs.running

        await until(pilot, is_gone, "the list without it")
        assert running_servers() == []
        await desk.close(leave=False)
        await pilot.press("r")
        await until(pilot, lambda: len(screen.runs.past) == 3, "what the panel recorded")
        own = screen.runs.past[0]
        assert own.name == "bench"
        assert own.settings == server.record.settings


async def test_a_server_that_is_not_on_the_desk_is_stopped_too(server: ServerProcess) -> None:
    async with sessions((80, 24)) as (panel, screen, pilot):
        await pilot.press("enter")
        await pilot.pause()
        assert "to adopt a server" in text(panel), "a panel without a desk says why it cannot"
        await pilot.press("x", "y")
        await until(
            pilot, lambda: reap(server) and not screen.runs.running, "the end of the server"
        )
        assert "Nothing runs" in text(panel)


# -- arrangement -----------------------------------------------------------------------------------


@pytest.mark.parametrize("height", range(13, 61))
def test_list_and_pane_share_every_height(height: int) -> None:
    for comparing in (False, True):
        rows = detail_rows(height, comparing=comparing)
        assert rows == height or height - rows >= 6
    assert detail_rows(height, comparing=True) >= detail_rows(height, comparing=False)
