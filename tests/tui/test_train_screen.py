"""The Train screen over real files, and over real trainings of programs that compute nothing."""

import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from fakes.training.workshop import Workshop
from pace import cheapest_s, within
from textual.pilot import Pilot
from tui.test_hostile_text import HOSTILE
from tui.train_files import BEGAN_UNIX, copy_training

from specpanel.app.tui.charts.glyphs import BRAILLE
from specpanel.app.tui.panel import Panel
from specpanel.app.tui.screens.sessions_dialogs import ConfirmScreen
from specpanel.app.tui.screens.train import TrainScreen
from specpanel.app.tui.screens.train_dialogs import StartScreen
from specpanel.app.tui.screens.train_layout import PANES, plan_train
from specpanel.core.monitor.feed import Feed
from specpanel.core.session.desk import Desk
from specpanel.core.settings.paths import data_folder
from specpanel.core.training import audit
from specpanel.core.training import runs as training_runs
from specpanel.core.training.audit import Promotion
from specpanel.core.training.detached import Detached
from specpanel.core.training.judging import Gain
from specpanel.core.training.recipe_files import recipes_folder

DEADLINE_S = 90.0
SIZES = [(120, 40), (80, 24)]


class Stage:
    """The panel on its Train screen, and what a person sees of it."""

    def __init__(self, panel: Panel, pilot: Pilot[None]) -> None:
        self.panel = panel
        self.pilot = pilot

    @property
    def screen(self) -> TrainScreen:
        screen = self.panel.screen
        assert isinstance(screen, TrainScreen)
        return screen

    @property
    def text(self) -> str:
        return "\n".join(s.text for s in self.panel.screen._compositor.render_strips())

    @property
    def notices(self) -> str:
        return "\n".join(notice.message for notice in self.panel._notifications)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def until(self, condition: Callable[[], object], what: str = "") -> None:
        until = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < until, f"never came true: {what}\n{self.notices}\n{self.text}"
            self.panel.tick()
            await self.pilot.pause(0.02)
        await self.pilot.pause()

    async def sees(self, *texts: str) -> None:
        await self.until(lambda: all(text in self.text for text in texts), " ".join(texts))

    async def settled(self) -> None:
        await self.until(lambda: not self.screen.chooser.reading)
        await self.until(lambda: self.screen.run is None or self.screen.aside.began_unix)


@asynccontextmanager
async def train_screen(size: tuple[int, int] = (120, 40)) -> AsyncIterator[Stage]:
    desk = Desk(Feed())
    panel = Panel(desk.feed, desk=desk, first_mode="train", auto_tick=False, glyphs=BRAILLE)
    async with panel.run_test(size=size, notifications=True) as pilot:
        stage = Stage(panel, pilot)
        await stage.settled()
        yield stage
        await desk.close(leave=True)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No training that may run on this machine is looked at."""
    monkeypatch.setattr(training_runs, "running_trainings", dict)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.fixture
def shop(tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """A recipe called shop among the user's, over programs that keep to the real protocols."""
    shop = Workshop(tmp_path / "shop", monkeypatch)
    recipes_folder().mkdir(parents=True)
    table = shop.recipe().model_dump(mode="json", exclude_none=True)
    (recipes_folder() / "shop.toml").write_text(tomli_w.dumps(table), encoding="utf-8")
    return shop


def append(root: Path, *lines: dict[str, Any]) -> None:
    with training_runs.newest_events(root).open("a", encoding="utf-8") as file:  # type: ignore[union-attr]
        file.writelines(json.dumps(line) + "\n" for line in lines)


# -- layout ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(120, 38), (200, 58), (110, 31), (100, 38), (80, 22), (60, 13)])
@pytest.mark.parametrize("begun", [True, False])
def test_no_two_panes_share_a_cell_and_all_lie_inside(size: tuple[int, int], begun: bool) -> None:
    width, height = size
    for selected in range(len(PANES)):
        for zoomed in (False, True):
            plan = plan_train(width, height, selected=selected, zoomed=zoomed, begun=begun)
            cells = [
                (x, y)
                for box in plan.boxes.values()
                for x in range(box.x, box.x + box.width)
                for y in range(box.y, box.y + box.height)
            ]
            assert len(cells) == len(set(cells))
            assert all(0 <= x < width and 0 <= y < height for x, y in cells)
            assert all(box.width > 0 and box.height > 0 for box in plan.boxes.values())
            assert not begun or PANES[selected] in plan.boxes


# -- real files --------------------------------------------------------------------------------------


async def test_the_smallest_terminal_shows_list_stages_one_chart_and_the_alarm(alone: None) -> None:
    copy_training("train-tiny/1")
    async with train_screen((60, 15)) as stage:
        await stage.sees("train-tiny", "✓ train 38 s", "Loss", "step 20")
        for title in (
            "Expected acceptance",
            "Accuracy",
            "A step's time",
            "Learning rate",
            "Tokens/s",
        ):
            await stage.press("right_square_bracket")
            assert title in stage.text


