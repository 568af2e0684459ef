"""The Lab as a person uses it: what is in the store is seen, running ones too, stopped, deleted, sent on."""

import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from fakes.openai_endpoint import FakeEndpoint, Reply
from tui.lab_files import RUNNING_ID, results
from tui.stage import SERVING, Act

from specpanel.app.tui import opening
from specpanel.app.tui.charts.glyphs import ASCII, BRAILLE, Glyphs
from specpanel.app.tui.lab_charts import Point, RatioScale, breakeven_rows, whisker
from specpanel.app.tui.lab_jobs import LabJobs
from specpanel.app.tui.panel import Panel
from specpanel.app.tui.screens import lab_new
from specpanel.app.tui.screens.lab import LabScreen, list_rows
from specpanel.app.tui.screens.lab_new import NewExperimentScreen, Wish
from specpanel.core.engine import ended_command
from specpanel.core.lab.arms import launch_fingerprint
from specpanel.core.lab.export import reports_folder
from specpanel.core.lab.jobs import Job, stop_experiment
from specpanel.core.lab.store import DONE, INTERRUPTED, RUNNING, Store
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.monitor import ServerFacts
from specpanel.core.session.desk import Desk
from specpanel.core.session.served import Served
from specpanel.core.settings.profile import Profile

TITLE = "of another terminal"
HOSTILE = "[red]x[/red] \x1b[31m日本 " + "[link=http://a]" * 3 + "y" * 300
# Writes a running experiment, and on SIGINT what it has, as an experiment does.
WRITER = f"""
import signal, sys
from specpanel.core.lab.store import INTERRUPTED, Store
signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGINT}})
with Store() as store:
    name = store.begin("compare", "{TITLE}", {{}}, {{}}, 0)
    print(name, flush=True)
    signal.sigwait({{signal.SIGINT}})
    store.finish(name, INTERRUPTED, "kept what it had", None)
"""
FAILS = "raise SystemExit('no such target')"


def once(gate: Path, program: str) -> list[str]:
    """The command that runs ``program`` once the file ``gate`` is there."""
    waits = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.02)\n"
    return [sys.executable, "-c", waits + program]


@pytest.fixture(autouse=True)
def _nothing_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ends what a test's panel has started, however the test ends."""
    jobs: list[Job] = []
    start = LabJobs.start

    def noted(self: LabJobs, command: Sequence[str]) -> Job:
        jobs.append(start(self, command))
        return jobs[-1]

    monkeypatch.setattr(LabJobs, "start", noted)
    yield
    for job in jobs:
        job.process.kill()
        job.process.wait(20)


@asynccontextmanager
async def lab(size: tuple[int, int] = (80, 24), glyphs: Glyphs = BRAILLE) -> AsyncIterator[Act]:
    desk = Desk(Feed())
    panel = Panel(desk.feed, desk=desk, first_mode="lab", auto_tick=False, glyphs=glyphs)
    async with panel.run_test(size=size, notifications=True) as pilot:
        act = Act(panel, pilot)
        await act.until(lambda: not screen_of(act).list.reading)
        try:
            yield act
        finally:
            desk.servers.current = None
            await desk.close(leave=True)


def screen_of(act: Act) -> LabScreen:
    screen = act.panel.screen
    assert isinstance(screen, LabScreen)
    return screen


async def test_an_experiment_of_another_terminal_is_seen_and_stopped_with_what_it_has() -> None:
    signalled = [sys.executable, "-c", WRITER]
    # Blocked before the program begins, so that a signal that is early waits for it.
    blocked = "import os,signal,sys; signal.pthread_sigmask(signal.SIG_BLOCK,{signal.SIGINT}); "
    program = [sys.executable, "-c", f"{blocked}os.execv(sys.argv[1], sys.argv[1:])", *signalled]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as writer:  # noqa: ASYNC220
        try:
            assert writer.stdout is not None
            name = writer.stdout.readline().strip()
            async with lab() as act:
                await act.sees("of another terminal", "● running", "no server up so far")
                with Store() as store:
                    told = {"block": 3, "ratios": {"b": 0.8}, "half_widths": {"b": 0.2}}
                    store.add_progress(name, {"kind": "block", "elapsed_s": 9.0, **told})
                await act.sees("0.800", "±20.0%")
                await act.press("d")
                await act.sees("x stops a running experiment")
                await act.press("x", "y")
                await act.sees("! interrupted", "kept what it had")
            assert writer.wait(20) == 0
        finally:
            writer.kill()  # else the end of the block waits for it


