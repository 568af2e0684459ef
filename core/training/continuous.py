"""Continuous training beside a running server: traffic, capture, train, measure, promote, over and over.

Each round is a training run of its own (``round-001`` and so on) over everything captured so far, started
from the drafter that serves, and promoted in place where held-out conversations show that it is better. It
ends by its bounds or by Ctrl-C, everything saved; the server goes on either way.
"""

import asyncio
import shutil
import time
from pathlib import Path

from specpanel.core.checkpoints.config import read_config
from specpanel.core.errors import ConfigurationError
from specpanel.core.monitor.recording import Recorder
from specpanel.core.session.events import Note
from specpanel.core.session.launch import InterruptedRunError
from specpanel.core.traffic.prompts import builtin_prompts
from specpanel.core.training.captured import Captured
from specpanel.core.training.chain import Training, TrainingOutcome, TrainingPlan
from specpanel.core.training.events import (
    OnlineEnded,
    PromotionTried,
    RoundBegan,
    RoundEnded,
    TrainingEvent,
    TrainingListener,
    training_line,
)
from specpanel.core.training.folder import RunFolder, training_folder
from specpanel.core.training.pacing import Pacing, token_ms
from specpanel.core.training.promotion_way import find_server
from specpanel.core.training.recipe import Recipe
from specpanel.core.training.records import Round, StageName
from specpanel.core.training.swap import DrafterStatus, DrafterSwap

_PROBES = 2


