"""Pictures of every screen at 120x40 and 80x24, from a real run, painted without a terminal.

    python scripts/pictures.py

Settings, state and data lie in an empty folder (/tmp/demo), so nothing of whoever runs this is in a picture
but what preflight finds on the machine and the path of the interpreter. Needs Pillow.
"""

import argparse
import asyncio
import importlib
import os
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from screenshot import Painter
from textual.pilot import Pilot

from specpanel.app.tui.charts.glyphs import BRAILLE
from specpanel.app.tui.keys import KEYS
from specpanel.app.tui.mla_store import save_calibration
from specpanel.app.tui.panel import Panel
from specpanel.app.tui.screens.dialogs import ErrorScreen, QuitScreen, StopScreen
from specpanel.app.tui.screens.lab import LabScreen
from specpanel.app.tui.screens.launch import LaunchScreen
from specpanel.app.tui.screens.mla import MlaScreen
from specpanel.app.tui.screens.sessions import SessionsScreen
from specpanel.app.tui.screens.sessions_replay import ReplayScreen
from specpanel.app.tui.screens.train import TrainScreen
from specpanel.core.errors import LaunchError
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Frame
from specpanel.core.monitor.recording import read_recording
from specpanel.core.session.desk import Desk
from specpanel.core.training import runs as training_runs
from specpanel.kernels.calibrate import load

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # real results lie there, and what puts them into a store
HOME = Path("/tmp/demo")
RUN = "demo-ngram-20261130-154725"
RECORDINGS = (ROOT / "docs" / "recordings" / f"{RUN}.ndjson",)
CALIBRATION = ROOT / "docs" / "recordings" / "mla-calibration-cpu.json"
TRAINING = ROOT / "docs" / "recordings" / "train-demo-20261130-200510"
OTHERS = ROOT / "tests" / "data" / "recordings"
SIZES = ((120, 40), (80, 24))
COLORS = 255
MOMENT_S = 404.0  # of the recording: traffic is under way
DEADLINE_S = 60.0
_XDG = ("CONFIG", "STATE", "DATA", "CACHE", "RUNTIME")


@dataclass(frozen=True, slots=True)
class Picture:
    """A screen and what is done until it shows what it shall. Keys may be named by what they do."""

    mode: str
    keys: Sequence[str] = ()
    starting: bool = False
    play: "Callable[[Panel, Pilot[None]], Awaitable[None]] | None" = None


