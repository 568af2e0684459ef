"""Every screen of the panel, set up the same way each time: a fixed feed, fixed files, a fixed machine.

Tests walk over ``SCENES``: a new screen or dialog gets a line here, and with it snapshots, hostile text and
its keys' tests.
"""

import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from textual.pilot import Pilot
from tui.lab_files import results
from tui.mla_files import NO_DRIFT, SOURCES, SOURCES_WITHOUT_MLA, calibrated
from tui.synthetic import exited_frame, starting_frame, synthetic_frames
from tui.train_files import trainings

from specpanel.app.tui.charts.glyphs import BRAILLE
from specpanel.app.tui.keys import KEYS
from specpanel.app.tui.panel import Panel
from specpanel.app.tui.screens import lab_new, launch, mla, switcher
from specpanel.app.tui.screens.dialogs import (
    ErrorScreen,
    MarkScreen,
    QuitScreen,
    StoppingScreen,
    StopScreen,
)
from specpanel.app.tui.screens.lab import LabScreen
from specpanel.app.tui.screens.lab_new import NewExperimentScreen
from specpanel.app.tui.screens.launch import LaunchScreen
from specpanel.app.tui.screens.launch_outlook import Outlook
from specpanel.app.tui.screens.logs import LogsScreen
from specpanel.app.tui.screens.mla import MlaScreen
from specpanel.app.tui.screens.sessions import SessionsScreen
from specpanel.app.tui.screens.sessions_dialogs import ConfirmScreen
from specpanel.app.tui.screens.sessions_replay import ReplayScreen
from specpanel.app.tui.screens.switcher import SwitcherScreen
from specpanel.app.tui.screens.train import TrainScreen
from specpanel.app.tui.screens.train_dialogs import StartScreen
from specpanel.app.tui.screens.train_log import TrainLogScreen
from specpanel.app.tui.screens.why import WhyScreen
from specpanel.core.engine.command import build_command
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.errors import LaunchError
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Frame
from specpanel.core.preflight.attention_kind import kind_of
from specpanel.core.preflight.memory_estimate import estimate
from specpanel.core.preflight.rules import check
from specpanel.core.preflight.surroundings import ModelState, PortState, Surroundings
from specpanel.core.session.choices import Choice
from specpanel.core.session.desk import Desk
from specpanel.core.session.history import recordings_folder
from specpanel.core.session.preparing import Prepared
from specpanel.core.settings.files import ProfileFile, write_profile
from specpanel.core.settings.mla import Subject
from specpanel.core.settings.overrides import Overrides
from specpanel.core.settings.paths import logs_folder
from specpanel.core.settings.profile import Profile
from specpanel.core.training import runs as training_runs

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"
LOG = Path(__file__).parents[1] / "data" / "logs" / "ngram_good.txt"
DEADLINE_S = 30.0

MINE = Profile.model_validate(
    {
        "name": "mine",
        "description": "n-gram on the small model",
        "target": {"model": "/models/smollm2", "max_model_len": 2048},
        "engine": {"python": "/srv/vllm/bin/python"},
        "drafter": {"method": "ngram", "k": 4},
    }
)
BROKEN = "broken"
_FACTS = InterpreterFacts(
    python="/srv/vllm/bin/python",
    python_version="3.11.9",
    distribution="vllm",
    vllm_version="0.32.0",
    platform="cuda",
    launcher="serve",
    console_script="/srv/vllm/bin/vllm",
    packages=frozenset({"vllm"}),
)
_AROUND = Surroundings(
    interpreter=_FACTS,
    platform="cuda",
    port=PortState(8000, False, owner_pid=4711, owner_name="nginx", next_free=8001),
    target=ModelState("/models/smollm2", "hub"),
    free_memory_bytes=70 << 30,
    free_disk_bytes=200 << 30,
)


def look_at(profile: Profile) -> Outlook:
    """The launch thought through on a machine that is always the same."""
    prepared = Prepared(
        profile=profile,
        facts=_FACTS,
        command=build_command(profile, _FACTS, {}),
        findings=check(profile, _AROUND),
        memory=estimate(profile, _AROUND),
        subject=Subject(kind_of(None, profile, _AROUND), "cuda"),
    )
    return Outlook(profile, prepared, None)


def catalogue(*, overrides: Overrides | None = None) -> list[ProfileFile]:
    """The user's own profile and one that is broken; presets come and go with versions."""
    from specpanel.core.settings.files import catalogue as whole

    return [_elsewhere(file) for file in whole(overrides=overrides) if file.origin == "yours"]


def _elsewhere(file: ProfileFile) -> ProfileFile:
    """The same file in a folder that does not depend on the machine."""
    path = Path("/home/you/.config/specpanel/profiles", file.path.name)
    if file.error is None:
        return replace(file, path=path)
    message = file.error.message.replace(str(file.path), str(path))
    return replace(file, path=path, error=type(file.error)(message, file.error.fix))


