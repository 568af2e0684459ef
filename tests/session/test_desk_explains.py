"""The desk learns what a server chose, whoever started it, and tells what is wrong with its acceptance."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from fakes.engine.workbench import Workbench

from specpanel.core.engine.process import running_servers
from specpanel.core.monitor.feed import Feed
from specpanel.core.session.desk import Desk
from specpanel.core.session.events import ChosenFound, Event
from specpanel.core.settings.profile import Profile

DEADLINE_S = 30.0
_ports = itertools.cycle(range(20420, 20440))


def profile(bench: Workbench, k: int = 4) -> Profile:
    environment = {"FAKE_VLLM": json.dumps({"start_s": 0.1})}
    made = bench.profile(port=next(_ports), environment=environment)
    return made.model_copy(update={"drafter": made.drafter.model_copy(update={"k": k})})


async def until(condition: Callable[[], object], what: str) -> None:
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # noqa: ASYNC110 (processes set no event)
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"waited in vain for {what}")


@asynccontextmanager
async def desk(events: list[Event], *, leave: bool = False) -> AsyncIterator[Desk]:
    made = Desk(Feed(), events.append, traffic=False)
    try:
        yield made
    finally:
        await made.close(leave=leave)


@pytest.fixture
def bench(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    for name, value in bench.environment().items():
        monkeypatch.setenv(name, value)
    return bench


async def test_a_started_server_is_explained_once_it_is_ready(bench: Workbench) -> None:
    events: list[Event] = []
    async with desk(events) as made:
        made.start(profile(bench))
        await until(lambda: made.current and made.current.explanation, "an explanation")
        assert made.current is not None
        assert made.current.explanation is not None
        choices = {choice.name: choice for choice in made.current.explanation.choices}
        assert choices["draft tokens (K)"].wished == "4"
        assert choices["KV cache"].chosen == "23296 tokens"
        assert sum(isinstance(event, ChosenFound) for event in events) == 1


async def test_an_adopted_server_is_explained_from_its_log(bench: Workbench) -> None:
    async with desk([], leave=True) as first:
        first.start(profile(bench, k=3))
        await until(lambda: first.busy is None, "the first desk")
    [record] = running_servers()
    async with desk([]) as second:
        second.adopt(record)
        await until(lambda: second.current and second.current.explanation, "an explanation")
        assert second.current is not None
        assert second.current.explanation is not None
        choices = {choice.name: choice for choice in second.current.explanation.choices}
        assert choices["KV cache"].chosen == "23296 tokens"
        assert choices["draft tokens (K)"].wished == "3"