class Continuous:
    """Runs until a bound is reached. ``interrupt`` may be called at any time; a second call hurries.

    Args:
        server: name, port or address of the server that is watched and promoted to.
    """

    def __init__(
        self, recipe: Recipe, server: str, folder: Path | None, listener: TrainingListener
    ) -> None:
        self.recipe = recipe
        self.folder = folder or training_folder() / recipe.name / time.strftime(
            "online-%Y%m%d-%H%M%S"
        )
        self.rounds: list[Round] = []
        self._server = server
        self._listener = listener
        self._interrupted = asyncio.Event()
        self._training: Training | None = None
        self._pacing: Pacing | None = None
        self._recorder: Recorder | None = None
        self._until_s = time.monotonic() + recipe.online.hours * 3600
        self._url = ""

    def interrupt(self) -> None:
        """End soon, everything saved. The second time: at once."""
        self._interrupted.set()
        if self._pacing is not None:
            self._pacing.stop()
        if self._training is not None:
            self._training.interrupt()

    async def run(self) -> str:
        """Why it ended, in words; the rounds are in ``rounds``.

        Raises:
            SpecpanelError: the server cannot be promoted to, or a round failed.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._recorder = Recorder(RunFolder(self.folder).events())
        timer = asyncio.get_running_loop().call_at(
            asyncio.get_running_loop().time() + self.recipe.online.hours * 3600, self._time_is_up
        )
        reason = "failed"
        try:
            reason = await self._all_rounds()
            return reason
        except InterruptedRunError:
            reason = "interrupted"
            return reason
        finally:
            timer.cancel()
            self._emit(OnlineEnded(reason, tuple(self.rounds), str(self.folder)))
            self._recorder.close()

    def _time_is_up(self) -> None:
        if self._training is not None:
            self._training.interrupt()
        if self._pacing is not None:
            self._pacing.stop()

    # -- rounds -------------------------------------------------------------------------------

    async def _all_rounds(self) -> str:
        _, self._url, _ = find_server(self._server)
        await self._status()
        captured = Captured(self.recipe, self.folder / "captured.jsonl", self._url)
        while (reason := self._bound()) is None:
            number = len(self.rounds) + 1
            self._emit(RoundBegan(number, self.recipe.online.rounds, self._steps_left()))
            fresh = await captured.more(number, self._interrupted, self._until_s)
            if self._interrupted.is_set():
                raise InterruptedRunError
            if fresh < min(self.recipe.online.requests, 20):
                return f"only {fresh} new conversations were captured"
            await self._round(number, captured, fresh)
        return reason

    def _bound(self) -> str | None:
        """The bound that is reached."""
        online = self.recipe.online
        if online.rounds is not None and len(self.rounds) >= online.rounds:
            return f"{online.rounds} round{'s are' if online.rounds > 1 else ' is'} done"
        if time.monotonic() >= self._until_s:
            return f"the time is over: {online.hours:g} h"
        if self._steps_left() < 1:
            return f"{online.steps} steps are done"
        taken = self._make_room()
        if taken > online.disk_gib * (1 << 30):
            return f"the rounds take {taken / (1 << 30):.1f} GiB of disk"
        return None

    def _steps_left(self) -> int:
        return self.recipe.online.steps - sum(one.steps or 0 for one in self.rounds)

    async def _round(self, number: int, captured: Captured, fresh: int) -> None:
        began_s = time.monotonic()
        serving = await self._status()
        recipe = self._recipe_of(captured.path, serving)
        place = self.folder / f"round-{number:03d}"
        tried: list[PromotionTried] = []

        def listen(event: TrainingEvent) -> None:
            if isinstance(event, PromotionTried):
                tried.append(event)
            self._emit(event)

        stages: tuple[StageName, ...] = ("data", "extraction", "train", "promote")
        training = self._training = Training(TrainingPlan(recipe, stages, place), listen)
        outcome, slower = await self._beside(training)
        self._training = None
        promotion = tried[0].promotion if tried else None
        self.rounds.append(
            Round(
                number=number,
                folder=place,
                conversations=fresh,
                steps=outcome.summary.steps,
                result=promotion.result if promotion else None,
                before=promotion.gain.before if promotion and promotion.gain else None,
                candidate=promotion.gain.candidate if promotion and promotion.gain else None,
                slower=slower,
                took_s=time.monotonic() - began_s,
            )
        )
        self._emit(RoundEnded(self.rounds[-1]))
        if self._interrupted.is_set() or outcome.summary.interrupted:
            raise InterruptedRunError
        if outcome.error is not None:
            raise outcome.error

    async def _beside(self, training: Training) -> tuple[TrainingOutcome, float | None]:
        """Train while serving's tokens are timed; how much slower one was at worst."""
        probes = builtin_prompts()[:_PROBES]
        idle_ms = await token_ms(self._url, probes, self._interrupted)
        if idle_ms is None:
            return await training.run(), None

        def told(wait_s: float, slower: float) -> None:
            self._emit(
                Note(f"a token takes {slower:+.0%}: training waits {wait_s:g} s after each step")
            )

        allowed = self.recipe.online.latency_share
        pacing = self._pacing = Pacing(self._url, probes, idle_ms, allowed, told)
        looking = asyncio.create_task(pacing.run(training.folder.pace))
        try:
            return await training.run(), pacing.worst
        finally:
            pacing.stop()
            await asyncio.gather(looking, return_exceptions=True)
            self._pacing = None

    def _recipe_of(self, captured: Path, serving: DrafterStatus) -> Recipe:
        """The recipe of one round: the captured answers, from the drafter that serves."""
        recipe = self.recipe
        data = recipe.data.model_copy(
            update={
                "source": str(captured),
                "answers": "given",
                "server": self._url,
                "split": "stable",
                "limit": None,
            }
        )
        trainer = recipe.trainer.model_copy(
            update={
                "steps": min(recipe.trainer.steps, self._steps_left()),
                "from_pretrained": _start(recipe, serving),
            }
        )
        promotion = recipe.promotion.model_copy(update={"server": self._url, "way": "in place"})
        return recipe.model_copy(update={"data": data, "trainer": trainer, "promotion": promotion})

    async def _status(self) -> DrafterStatus:
        async with DrafterSwap(self._url) as drafter:
            return await drafter.status()

    def _make_room(self) -> int:
        """Forget the oldest rounds' checkpoints and states where the disk's bound is reached; bytes taken."""
        limit = self.recipe.online.disk_gib * (1 << 30)
        for one in self.rounds[:-1]:
            if (taken := _size(self.folder)) <= limit:
                return taken
            if one.result != "promoted":
                shutil.rmtree(one.folder, ignore_errors=True)
        return _size(self.folder)

    def _emit(self, event: TrainingEvent) -> None:
        if self._recorder is not None:
            self._recorder.write(training_line(event))
        self._listener(event)


def _start(recipe: Recipe, serving: DrafterStatus) -> str | None:
    """The drafter that serves, where it is of the recipe's kind; else what the recipe names."""
    try:
        config = read_config(serving.folder)
    except ConfigurationError:
        return recipe.trainer.from_pretrained
    said = config.speculators
    if said is None or said.algorithm != recipe.algorithm.type:
        return recipe.trainer.from_pretrained
    return serving.folder


def _size(folder: Path) -> int:
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())
