"""What the Train screen does to trainings: begin, go on, stop, promote, open the log, copy the command."""

import asyncio
import json
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specpanel.app.tui.ink import clean
from specpanel.app.tui.screens.base import PanelScreen
from specpanel.app.tui.screens.sessions_dialogs import ConfirmScreen
from specpanel.app.tui.screens.train_dialogs import StartScreen, StartWish
from specpanel.app.tui.screens.train_log import TrainLogScreen
from specpanel.app.tui.screens.train_reading import count_lines
from specpanel.app.tui.train_words import RecipeEntry, can_resume, short_target
from specpanel.core.errors import NotRunningError, SpecpanelError
from specpanel.core.training.detached import Detached, interrupt_owner, new_root
from specpanel.core.training.folder import RunFolder
from specpanel.core.training.resumption import resumable_recipe
from specpanel.core.training.runs import TrainingRun

if TYPE_CHECKING:
    from specpanel.app.tui.widgets.train_list import TrainList
    from specpanel.app.tui.widgets.train_tables import CheckpointTable
    from specpanel.core.engine.registry import ServerRecord
    from specpanel.core.training.story import Story
    from specpanel.core.training.story_parts import KeptCheckpoint

_OURS = (sys.executable, "-m", "specpanel.app")


class TrainActions(PanelScreen):
    """The keys that change something. All of it goes through the commands that do the same headless."""

    chooser: "TrainList"
    table: "CheckpointTable"
    story: "Story"
    tabs: Any
    _asked_to_stop: Path | None = None

    @property
    def run(self) -> TrainingRun | None:
        raise NotImplementedError

    @property
    def recipe_entry(self) -> RecipeEntry | None:
        raise NotImplementedError

    def want(self, key: str | Path) -> None:
        raise NotImplementedError

    def reread(self) -> None:
        raise NotImplementedError

    # Begin and go on

    def action_start(self) -> None:
        run, entry = self.run, self.recipe_entry
        if entry is not None:
            self._ask_to_begin(entry)
        elif run is None:
            self.panel.say("there is nothing to begin yet")
        elif run.state == "running":
            self.panel.say(f"this training runs; {self.keymap.shown('train.stop')} stops it")
        elif run.state != "done" and not can_resume(run):
            self.panel.say("its data were not made: begin its recipe again, below in the list")
        else:
            self._ask_to_go_on(run)

    def _ask_to_begin(self, entry: RecipeEntry) -> None:
        if entry.error:
            self.panel.say(entry.error, severity="warning")
            return
        table = entry.table
        target = _setting(table, "target", "model")
        screen = StartScreen(
            f"Train {entry.name}?",
            (
                entry.description or f"{entry.algorithm} drafter",
                "It starts vLLM for the answers, once more for the hidden states, then the trainer.",
            ),
            steps=str(_setting(table, "trainer", "steps") or 200),
            model=str(target or ""),
        )
        self.app.push_screen(screen, partial(self._begin_answered, entry))

    def _begin_answered(self, entry: RecipeEntry, wish: StartWish | None) -> None:
        if wish is None:
            return
        root = new_root(entry.name)
        words = ["train", entry.name, "--json", "--folder", str(root)]
        words += ["--steps", wish.steps] if wish.steps else []
        words += ["--model", str(Path(wish.model).expanduser())] if wish.model else []
        self._launch(entry.name, words, root)

    def _ask_to_go_on(self, run: TrainingRun) -> None:
        done = "" if run.steps is None else f"It has done {run.steps} steps. "
        more = "More steps than that go on from its last save." if run.state == "done" else ""
        wanted = run.wanted_steps
        screen = StartScreen(
            f"Go on with {run.recipe}?",
            (f"{done}{more}".strip(), "What is done is taken as it is.", str(run.root)),
            steps="" if wanted is None else str(wanted),
            model=None,
        )
        self.app.push_screen(screen, partial(self._go_on_answered, run))

    def _go_on_answered(self, run: TrainingRun, wish: StartWish | None) -> None:
        if wish is None:
            return
        try:
            recipe = resumable_recipe(run.root)
        except SpecpanelError as error:
            self.panel.say(str(error), severity="error")
            return
        words = ["train", str(recipe), "--json", "--resume", "--folder", str(run.root)]
        words += ["--steps", wish.steps] if wish.steps else []
        self._launch(run.recipe, words, run.root)

    def _launch(self, name: str, words: list[str], root: Path) -> None:
        try:
            child = Detached(name, [*_OURS, *words], root=root)
        except SpecpanelError as error:
            self.panel.say(str(error), severity="error")
            return
        self.panel.detached.append(child)
        self.panel.say(f"{name}: training begins")
        self.want(root)

    # Stop

    def action_stop(self) -> None:
        run = self.run
        if run is None or run.owner is None:
            key = self.keymap.shown("train.stop")
            self.panel.say(f"{key} stops a running training; this one does not run")
            return
        again = self._asked_to_stop == run.root
        if again:
            title, yes = "End it without saving?", "end it at once"
            sentences = [f"{run.recipe} was asked to stop, and is saving."]
        else:
            title, yes = "Stop this training?", "stop it"
            seconds = _setting(self.story.recipe, "trainer", "save_timeout_s") or 130
            sentences = [
                f"{run.recipe}, {self._how_far()}",
                f"It saves first, which can take up to {seconds:.0f} s, and can be gone on with.",
            ]
        question = ConfirmScreen(title, sentences, yes)
        self.app.push_screen(question, partial(self._stop_answered, run))

    def _how_far(self) -> str:
        step, wanted = self.story.newest, self.story.wanted_steps
        if step is None:
            running = self.story.running
            return f"in its stage {running.name}" if running is not None else "at its begin"
        return f"step {step.step}" + ("" if wanted is None else f" of {wanted}")

    def _stop_answered(self, run: TrainingRun, yes: bool | None) -> None:
        if not yes or run.owner is None:
            return
        try:
            interrupt_owner(run.owner)
        except NotRunningError as error:
            self.panel.say(str(error), severity="warning")
            self.reread()
            return
        again, self._asked_to_stop = self._asked_to_stop == run.root, run.root
        self.panel.say(f"{run.recipe} ends at once" if again else f"{run.recipe} saves and ends")

    # Promote

    def action_promote(self) -> None:
        checkpoint = self.table.checkpoint
        if self.run is None or checkpoint is None:
            self.panel.say("a training that has kept a checkpoint can be promoted")
            return
        if any(child.root is None and child.exit_code is None for child in self.panel.detached):
            self.panel.say("a promotion is under way already")
            return
        self.run_worker(self._ask_to_promote(self.run, checkpoint), group="train-promote")

    async def _ask_to_promote(self, run: TrainingRun, checkpoint: "KeptCheckpoint") -> None:
        from specpanel.core.engine.process import running_servers

        servers = await asyncio.to_thread(running_servers)
        server = self._server_of(servers)
        if server is None:
            self.panel.say(
                "no server of ours runs to promote to: start one with a drafter and engine.swappable",
                severity="warning",
            )
            return
        held = await asyncio.to_thread(count_lines, RunFolder(run.root).heldout)
        prompts = "the built-in prompts" if not held else f"{held} held-out prompts"
        sentences = (
            f"step {checkpoint.step} of {run.recipe} in {server.name} at {server.url}",
            f"It costs: {prompts}, each asked twice; the server pauses for the exchange of the weights "
            "(docs/promotion.md measures it) and its prefix cache is cleared. Requests of others wait "
            "and go on; no text changes.",
            "It stays only where it is shown to be better; else the old drafter comes back.",
        )
        question = ConfirmScreen("Promote this checkpoint?", sentences, "try it")
        self.app.push_screen(question, partial(self._promote_answered, checkpoint.path, server))

    def _server_of(self, servers: "list[ServerRecord]") -> "ServerRecord | None":
        """The panel's own server, else the newest."""
        served = None if self.desk is None else self.desk.current
        own = None if served is None or served.record is None else served.record.id
        return next((one for one in servers if one.id == own), servers[-1] if servers else None)

    def _promote_answered(self, checkpoint: Path, server: "ServerRecord", yes: bool | None) -> None:
        if not yes:
            return
        words = ["promote", str(checkpoint), "--server", server.name, "--json"]
        try:
            child = Detached(f"promotion to {server.name}", [*_OURS, *words])
        except SpecpanelError as error:
            self.panel.say(str(error), severity="error")
            return
        self.panel.detached.append(child)
        self.panel.say(f"{child.name} begins")

    def promoting_words(self) -> str:
        """What a promotion that is under way says of itself; empty where there is none."""
        for child in self.panel.detached:
            if child.root is None and child.exit_code is None:
                lines = child.said().splitlines()
                return clean(f"promoting: {lines[-1] if lines else 'begins'}")
        return ""

    # Log and command

    def action_log(self) -> None:
        log = self.story.log
        if self.run is None or log is None:
            self.panel.say("there is no log yet")
            return
        screen = TrainLogScreen(log, self.tabs, glyphs=self.glyphs, notices=self.panel.notices)
        self.app.push_screen(screen)

    def action_copy(self) -> None:
        run, entry = self.run, self.recipe_entry
        if entry is not None:
            named = _setting(entry.table, "target", "model")
            words = ["specpanel", "train", entry.name, *([] if named else ["--model", "FOLDER"])]
        elif run is not None:
            words = ["specpanel", "train", run.recipe, "--resume", "--folder", str(run.root)]
            model = _setting(self.story.recipe, "target", "model")
            words += ["--model", model] if isinstance(model, str) else []
        else:
            return
        command = shlex.join(words)
        self.panel.copy_to_clipboard(command)
        self.panel.say(f"copied: {command}")


def _setting(table: Any, section: str, name: str) -> Any:
    found = table.get(section)
    return found.get(name) if isinstance(found, dict) else None


def outcome_words(child: Detached) -> tuple[str, bool]:
    """What came of one that has ended, and whether that is well."""
    code = child.exit_code
    if child.root is None:
        return _promotion_words(child)
    if code == 0:
        return f"{child.name}: training finished", True
    if code == 130:
        return f"{child.name}: stopped and saved; it can be gone on with", True
    said = child.said()
    at = said.rfind("specpanel: ")
    words = said[at + len("specpanel: ") :] if at >= 0 else said.rpartition("\n")[2]
    words = " ".join(words.split()) or f"ended with exit code {code}"
    return f"{child.name}: {words}", False


def _promotion_words(child: Detached) -> tuple[str, bool]:
    try:
        last = child.out.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
        found = json.loads(last)
        result, reason = str(found["result"]), str(found["reason"])
        candidate = short_target(str(found["candidate"]))
    except (OSError, ValueError, KeyError, TypeError):
        said = child.said().rpartition("specpanel: ")[2]
        return f"{child.name}: {' '.join(said.split())}", False
    return f"{candidate}: {result}: {reason}", result in ("promoted", "measured")