async def test_nothing_begun_says_what_to_press_and_the_command(alone: None) -> None:
    async with train_screen((80, 24)) as stage:
        await stage.sees("No training yet", "enter trains train-demo", "specpanel train train-demo")
        await stage.press("y")
        assert stage.panel.clipboard == "specpanel train train-demo"
        await stage.press("down", "enter")
        await stage.until(lambda: isinstance(stage.panel.screen, StartScreen))
        await stage.press("enter")  # it names no target
        assert "names no target" in stage.notices
        await stage.press("escape")
        assert stage.panel.detached == []


async def test_a_value_under_the_cursor_is_that_of_its_step(alone: None) -> None:
    copy_training("train-tiny/1")
    async with train_screen() as stage:
        await stage.press("z", *["left"] * 60)
        plot = stage.screen.charts["loss"].plot
        step = plot.step_under_cursor()
        assert step is not None
        assert 1 < step < 20
        shown = f"{stage.screen.story.loss.at(step):.2f}"
        await stage.sees(f"step {step} ", f"train {shown}")
        await stage.press("escape")
        await stage.sees("Stages")


async def test_nothing_is_drawn_or_read_where_nothing_has_come(alone: None) -> None:
    copy_training("train-tiny/1")
    async with train_screen() as stage:
        panes = [*stage.screen._boxed.values(), stage.screen.top_bar]
        before = sum(pane.refreshed_regions for pane in panes)
        follower = stage.screen._follower
        for _ in range(8):
            stage.panel.tick()
            await stage.pilot.pause()
        assert sum(pane.refreshed_regions for pane in panes) == before
        assert stage.screen._follower is follower
        assert cheapest_s(lambda: stage.screen.receive(stage.panel.feed), 0.01) < 0.01


async def test_a_huge_file_of_events_opens_at_once_and_is_read_beside(alone: None) -> None:
    root = copy_training("train-tiny/1", whole=False)
    lines = (root / "events.ndjson").read_text(encoding="utf-8").splitlines()
    [one, *_] = [json.loads(line) for line in lines if '"kind": "step"' in line]
    with (root / "events-2.ndjson").open("w", encoding="utf-8") as file:
        file.write(lines[0] + "\n")
        for number in range(16, 8016):
            file.write(json.dumps(one | {"step": number}) + "\n")
    async with train_screen() as stage:
        slowest = 0.0
        while (stage.screen.story.newest is None) or stage.screen.story.newest.step < 8015:
            began_s = time.thread_time()
            await stage.press("c")
            stage.panel.tick()
            slowest = max(slowest, time.thread_time() - began_s)
        await stage.sees("8015")
        assert slowest < within(1.0)  # a key never waits for the file


async def test_what_is_appended_comes_on_the_screen_without_a_key(alone: None) -> None:
    root = copy_training("train-tiny/1", whole=False)
    async with train_screen((80, 24)) as stage:
        await stage.sees("can be resumed", "step 15")
        recipe = json.loads((root / "events.ndjson").read_text(encoding="utf-8").splitlines()[0])
        nan = {"kind": "finding", "code": "training-nan", "severity": "error", "fix": "Lower lr"}
        append(
            root,
            recipe,
            {"kind": "stage", "stage": "train", "index": 1, "of": 1},
            {"kind": "step", "step": 44, "loss": 0.25},
            nan | {"text": "the loss of step 45 is not a number"},
        )
        await stage.sees("44", "the loss of step 45 is not a number")


async def test_the_gap_of_training_to_serving_and_promotions_stand_in_the_table(
    alone: None,
) -> None:
    root = copy_training("train-tiny/1")
    gain = Gain(24, 1.2, 1.02, -0.18, None)
    for result in ("on trial", "rolled back"):
        audit.write(
            Promotion(
                unix=BEGAN_UNIX,
                server="mine",
                url="http://127.0.0.1:1",
                way="in place",
                result=result,  # type: ignore[arg-type]
                reason="lower",
                before="/a",
                candidate=str(root / "checkpoints" / "step-000020"),
                fingerprint_before=None,
                fingerprint_after=None,
                gain=gain,
                predicted=1.08,
                margin=0.02,
                paused_s=0.61,
                took_s=9.0,
                user="you",
            )
        )
    async with train_screen() as stage:
        await stage.sees("20*   5.55   1.08   1.02   -6 %", "rolled back")
        append(
            root,
            {
                "kind": "evaluation",
                "step": 15,
                "heldout": {"acceptance_length": 1.31, "interval": {"low": 1.2, "high": 1.4}},
                "validation": {"acceptance_length": 1.32},
                "predicted": 1.5,
                "gap": -0.12,
                "checks": [{"state": "differs", "text": "the chat template differs"}],
            },
        )
        await stage.sees("1.31", "train-to-serve -12.0 %", "the chat template")
        while stage.screen.selected != PANES.index("checkpoints"):
            await stage.press("right_square_bracket")
        await stage.press("z", "b")
        await stage.sees("▸    15", "1.20 .. 1.40", "paused 0.61 s")


