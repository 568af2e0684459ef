"""The Train screen: trainings and recipes, and one training followed as its events are written."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from textual.binding import BindingType
from textual.containers import Container
from textual.widget import Widget
from textual.worker import Worker

from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.keys import bindings
from specpanel.app.tui.screens.train_actions import TrainActions
from specpanel.app.tui.screens.train_layout import PANES, plan_train
from specpanel.app.tui.screens.train_reading import Aside, Shelf, read_aside, read_shelf
from specpanel.app.tui.train_plan_words import plan_facts
from specpanel.app.tui.train_words import RecipeEntry, seconds, share
from specpanel.app.tui.widgets.canvas import Canvas
from specpanel.app.tui.widgets.pane import Pane
from specpanel.app.tui.widgets.train_bars import AccuracyBars, TimeBars
from specpanel.app.tui.widgets.train_charts import SUBJECTS, StepChart
from specpanel.app.tui.widgets.train_head import TrainFoot, TrainHead
from specpanel.app.tui.widgets.train_list import TrainList, key_of
from specpanel.app.tui.widgets.train_tables import CheckpointTable, PlanTable
from specpanel.app.tui.widgets.train_welcome import Welcome, welcome_words
from specpanel.core.monitor.feed import Feed
from specpanel.core.training.alarms import Trouble
from specpanel.core.training.folder import training_folder
from specpanel.core.training.runs import TrainingRun, folder_stamps
from specpanel.core.training.story import Story
from specpanel.core.training.trail import Trail

_TICKS_BETWEEN_LOOKS = 4
_TICKS_BETWEEN_SCANS = 60
_REDRAW_S = 0.25  # while a long file of events is read
_LEAST_FREE = 0.1
_NAMES_FROM = 100


class TrainScreen(TrainActions):
    """Reads in threads; the loop takes what was read and draws. Nothing is read while it is hidden."""

    tab = "Train"
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("train")]
    DEFAULT_CSS = """
    #train-body { height: 1fr; layout: vertical; overflow: hidden; }
    #train-body > * { position: absolute; }
    .-too-small #train-body { display: none; }
    """

    def __init__(self, tabs: Sequence[tuple[str, str]], *, glyphs: Glyphs, patterns: bool) -> None:
        super().__init__(tabs, glyphs=glyphs)
        self.tabs = tabs
        self.story = Story()
        self.shelf = Shelf((), (), ())
        self.aside = Aside()
        self.selected = 0
        self.zoomed = False
        self.chooser = TrainList(glyphs=glyphs)
        self.head = TrainHead(glyphs=glyphs)
        self.foot = TrainFoot(glyphs=glyphs)
        self.welcome = Welcome(glyphs=glyphs)
        self.accuracy = AccuracyBars(glyphs=glyphs)
        self.table = CheckpointTable(glyphs=glyphs)
        self.plan = PlanTable(glyphs=glyphs)
        self.charts = {
            name: StepChart(subject, glyphs=glyphs, patterns=patterns)
            for name, subject in SUBJECTS.items()
        }
        self.times = TimeBars(glyphs=glyphs)
        self.panes: dict[str, Pane] = {
            **self.charts,
            "positions": self.accuracy,
            "times": self.times,
            "checkpoints": self.table,
            "plan": self.plan,
        }
        self._boxed: dict[str, Pane] = {
            "list": self.chooser,
            "head": self.head,
            "foot": self.foot,
            "welcome": self.welcome,
            **self.panes,
        }
        self._trail: Trail | None = None
        self._read_share = 1.0
        self._stamps: tuple[tuple[str, int], ...] = ()
        self._log_stamp: tuple[int, int] | None = None
        self._follower: Worker[None] | None = None
        self._ticks = 0
        self._wanted: str | Path | None = None  # the entry to choose as soon as it is there

    def compose_body(self) -> Iterable[Widget]:
        with Container(id="train-body"):
            yield from self._boxed.values()

    def on_mount(self) -> None:
        self._show_keys()

    def on_screen_resume(self) -> None:
        self.top_bar.show(self.panel.feed.latest)
        for chart in self.charts.values():
            chart.wear(patterns=self.panel.patterns)
        self.reread()

    # What comes in

    def receive(self, feed: Feed) -> None:
        self.top_bar.show(feed.latest)
        self._ticks += 1
        if self._ticks % _TICKS_BETWEEN_LOOKS == 0 and self._list_is_stale():
            self.reread()
        elif self._ticks % _TICKS_BETWEEN_SCANS == 0:
            self.reread()  # one may have been started in a folder elsewhere
        self._show_head()  # the seconds of a running stage
        if self._follower is None or self._follower.is_finished:
            trail = self._trail
            if trail is not None and (trail.has_more() or self._log_has_more()):
                self._follow()

    def _list_is_stale(self) -> bool:
        ended = any(run.owner is not None and not run.owner.lives for run in self.chooser.runs)
        return ended or folder_stamps() != self._stamps

    def _log_has_more(self) -> bool:
        run, log = self.run, self.story.log
        if run is None or run.owner is None or log is None:
            return False
        try:
            found = log.stat()
        except OSError:
            return False
        stamp = (found.st_ino, found.st_size)
        changed, self._log_stamp = stamp != self._log_stamp, stamp
        return changed

    def reread(self) -> None:
        """Reads trainings, recipes and promotions again."""
        self._stamps = folder_stamps()
        self.chooser.reading = True
        self.chooser.redraw()
        _: Worker[None] = self.run_worker(self._read_shelf, group="train-shelf", exclusive=True)

    async def _read_shelf(self) -> None:
        before = self.run
        self.shelf = shelf = await asyncio.to_thread(read_shelf)
        if shelf.trouble:
            self.panel.say(shelf.trouble, severity="warning")
        self.chooser.put(shelf.runs, shelf.recipes)
        if self._wanted is not None and self.chooser.choose(self._wanted):
            self._wanted = None
            self.chooser.redraw()
        if self.run is None or before is None or self.run.root != before.root:
            self._choose()
        else:
            self._show_story()

    # The chosen entry

    @property
    def run(self) -> TrainingRun | None:
        """The chosen training."""
        chosen = self.chooser.chosen
        return chosen if isinstance(chosen, TrainingRun) else None

    @property
    def recipe_entry(self) -> RecipeEntry | None:
        chosen = self.chooser.chosen
        return chosen if isinstance(chosen, RecipeEntry) else None

    def want(self, key: str | Path) -> None:
        """Choose this entry as soon as it is in the list."""
        self._wanted = key
        self.reread()

    def _choose(self) -> None:
        """Begins to show the entry under the cursor."""
        run = self.run
        if run is not None and self._trail is not None and self._trail.root == run.root:
            self._show_story()
            return
        self.story, self.aside = Story(), Aside()
        self._log_stamp, self._read_share = None, 0.0
        self._trail = None if run is None else Trail(run.root)
        if run is None:
            self.zoomed = False
        self._arrange()
        self._show_story()
        if run is not None:
            self._follow()

    def _follow(self) -> None:
        self._follower = self.run_worker(self._read_trail, group="train-trail", exclusive=True)

    async def _read_trail(self) -> None:
        """Takes all that was written since, a slice at a time, and draws."""
        trail = self._trail
        drawn_s = time.monotonic()
        while trail is not None and trail is self._trail:
            read = await asyncio.to_thread(trail.read)
            if trail is not self._trail:
                return
            if read.again:
                self.story = Story()
            for line in read.lines:
                self.story.take(line)
            self._read_share = read.share
            if not read.more:
                self._read_share = 1.0
                break
            if time.monotonic() - drawn_s > _REDRAW_S:
                self._show_story()
                drawn_s = time.monotonic()
        if trail is not None:
            story = self.story
            found = await asyncio.to_thread(read_aside, trail.root, story.log, story.recipe)
            if trail is self._trail:
                self.aside = found
                self._show_story()

    # The picture

    def fit_to(self, width: int, height: int) -> None:
        self._arrange()
        self._show_story()

    def _arrange(self) -> None:
        """Gives every pane its place; what has none is hidden."""
        width, height = self.size.width, self.size.height - 2
        if width < 1 or height < 1:
            return
        plan = plan_train(
            width, height, selected=self.selected, zoomed=self.zoomed, begun=self.run is not None
        )
        for name, pane in self._boxed.items():
            box = plan.boxes.get(name)
            pane.display = box is not None
            pane.framed = plan.framed
            pane.selected = name == PANES[self.selected]
            if box is not None:
                pane.styles.offset = (box.x, box.y)
                pane.styles.width, pane.styles.height = box.width, box.height
                pane.forget_rows()

    def _show_story(self) -> None:
        """Draws what is known; each pane compares with what it shows."""
        self.chooser.redraw()
        self._show_head()
        run, story = self.run, self.story
        over = run is not None and run.state != "running"
        self.plan.show(tuple(plan_facts(self._table(), free=self._free(), folder=self._folder())))
        if run is None:
            first = not self.chooser.runs
            start, reread = (self.keymap.shown(f"train.{id}") for id in ("start", "reread"))
            words = welcome_words(self.recipe_entry, first=first, start=start, reread=reread)
            self.welcome.show(words)
        else:
            for chart in self.charts.values():
                chart.show(story, over=over)
            self.accuracy.show(story)
            self.times.show(story)
            self.table.show(story, run, self.shelf.promotions)
            self.foot.show(self.alarms(), self.aside.log_line, self._quiet())
        self._show_keys()

    def _show_head(self) -> None:
        if self.run is None:
            self.head.show_recipe(self.recipe_entry)
        else:
            self.head.show(
                self.story, self.run, began_unix=self.aside.began_unix, busy=self.promoting_words()
            )

    def _table(self) -> Mapping[str, Any]:
        entry = self.recipe_entry
        return self.story.recipe if entry is None else entry.table

    def _folder(self) -> str:
        """The run's folder; without what is before it, where it is one of ours."""
        if self.run is None:
            return ""
        root, place = self.run.root, training_folder()
        return str(root.relative_to(place)) if root.is_relative_to(place) else str(root)

    def _free(self) -> float | None:
        """Free share of the states' folder, while this run uses it."""
        online = self.story.section("extraction").get("mode") != "offline"
        running = self.run is not None and self.run.state == "running"
        return self.aside.free if online and running else None

    def alarms(self) -> list[Trouble]:
        """What the run tells, and what is seen beside it."""
        found = self.story.alarms()
        run, free = self.run, self._free()
        if run is not None and run.state == "unreadable":
            found.insert(0, Trouble("unreadable", "error", run.why))
        if run is not None and run.state == "cut off" and self._read_share >= 1.0:
            fix = "enter goes on from the last whole save." if run.resumable else ""
            found.insert(0, Trouble("cut-off", "warning", "its process went without a word", fix))
        if free is not None and free < _LEAST_FREE:
            text = f"the folder of hidden states is {share(1 - free)} full"
            found.insert(0, Trouble("states-full", "warning", text, "Free some space there."))
        return found

    def _quiet(self) -> str:
        if self._read_share < 1.0:
            return f"reading the events: {share(self._read_share)}"
        ending = self.story.ending
        if ending is None:
            return self.story.note or "no alarm"
        took = "" if ending.took_s is None else f" after {seconds(ending.took_s)}"
        if ending.state == "done":
            return f"finished{took} in all; no alarm"
        start = self.keymap.shown("train.start")
        return f"stopped{took}" + (f"; {start} goes on with it" if ending.resumable else "")

    def _show_keys(self) -> None:
        entries = self.keymap.line_entries("train", "panel")
        if self.zoomed:
            entries.insert(0, (self.keymap.shown("train.leave"), "All panes"))
        step = self.table.checkpoint
        told = step is not None and self.run is not None and self.size.width >= _NAMES_FROM
        right = f"step {step.step} chosen" if step is not None and told else ""
        self.key_line.show(entries, ((right, "muted"),) if right else ())

    # Keys

    def action_move(self, step: int) -> None:
        before = self.chooser.chosen
        self.chooser.move(step)
        after = self.chooser.chosen
        if before is not None and after is not None and key_of(before) != key_of(after):
            self._choose()

    def on_canvas_picked(self, event: Canvas.Picked) -> None:
        """A click on an entry chooses it, one on a pane selects that."""
        if event.canvas is self.chooser:
            self.action_move(event.place - self.chooser.cursor)
            return
        names = [name for name, pane in self.panes.items() if pane is event.canvas]
        for name in names:
            self.action_select(PANES.index(name) - self.selected)

    def action_reread(self) -> None:
        self.reread()

    def action_select(self, step: int) -> None:
        self._drop_cursors()
        self.selected = (self.selected + step) % len(PANES)
        self._arrange()
        self._show_story()

    def action_zoom(self) -> None:
        if self.run is None:
            self.panel.say("a training has panes to zoom; this is a recipe")
            return
        self.zoomed = not self.zoomed
        self._drop_cursors()
        self._arrange()
        self._show_story()

    def action_leave(self) -> None:
        if self.zoomed:
            self.action_zoom()

    def action_cursor(self, columns: int) -> None:
        chart = self.charts.get(PANES[self.selected])
        if chart is None or self.run is None:
            key = self.keymap.shown
            self.panel.say(
                f"{key('train.earlier')} and {key('train.later')} read a chart; "
                f"{key('train.previous')} and {key('train.next')} choose one"
            )
        else:
            chart.move_cursor(columns)

    def _drop_cursors(self) -> None:
        for chart in self.charts.values():
            chart.drop_cursor()

    def action_conditional(self) -> None:
        self.accuracy.toggle_conditional()

    def action_checkpoint(self) -> None:
        if self.table.checkpoint is None:
            self.panel.say("no checkpoint was kept yet")
            return
        self.table.choose_next()
        self._show_keys()
        if self.size.width < _NAMES_FROM:  # neither the table nor the end of the key line says it
            key = self.keymap.shown("train.promote")
            self.panel.say(f"step {self.table.checkpoint.step} is chosen: {key} promotes it")
