"""The conversations that continuous training learns from: traffic of our own, or what other runs capture."""

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from specpanel.core.session.launch import InterruptedRunError
from specpanel.core.settings.profile import Traffic
from specpanel.core.traffic.endpoint import Endpoint
from specpanel.core.traffic.load import Load
from specpanel.core.traffic.prompts import choose, read_prompts
from specpanel.core.traffic.records import Prompt
from specpanel.core.training.prompt_set import builtin_conversations
from specpanel.core.training.recipe import Recipe

_LOOK_S = 1.0


class Captured:
    """``path`` is the file of all rounds; it grows, and no question is in it twice."""

    def __init__(self, recipe: Recipe, own: Path, url: str) -> None:
        self.path = recipe.online.capture or own
        self._sends = recipe.online.capture is None
        self._recipe = recipe
        self._url = url
        self._prompts = _prompts(recipe) if self._sends else ()
        self._taken = 0

    async def more(self, number: int, interrupted: asyncio.Event, until_s: float) -> int:
        """Get a round's new conversations; how many there are. Less than asked for where time is up.

        Raises:
            InterruptedRunError, SpecpanelError: as a load.
        """
        wanted = self._recipe.online.requests
        if self._sends:
            first = (number - 1) * wanted
            await self._send(self._prompts[first : first + wanted], interrupted)
        else:
            while self._lines() - self._taken < wanted and time.monotonic() < until_s:
                if interrupted.is_set():
                    raise InterruptedRunError
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(interrupted.wait(), _LOOK_S)
        now = self._lines()
        fresh, self._taken = now - self._taken, now
        return fresh

    async def _send(self, prompts: Sequence[Prompt], interrupted: asyncio.Event) -> None:
        if not prompts:
            return
        data = self._recipe.data
        traffic = Traffic(
            requests=len(prompts),
            warmup=0,
            max_tokens=data.max_tokens,
            temperature=data.temperature,
            concurrency=min(data.concurrency, 16),
            capture=self.path,
        )
        async with Endpoint(self._url) as endpoint:
            load = Load(endpoint, prompts, traffic, on_record=lambda _: None, stop=interrupted)
            await load.run()

    def _lines(self) -> int:
        try:
            with self.path.open("rb") as file:
                return sum(1 for _ in file)
        except OSError:
            return 0


def _prompts(recipe: Recipe) -> tuple[Prompt, ...]:
    """What is sent, in an order of its own: the built-in prompts to train on, or a file of prompts.

    Raises:
        ConfigurationError: the file holds none.
    """
    if recipe.data.source == "builtin":
        return choose(tuple(_builtin()), (), recipe.data.seed)
    return choose(read_prompts(Path(recipe.data.source).expanduser()), (), recipe.data.seed)


def _builtin() -> Iterator[Prompt]:
    for one in builtin_conversations():
        yield Prompt(one.id, one.kind, one.turns[0].text)