async def test_a_result_is_deleted_only_after_a_yes() -> None:
    results()
    async with lab() as act:
        await act.press("end", "d", "n")
        with Store() as store:
            assert len(store.experiments()) == 5
        await act.press("d", "y")
        await act.until(lambda: len(screen_of(act).list.found) == 4)
        with Store() as store:
            assert "compare-20261130-163835-08ea" not in [one.id for one in store.experiments()]


def will_start(monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    """What the dialog offers, and the command that it starts in the experiment's place."""
    monkeypatch.setattr(lab_new, "specpanel_command", lambda *_: command)
    monkeypatch.setattr(lab_new, "profile_choices", lambda: [("a", "none"), ("b", "ngram K=4")])


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the dialog starts writes a running experiment and ends on SIGINT."""
    will_start(monkeypatch, [sys.executable, "-c", WRITER])


async def begin(act: Act) -> None:
    await act.press("n")
    screen = act.panel.screen
    assert isinstance(screen, NewExperimentScreen)
    await act.until(lambda: screen.profiles.names)


async def until_stopped(act: Act) -> None:
    """Stop what is chosen, and wait until it has ended."""
    await act.sees("● running")
    await act.press("x", "y")
    await act.until(lambda: act.panel.lab.running == 0)


@pytest.mark.usefixtures("writer")
async def test_an_experiment_is_not_disturbed_by_traffic_of_the_panel_itself() -> None:
    own = Profile.model_validate({"name": "mine", "target": {"model": "/m"}})
    async with FakeEndpoint((Reply(hold=True),)) as answering, lab() as act:
        desk = act.panel.desk
        assert desk is not None
        desk.servers.current = Served(ServerFacts(url=answering.url), own)
        desk.set_traffic(True)
        assert desk.sending
        await begin(act)
        await act.sees("The traffic to the server that runs now ends")
        await act.press("space", "down", "enter")
        await act.until(lambda: not desk.sending)
        await until_stopped(act)


@pytest.mark.usefixtures("writer")
async def test_what_was_started_is_told_and_its_row_is_chosen_when_it_appears() -> None:
    results()
    async with lab() as act:
        await act.press("end")
        await begin(act)
        await act.press("space", "down", "enter")
        await act.sees("started: specpanel", "It goes on")
        await act.until(lambda: getattr(screen_of(act).list.chosen, "title", "") == TITLE)
        await until_stopped(act)


@pytest.mark.parametrize("key", ["up", "enter"], ids=["moved", "opened"])
async def test_the_row_that_appears_takes_nobody_from_what_is_read_meanwhile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: str
) -> None:
    gate = tmp_path / "gate"
    will_start(monkeypatch, once(gate, WRITER))
    results()
    async with lab() as act:
        await act.press("end")
        await begin(act)
        await act.press("space", "down", "enter")
        await act.sees("starting")
        await act.press(key)
        chosen = screen_of(act).list.chosen
        gate.touch()
        await act.until(lambda: screen_of(act).list.starting is None)
        assert len(screen_of(act).list.found) == 6
        assert chosen is not None
        assert getattr(screen_of(act).list.chosen, "id", None) == chosen.id


async def test_a_start_that_failed_while_another_screen_was_shown_takes_no_room_any_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    will_start(monkeypatch, once(gate, FAILS))
    results()
    async with lab((120, 40)) as act:
        rows = screen_of(act).list.size.height
        await begin(act)
        await act.press("space", "down", "enter")
        await act.sees("starting")
        assert screen_of(act).list.size.height == rows + 1
        await act.press("2")
        gate.touch()
        await act.until(lambda: act.panel.lab.running == 0)
        await act.press("4")
        await act.until(lambda: not screen_of(act).list.reading)
        assert screen_of(act).list.size.height == rows


@pytest.mark.parametrize("before", [False, True], ids=["first of all", "among others"])
async def test_an_experiment_has_a_row_from_its_start_on_and_none_when_it_fails_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, before: bool
) -> None:
    gate = tmp_path / "gate"
    will_start(monkeypatch, once(gate, FAILS))
    if before:
        results()
    async with lab() as act:
        await begin(act)
        await act.press("space", "down", "space", "enter")
        await act.sees("starting", "a, b")
        found = len(screen_of(act).list.found)
        assert found == (5 if before else 0)
        await act.press("end", "home")
        assert screen_of(act).list.cursor == 0, "what starts cannot be chosen"
        gate.touch()
        await act.sees("no such target")
        await act.until(lambda: screen_of(act).list.starting is None)
        assert len(screen_of(act).list.found) == found


@pytest.mark.usefixtures("writer")
@pytest.mark.parametrize(("key", "state"), [("enter", RUNNING), ("s", INTERRUPTED)])
async def test_leaving_asks_what_becomes_of_an_experiment_of_this_panel(
    key: str, state: str
) -> None:
    async with lab() as act:
        await begin(act)
        await act.press("space", "down", "enter")
        await act.until(lambda: screen_of(act).list.chosen)
        await act.press("q")
        assert "An experiment is running" in act.text
        assert "goes on by itself when it is left" in act.text
        await act.press("c")
        assert isinstance(act.panel.screen, LabScreen)
        await act.press("q", key)
        await act.until(lambda: not act.panel.is_running)
    with Store() as store:
        [found] = store.experiments()
    assert found.state == state
    if state == RUNNING:
        stop_experiment(found)


async def test_a_second_q_ends_an_experiment_that_heeds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frozen = "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)"
    will_start(monkeypatch, [sys.executable, "-c", frozen])
    monkeypatch.setattr(ended_command, "HEEDED_S", 0.3)
    async with lab() as act:
        await begin(act)
        await act.press("space", "down", "enter")
        await act.sees("starting")
        [job] = act.panel.lab._running
        process = psutil.Process(job.process.pid)
        await act.until(lambda: process.status() == psutil.STATUS_STOPPED)
        await act.press("q", "s")
        assert "Kill instead of waiting" in act.text
        await act.pilot.pause(0.5)
        assert job.exit_code is None
        await act.press("q")
        await act.until(lambda: not act.panel.is_running)
        assert job.exit_code == -signal.SIGKILL
        assert act.panel.left_behind == []


def test_what_a_killed_experiment_left_is_printed_once_the_screen_is_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(self: Panel, *, mouse: bool) -> None:
        self.left_behind += ["measured at http://a (specpanel stop measured ends it)", "\x1b[31mb"]

    monkeypatch.setattr(Panel, "run", run)
    monkeypatch.setattr(opening, "require_terminal", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert opening.run_panel(Feed()) == 0
    said = capsys.readouterr().err
    assert "still there: measured at http://a (specpanel stop measured ends it), " in said
    assert "\x1b" not in said


async def test_a_sweep_through_guidellm_is_shown_load_by_load() -> None:
    point = {
        "concurrency": 1,
        "acceptance_length": 2.31,
        "acceptance_length_interval": {"estimate": 2.31, "low": 2.11, "high": 2.52},
        "itl_p50_ms": 21.5,
        "ttft_p50_ms": None,
        "output_tokens_per_s": 46.2,
    }
    other = {
        **point,
        "concurrency": 8,
        "acceptance_length": None,
        "acceptance_length_interval": None,
    }
    with Store() as store:
        name = store.begin("guidellm", "mine", {}, {}, 0)
        store.finish(name, DONE, "found", {"points": [point, other], "notes": ["one is cached"]})
    async with lab() as act:
        await act.sees("guidellm", "AL", "2.31 at 1", "one is cached")
        await act.sees("1 at a time", "AL 2.31 (2.11 … 2.52), ITL 21.5 ms, TTFT n/a")
        await act.sees("8 at a time", "AL n/a")


async def test_the_page_for_a_colleague_is_written_and_named() -> None:
    results()
    async with lab() as act:
        await act.press("end", "e")
        await act.sees("wrote")
    [path] = reports_folder().glob("*.html")
    assert path.stat().st_mode & 0o077 == 0, "results are their owner's"
    assert "demo-ngram is faster" in path.read_text(encoding="utf-8")


async def test_the_acceptance_of_now_lies_over_the_curve_of_the_same_target() -> None:
    own = Profile.model_validate(
        {"name": "mine", "target": {"model": "/m"}, "drafter": {"method": "ngram", "k": 4}}
    )
    point = {"required_interval": None, "k": 4}
    with Store() as store:
        for plain in (launch_fingerprint(own.without_drafter()), "another target"):
            name = store.begin("breakeven", "curve", {"plain_launch": plain}, {}, 0)
            points = [
                {**point, "concurrency": 1, "required_length": 1.1},
                {**point, "concurrency": 16, "required_length": 2.0},
            ]
            store.finish(name, DONE, "", {"points": points, "real": [], "drafter": "ngram"})
    frame = SERVING[-1]
    assert frame.speculation is not None
    assert frame.engine is not None
    frame = replace(
        frame,
        engine=replace(frame.engine, running=4),
        speculation=replace(frame.speculation, acceptance_length=2.41),
    )
    async with lab() as act:
        assert act.panel.desk is not None
        act.panel.desk.servers.current = Served(ServerFacts(url="http://127.0.0.1:1"), own)
        await act.shows(frame)
        assert "now 2.41" not in act.text, "the newest curve is another target's"
        await act.press("down")
        await act.shows(frame)
        assert "● now 2.41 at 4" in act.text


@pytest.mark.parametrize("size", [(80, 24), (60, 15)])
@pytest.mark.parametrize("glyphs", [BRAILLE, ASCII], ids=["braille", "ascii"])
async def test_nothing_from_a_store_is_markup_or_breaks_the_screen(
    size: tuple[int, int], glyphs: Glyphs
) -> None:
    with Store() as store:
        for kind, result in (("compare", {"pairings": [HOSTILE]}), (HOSTILE, {HOSTILE: HOSTILE})):
            name = store.begin(kind, HOSTILE, {}, {"processor": HOSTILE}, 0)
            store.finish(name, DONE, HOSTILE, result)
    async with lab(size, glyphs) as act:
        assert "[red]" in act.text
        assert "\x1b" not in act.text
        await act.press("down", "enter", "pagedown", "escape", "end", "e")
        await act.sees("there is no page of it")
        assert "[red]" in act.text
        if glyphs is ASCII and size == (80, 24):
            shown = {char for row in act.rows[1:-1] for char in row}
            assert {char for char in shown if ord(char) > 127} <= set("日本╭╮╰╯─│ ")


async def test_an_open_result_has_the_screen_and_scrolls() -> None:
    results()
    async with lab() as act:
        await act.press("end", "enter")
        assert "Experiments" not in act.text
        assert "0 rows above" in act.text
        await act.press("pagedown")
        assert "compare-20261130-163835-08ea" in act.text
        await act.press("escape")
        assert "Experiments" in act.text


def test_a_small_screen_has_the_list_alone() -> None:
    assert list_rows(13, 5) == 13
    assert 6 <= list_rows(22, 5) <= 9
    assert list_rows(38, 50) <= 38 // 3


def test_what_is_asked_for_is_the_command_that_a_person_would_type() -> None:
    wish = Wish("compare", ("a", "b"), 5)
    assert wish.words == "specpanel compare a b --minutes 5"
    assert wish.command()[1:] == ["-m", "specpanel.app", *wish.words.split()[1:], "--json"]
    assert Wish("parity", ("a",), 5).words == "specpanel parity a"


def whisker_text(value: float, low: float, high: float) -> str:
    spans = whisker(value, low, high, RatioScale(2.0), 21, BRAILLE, "good")
    return "".join(text for text, _ in spans)


def test_a_whisker_shows_on_which_side_of_one_an_interval_lies() -> None:
    assert whisker_text(0.7, 0.6, 0.8).rstrip().endswith("┤  │")
    assert "┼" in whisker_text(0.95, 0.8, 1.1)
    assert whisker_text(9.0, 5.0, 20.0).endswith("●"), "what lies outside stays at the edge"


def test_a_curve_that_rises_is_drawn_rising_and_too_small_a_place_has_none() -> None:
    curve = {4: [Point(1, 1.0), Point(16, 3.0)]}
    rows = breakeven_rows(curve, [], Point(4, 2.5), 60, 12, BRAILLE)
    text = ["".join(part for part, _ in row) for row in rows]
    places = [[place for place, char in enumerate(row) if "⠁" <= char <= "⣿"] for row in text[:-2]]
    middles = [sum(row) / len(row) for row in places if row]
    assert middles == sorted(middles, reverse=True), "further up is further right"
    assert any("●" in row for row in text)
    assert breakeven_rows(curve, [], None, 14, 12, BRAILLE) == []


def test_the_running_one_of_the_stage_is_this_process() -> None:
    results()
    with Store() as store:
        assert store.find(RUNNING_ID).state == RUNNING
        assert {one.state for one in store.experiments()} == {RUNNING, DONE, INTERRUPTED}