@pytest.mark.parametrize("size", SIZES)
async def test_s09_text_from_outside_is_shown_as_it_is(size: tuple[int, int], alone: None) -> None:
    folder = data_folder() / "training"
    for number, text in enumerate(HOSTILE):
        root = copy_training(f"run/{number:02}", began_unix=BEGAN_UNIX - number, whole=False)
        table = json.loads((root / "recipe.json").read_text(encoding="utf-8"))
        table["name"] = text
        table["target"]["model"] = f"/m/{text.replace('/', ':')}"
        (root / "recipe.json").write_text(json.dumps(table), encoding="utf-8")
        os.utime(root / "recipe.json", (BEGAN_UNIX - number, BEGAN_UNIX - number))
        (root / "trainer" / "log.txt").write_text(f"{text}\n", encoding="utf-8")
        append(
            root,
            {"kind": "recipe", "recipe": table},
            {"kind": "finding", "severity": "error", "code": text, "text": text, "fix": text},
            {"kind": "summary", "failure": text},
        )
    assert len(list(folder.glob("run/*"))) == len(HOSTILE)
    async with train_screen(size) as stage:
        for text in HOSTILE:
            await stage.sees(f" {text}"[:20], f"✗ {text}", f"log {text}")
            await stage.press("down")


# -- real programs -----------------------------------------------------------------------------------


async def begin(stage: Stage) -> Detached:
    """Starts the recipe called shop by keys alone."""
    await stage.press("home")
    while getattr(stage.screen.chooser.chosen, "name", "") != "shop":
        await stage.press("down")
    await stage.press("enter")
    await stage.until(lambda: isinstance(stage.panel.screen, StartScreen))
    await stage.press("1", "1", "enter")
    [child] = stage.panel.detached
    return child


async def leave(stage: Stage, key: str) -> None:
    """Leaves the panel, which asks first, and answers with ``key``."""
    await stage.press("q")
    await stage.sees("A training is running", "shop: it goes on by itself when it is left")
    await stage.press("c")
    assert isinstance(stage.panel.screen, TrainScreen)
    await stage.press("q", key)
    await stage.until(lambda: not stage.panel.is_running)


async def test_begun_followed_stopped_gone_on_with_left_and_finished_by_keys(
    shop: Workshop, tmp_path: Path
) -> None:
    shop.behave("FAKE_TRAINER", gate={"step": 7, "file": str(tmp_path / "gate")})
    async with train_screen((80, 24)) as stage:
        child = await begin(stage)
        await stage.until(lambda: stage.screen.run and stage.screen.run.root == child.root)
        await stage.sees("● running", "step 7/11", "✓ data done", "● train running")
        await stage.press("x")
        await stage.until(lambda: isinstance(stage.panel.screen, ConfirmScreen))
        assert "step 7 of 11" in stage.text
        await stage.press("enter")  # the safe answer
        assert child.exit_code is None
        await stage.press("x", "y")
        await stage.sees("stopped", "can be resumed")
        await stage.until(lambda: "stopped and saved" in stage.notices)
        await stage.press("enter")
        await stage.until(lambda: isinstance(stage.panel.screen, StartScreen))
        await stage.press("enter")
        await stage.sees("● running", "● train running")
        [child] = stage.panel.detached
        await leave(stage, "enter")  # the safe answer
    assert child.exit_code is None
    async with train_screen((80, 24)) as stage:  # it is there, though this panel did not begin it
        await stage.sees("● running", "● train running")
        (tmp_path / "gate").touch()
        await stage.sees("✓ finished", "step 11/11", "✓ train", "✓ evaluate")
        await stage.until(lambda: child.exit_code == 0, child.said())
        assert [point.step for point in stage.screen.story.loss] == list(range(1, 12))
        assert stage.screen.table.checkpoint is not None
        await stage.press("o")
        await stage.press("escape")
        await stage.press("p")
        await stage.until(lambda: "no server of ours runs" in stage.notices)
    assert shop.children() == []


async def test_leaving_can_stop_a_training_which_saves_first(
    shop: Workshop, tmp_path: Path
) -> None:
    shop.behave("FAKE_TRAINER", gate={"step": 7, "file": str(tmp_path / "gate")})
    async with train_screen((80, 24)) as stage:
        child = await begin(stage)
        await stage.sees("step 7/11", "● train running")
        await leave(stage, "s")
    assert child.exit_code == 130, child.said()
    assert child.root is not None
    assert max(one.name for one in (child.root / "checkpoints").iterdir()) > "step-000007"
    assert shop.children() == []


@pytest.mark.long
async def test_a_training_that_does_not_end_is_ended_by_stopping_it_again(shop: Workshop) -> None:
    shop.behave("FAKE_TRAINER", hang_at=7)
    async with train_screen((80, 24)) as stage:
        child = await begin(stage)
        await stage.sees("step 7/11", "● train running")
        await stage.press("x", "y")
        await stage.until(lambda: stage.screen.story.saving)
        await stage.press("x")
        await stage.sees("End it without saving?", "shop was asked to stop, and is saving.")
        await stage.press("y")
        await stage.until(lambda: child.exit_code == 130, child.said())
        await stage.sees("stopped", "can be resumed")
    assert shop.children() == []