class Act:
    """What a scene works with."""

    def __init__(self, panel: Panel, pilot: Pilot[None]) -> None:
        self.panel = panel
        self.pilot = pilot

    @property
    def rows(self) -> list[str]:
        return [strip.text for strip in self.panel.screen._compositor.render_strips()]

    @property
    def text(self) -> str:
        return "\n".join(self.rows)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"never came true:\n{self.text}"
            self.panel.tick()
            await self.pilot.pause(0.01)
        await self.pilot.pause()

    async def sees(self, *texts: str) -> None:
        await self.until(lambda: all(text in self.text for text in texts))

    async def shows(self, *frames: Frame) -> None:
        for frame in frames:
            self.panel.feed.publish(frame)
        self.panel.tick()
        await self.pilot.pause()


def key_for(id: str) -> str:
    """The key that does something, as a pilot presses it."""
    return next(key.keys.split(",")[0] for key in KEYS if key.id == id)


Play = Callable[[Act], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scene:
    """One picture of the panel: the files it needs, and what is done until it is there."""

    play: Play
    files: Callable[[], None] = lambda: None
    mode: str = "live"


# -- files -----------------------------------------------------------------------------------------


def profiles() -> None:
    path = write_profile(MINE, overwrite=True)
    path.with_name(f"{BROKEN}.toml").write_text("[drafter]\nmethod = 5\n", encoding="utf-8")


def log() -> None:
    logs_folder().mkdir(parents=True, exist_ok=True)
    shutil.copy(LOG, logs_folder() / "mine-20261130-120000-1.log")


def runs(prefix: str = "") -> None:
    folder = recordings_folder()
    folder.mkdir(parents=True, exist_ok=True)
    then = time.time() - 3600
    for path in sorted(RECORDINGS.glob("*.ndjson")):
        copied = shutil.copy(path, folder / f"{prefix}{path.name}")
        os.utime(copied, (then, then))


# -- scenes ----------------------------------------------------------------------------------------

SERVING = tuple(synthetic_frames(90, mark_at=60))


async def _launch(act: Act) -> None:
    screen = act.panel.screen
    assert isinstance(screen, LaunchScreen)
    await act.until(lambda: screen.shelf.files)
    while screen.shelf.chosen != MINE.name:
        await act.press("right_square_bracket")
    await act.until(lambda: screen._current_outlook() is not None)


async def _launch_side(act: Act) -> None:
    await _launch(act)
    await act.press("v")


async def _launch_broken(act: Act) -> None:
    await _launch(act)
    screen = act.panel.screen
    assert isinstance(screen, LaunchScreen)
    while screen.shelf.chosen != BROKEN:
        await act.press("right_square_bracket")


async def _launch_without_profiles(act: Act) -> None:
    await act.sees("no profile")


async def _live(act: Act) -> None:
    await act.shows(*SERVING)


async def _live_empty(act: Act) -> None:
    await act.shows()


async def _live_starting(act: Act) -> None:
    await act.shows(
        starting_frame(1, "imports", 1.0, None),
        starting_frame(12, "imports", 11.0, None),
        starting_frame(15, "weights", 3.0, "INFO [loader.py:3] shards: 50%"),
    )


async def _live_exited(act: Act) -> None:
    await act.shows(exited_frame(3, 1, "CUDA out of memory: 2.00 GiB are missing"))


async def _live_idle(act: Act) -> None:
    await act.shows(*synthetic_frames(90, idle=range(60, 90)))


async def _live_zoomed(act: Act) -> None:
    await _live(act)
    await act.press("z", "left", "left", "left")


async def _live_heat(act: Act) -> None:
    await _live(act)
    await act.press("right_square_bracket", "h")


async def _live_histogram(act: Act) -> None:
    await _live(act)
    await act.press("right_square_bracket", "right_square_bracket", "H")


async def _live_frozen(act: Act) -> None:
    await _live(act)
    await act.press("space")
    await act.shows(*synthetic_frames(7, start_s=90))


async def _logs(act: Act) -> None:
    await act.sees("mine-20261130-120000-1.log", "following")
    screen = act.panel.screen
    assert isinstance(screen, LogsScreen)
    await act.until(lambda: not screen._page.more and screen.detail._number is not None)


async def _logs_filtered(act: Act) -> None:
    await _logs(act)
    await act.press("slash", *"weights", "enter")
    await act.sees("with weights")


async def _logs_empty(act: Act) -> None:
    await act.sees("No server has written a log yet")


async def _sessions(act: Act) -> None:
    screen = act.panel.screen
    assert isinstance(screen, SessionsScreen)
    await act.until(lambda: not screen.runs.reading)


async def _sessions_compared(act: Act) -> None:
    await _sessions(act)
    await act.press("space", "down", "space", "c")
    screen = act.panel.screen
    assert isinstance(screen, SessionsScreen)
    await act.until(lambda: screen.detail.comparison is not None)


async def _replay(act: Act) -> None:
    await _sessions(act)
    await act.press("enter")
    await act.until(lambda: isinstance(act.panel.screen, ReplayScreen) and act.panel.screen.done)


async def _switcher(act: Act) -> None:
    await act.shows(*SERVING)
    await act.press("s")
    screen = act.panel.screen
    assert isinstance(screen, SwitcherScreen)
    await act.until(lambda: screen.list.hits)


async def _switcher_refused(act: Act) -> None:
    await _switcher(act)
    await act.press(*BROKEN, "enter")
    await act.sees(f"{BROKEN}.toml")


async def _help(act: Act) -> None:
    await _live(act)
    await act.press("question_mark")


async def _stop(act: Act) -> None:
    await _live(act)
    act.panel.push_screen(StopScreen(None, "mine at http://127.0.0.1:8000"))
    await act.pilot.pause()


async def _quit(act: Act) -> None:
    await _live(act)
    act.panel.push_screen(QuitScreen("mine at http://127.0.0.1:8000, running"))
    await act.pilot.pause()


async def _error(act: Act) -> None:
    await _live_exited(act)
    error = LaunchError(
        "CUDA out of memory: 2.00 GiB are missing",
        "Lower engine.gpu_memory_utilization. Log: /state/logs/mine-1.log",
    )
    act.panel.push_screen(ErrorScreen(error, has_log=True))
    await act.pilot.pause()


async def _mark(act: Act) -> None:
    await _live(act)
    act.panel.push_screen(MarkScreen("mark 1"))
    await act.pilot.pause()


async def _stopping(act: Act) -> None:
    await _live(act)
    act.panel.push_screen(StoppingScreen())
    await act.pilot.pause()


async def _confirm(act: Act) -> None:
    await _sessions(act)
    await act.press("d")
    assert isinstance(act.panel.screen, ConfirmScreen)


async def _why(act: Act) -> None:
    await _live(act)
    await act.press("w")
    await act.until(lambda: isinstance(act.panel.screen, WhyScreen))


async def _devices(act: Act) -> None:
    await _live(act)
    await act.press(key_for("live.devices"))
    await act.sees("esc Back")


async def _train(act: Act) -> None:
    screen = act.panel.screen
    assert isinstance(screen, TrainScreen)
    await act.until(lambda: not screen.chooser.reading)
    await act.until(lambda: screen.run is None or screen.aside.began_unix is not None)


async def _train_zoomed(act: Act) -> None:
    await _train(act)
    await act.press("z", "left", "left", "left")


async def _train_stopped(act: Act) -> None:
    await _train(act)
    await act.press("down")
    await _train(act)
    await act.press("right_square_bracket", "right_square_bracket")


async def _train_start(act: Act) -> None:
    await _train(act)
    await act.press("end", "enter")
    await act.until(lambda: isinstance(act.panel.screen, StartScreen))


async def _train_log(act: Act) -> None:
    await _train(act)
    await act.press("o")
    screen = act.panel.screen
    assert isinstance(screen, TrainLogScreen)
    await act.until(lambda: not screen._page.more and screen.detail._number is not None)


async def _lab(act: Act) -> None:
    screen = act.panel.screen
    assert isinstance(screen, LabScreen)
    await act.until(lambda: not screen.list.reading)
    if screen.whole:
        screen.action_close()
    await act.press("home")


async def _lab_compare(act: Act) -> None:
    await _lab(act)
    await act.press("end", "enter")


async def _lab_breakeven(act: Act) -> None:
    await _lab(act)
    await act.press("down", "down", "down", "enter")


async def _lab_schedule(act: Act) -> None:
    await _lab(act)
    await act.press("down")


async def _lab_new(act: Act) -> None:
    await _lab(act)
    await act.until(lambda: act.panel.lab.running == 0)
    await act.press("n")
    screen = act.panel.screen
    assert isinstance(screen, NewExperimentScreen)
    await act.until(lambda: screen.profiles.names)


async def _mla(act: Act) -> None:
    screen = act.panel.screen
    assert isinstance(screen, MlaScreen)
    await act.until(lambda: screen.study is not None and screen.drift_looked_at)
    screen.settings.cursor, screen.view = 1, screen._plan.views[0]
    screen._look_at(SOURCES[0])
    await act.until(lambda: all(worker.is_finished for worker in screen.workers))
    screen._arrange()
    await act.pilot.pause()


async def _mla_measured(act: Act) -> None:
    await _mla(act)
    await act.press("e", "v")


async def _mla_empty(act: Act) -> None:
    screen = act.panel.screen
    assert isinstance(screen, MlaScreen)
    await act.until(lambda: screen.study is not None)
    screen._look_at(SOURCES_WITHOUT_MLA[0])
    await act.until(lambda: screen.drift_looked_at)
    await act.pilot.pause()


SCENES: dict[str, Scene] = {
    "launch": Scene(_launch, profiles, "launch"),
    "launch-side": Scene(_launch_side, profiles, "launch"),
    "launch-broken": Scene(_launch_broken, profiles, "launch"),
    "launch-empty": Scene(_launch_without_profiles, mode="launch"),
    "live": Scene(_live),
    "live-empty": Scene(_live_empty),
    "live-starting": Scene(_live_starting),
    "live-exited": Scene(_live_exited),
    "live-idle": Scene(_live_idle),
    "live-zoomed": Scene(_live_zoomed),
    "live-heat": Scene(_live_heat),
    "live-histogram": Scene(_live_histogram),
    "live-frozen": Scene(_live_frozen),
    "live-devices": Scene(_devices),
    "logs": Scene(_logs, log, "logs"),
    "logs-filtered": Scene(_logs_filtered, log, "logs"),
    "logs-empty": Scene(_logs_empty, mode="logs"),
    "sessions": Scene(_sessions, runs, "sessions"),
    "sessions-empty": Scene(_sessions, mode="sessions"),
    "sessions-compared": Scene(_sessions_compared, runs, "sessions"),
    "replay": Scene(_replay, runs, "sessions"),
    "train": Scene(_train, trainings, "train"),
    "train-stopped": Scene(_train_stopped, trainings, "train"),
    "train-zoomed": Scene(_train_zoomed, trainings, "train"),
    "train-empty": Scene(_train, mode="train"),
    "train-start": Scene(_train_start, trainings, "train"),
    "train-log": Scene(_train_log, trainings, "train"),
    "lab": Scene(_lab, results, "lab"),
    "lab-compare": Scene(_lab_compare, results, "lab"),
    "lab-breakeven": Scene(_lab_breakeven, results, "lab"),
    "lab-schedule": Scene(_lab_schedule, results, "lab"),
    "lab-new": Scene(_lab_new, results, "lab"),
    "lab-empty": Scene(_lab, mode="lab"),
    "mla": Scene(_mla, mode="mla"),
    "mla-measured": Scene(_mla_measured, calibrated, "mla"),
    "mla-empty": Scene(_mla_empty, mode="mla"),
    "switcher": Scene(_switcher),
    "switcher-refused": Scene(_switcher_refused),
    "help": Scene(_help),
    "stop": Scene(_stop),
    "quit": Scene(_quit),
    "error": Scene(_error),
    "mark": Scene(_mark),
    "stopping": Scene(_stopping),
    "confirm": Scene(_confirm, runs, "sessions"),
    "why": Scene(_why),
}

LAB_PROFILES = (("demo-plain", "no drafter"), ("demo-ngram", "ngram K=4"), ("mine", "ngram K=4"))

CHOICES = (
    Choice("variant", "mine+none", "no drafter", MINE.without_drafter()),
    Choice("profile", "mine", "ngram K=4, /models/smollm2", MINE),
    Choice("profile", "qwen3-8b-eagle3", "eagle3 K=3, Qwen/Qwen3-8B"),
    Choice("profile", BROKEN, "broken", error=f"{BROKEN}.toml, drafter.method: no such drafter"),
)


@asynccontextmanager
async def staged(
    scene: Scene, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Act]:
    """The panel in this scene. Local time is UTC, and nothing of this machine is looked at."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(launch, "look_at", look_at)
    monkeypatch.setattr(launch, "catalogue", catalogue)
    nothing = [sys.executable, "-c", "pass"]
    monkeypatch.setattr(lab_new, "specpanel_command", lambda *_: nothing)
    monkeypatch.setattr(lab_new, "profile_choices", lambda: list(LAB_PROFILES))
    monkeypatch.setattr(mla, "read_sources", lambda: SOURCES)
    monkeypatch.setattr(mla, "drift_now", lambda: NO_DRIFT)
    monkeypatch.setattr(switcher, "choices", lambda *_: CHOICES)
    monkeypatch.setattr(training_runs, "running_trainings", dict)
    scene.files()
    desk = Desk(Feed())
    panel = Panel(desk.feed, desk=desk, first_mode=scene.mode, auto_tick=False, glyphs=BRAILLE)
    async with panel.run_test(size=size, notifications=True) as pilot:
        act = Act(panel, pilot)
        await scene.play(act)
        try:
            yield act
        finally:
            await desk.close(leave=True)