async def until(pilot: Pilot[None], condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the screen never came to rest")
        await pilot.pause(0.05)
    await pilot.pause()


async def _launch(panel: Panel, pilot: Pilot[None]) -> None:
    screen = panel.screen
    assert isinstance(screen, LaunchScreen)
    await until(pilot, lambda: screen.shelf.chosen == "demo-ngram")
    await until(pilot, lambda: screen.outlook is not None)


async def _sessions(panel: Panel, pilot: Pilot[None]) -> None:
    screen = panel.screen
    assert isinstance(screen, SessionsScreen)
    await until(pilot, lambda: not screen.runs.reading)


async def _compared(panel: Panel, pilot: Pilot[None]) -> None:
    await _sessions(panel, pilot)
    await pilot.press("down", "down", "space", "up", "c")
    screen = panel.screen
    assert isinstance(screen, SessionsScreen)
    await until(pilot, lambda: screen.detail.comparison)


async def _replay(panel: Panel, pilot: Pilot[None]) -> None:
    await _sessions(panel, pilot)
    await pilot.press("enter")
    await until(pilot, lambda: isinstance(panel.screen, ReplayScreen) and panel.screen.done)


async def _quit(panel: Panel, pilot: Pilot[None]) -> None:
    panel.push_screen(QuitScreen("demo-ngram at http://127.0.0.1:8230, running"))


async def _stop(panel: Panel, pilot: Pilot[None]) -> None:
    panel.push_screen(StopScreen(None, "demo-ngram at http://127.0.0.1:8230"))


async def _error(panel: Panel, pilot: Pilot[None]) -> None:
    error = LaunchError(
        "port 8230 is taken by python (pid 4242)",
        f"Free it, or set engine.port. Log: {HOME}/state/specpanel/logs/{RUN}.log",
    )
    panel.push_screen(ErrorScreen(error, has_log=True))


async def _rest(panel: Panel, pilot: Pilot[None]) -> None:
    workers = panel.workers
    await until(pilot, lambda: all(worker.is_finished for worker in workers))


async def _lab(panel: Panel, pilot: Pilot[None]) -> None:
    screen = panel.screen
    assert isinstance(screen, LabScreen)
    await until(pilot, lambda: screen.list.found)


async def _mla(panel: Panel, pilot: Pilot[None]) -> None:
    screen = panel.screen
    assert isinstance(screen, MlaScreen)
    await until(pilot, lambda: screen.study and screen.drift_looked_at)
    await pilot.press("p", "down", "right", "right", "right")  # DeepSeek-V3.2 at TP8
    await _rest(panel, pilot)


async def _train(panel: Panel, pilot: Pilot[None]) -> None:
    screen = panel.screen
    assert isinstance(screen, TrainScreen)
    await until(pilot, lambda: not screen.chooser.reading)
    await until(pilot, lambda: screen.aside.began_unix)


PICTURES = {
    "launch": Picture("launch", play=_launch),
    "launch-command": Picture("launch", ("v",), play=_launch),
    "live": Picture("live"),
    "live-starting": Picture("live", starting=True),
    "live-heat": Picture("live", ("right_square_bracket", "h")),
    "live-histogram": Picture(
        "live", ("right_square_bracket", "right_square_bracket", "live.histogram")
    ),
    "live-zoomed": Picture("live", ("z", *["left"] * 12)),
    "lab": Picture("lab", ("end",), play=_lab),
    "lab-breakeven": Picture("lab", ("down", "down"), play=_lab),
    "lab-schedule": Picture("lab", play=_lab),
    "mla": Picture("mla", play=_mla),
    "mla-measured": Picture("mla", ("mla.measured", "mla.view"), play=_mla),
    "train": Picture("train", play=_train),
    "logs": Picture("logs", play=_rest),
    "sessions": Picture("sessions", play=_sessions),
    "sessions-compared": Picture("sessions", play=_compared),
    "replay": Picture("sessions", play=_replay),
    "switcher": Picture("live", ("s",), play=_rest),
    "why": Picture("live", ("w",)),
    "help": Picture("live", ("question_mark",)),
    "stop": Picture("live", play=_stop),
    "quit": Picture("live", play=_quit),
    "error": Picture("live", play=_error),
}


def furnish() -> None:
    """The folders that the panel will look into, with the runs and the log."""
    for name in _XDG:
        folder = HOME / name.lower()
        if name != "CACHE":  # the demonstration model may lie there
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.environ[f"XDG_{name}_{'DIR' if name == 'RUNTIME' else 'HOME'}"] = str(folder)
    os.environ["TEXTUAL_ANIMATIONS"] = "none"
    logs, runs = HOME / "state/specpanel/logs", HOME / "data/specpanel/recordings"
    for folder in (logs, runs):
        folder.mkdir(parents=True)
    training_runs.running_trainings = dict  # those that run on this machine are not in a picture
    shutil.copytree(TRAINING, HOME / "data/specpanel/training/train-demo/20261130-200510")
    shutil.copy(ROOT / "docs" / "recordings" / f"{RUN}.log.txt", logs / f"{RUN}.log")
    importlib.import_module("tui.lab_files").real_results()
    save_calibration(load(CALIBRATION.read_text(encoding="utf-8")))
    then = time.time() - 3600
    for path in (*RECORDINGS, *OTHERS.glob("*.ndjson")):
        copied = shutil.copy(path, runs)
        os.utime(copied, (then, then))


async def paint(
    picture: Picture, frames: Sequence[Frame], size: tuple[int, int], out: Path
) -> None:
    desk = Desk(Feed())
    panel = Panel(desk.feed, desk=desk, first_mode="live", auto_tick=False, glyphs=BRAILLE)
    async with panel.run_test(size=size) as pilot:
        for frame in frames:
            if not picture.starting or frame.server.state == "starting":
                desk.feed.publish(frame)
        panel.tick()
        await panel.switch_mode(picture.mode)
        await pilot.pause()
        panel.tick()
        if picture.play is not None and picture.mode != "live":
            await picture.play(panel, pilot)
        by_id = {key.id: key.keys.split(",")[0] for key in KEYS}
        await pilot.press(*(by_id.get(key, key) for key in picture.keys))
        if picture.play is not None and picture.mode == "live":
            await picture.play(panel, pilot)
        await pilot.pause()
        panel.tick()
        await pilot.pause()
        painter = Painter(*size)
        for y, strip in enumerate(panel.screen._compositor.render_strips()):
            painter.row(y, list(strip))
        await desk.close(leave=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    few = painter.image.quantize(COLORS, dither=Image.Dither.NONE)
    few.save(out, optimize=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Paint every screen of the panel.")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--only", help="names, comma separated")
    chosen = parser.parse_args(arguments)
    furnish()
    frames = list(read_recording(RECORDINGS[0]))
    frames = [frame for frame in frames if frame.elapsed_s <= MOMENT_S]
    for name in chosen.only.split(",") if chosen.only else PICTURES:
        for width, height in SIZES:
            path = chosen.out / f"{name}-{width}x{height}.png"
            asyncio.run(paint(PICTURES[name], frames, (width, height), path))
            print(path)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
