"""Continuous training beside a server: rounds, bounds, pace, and an end that leaves the server serving."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.engine.workbench import wait_for
from fakes.training.workshop import Told, Workshop
from ports import free_port

from specpanel.core.engine.process import running_servers, stop_server
from specpanel.core.errors import SpecpanelError
from specpanel.core.session.served import start_served
from specpanel.core.settings.profile import Profile
from specpanel.core.training.continuous import Continuous
from specpanel.core.training.events import (
    OnlineEnded,
    PromotionTried,
    RoundEnded,
    StepDone,
    TrainerStarted,
)
from specpanel.core.training.folder import RunFolder
from specpanel.core.training.pacing import next_wait_s
from specpanel.core.training.swap import DrafterSwap

WEAK, STRONG = [0, 1, 0], [2, 3, 2]


@pytest.fixture
def shop(tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    shop = Workshop(tmp_path / "shop", monkeypatch)
    shop.set("online", requests=30)
    yield shop
    for record in running_servers():
        stop_server(record, 1.0)
    assert shop.children() == []


async def server(shop: Workshop) -> str:
    """A server that drafts with a head of the recipe's kind, open to swaps."""
    await shop.run("data", "extraction", "train")
    first = shop.folder.checkpoints / "step-000005"
    made = shop.recipe().drafting_profile(str(shop.target), "eagle3", str(first), 3)
    engine = made.engine.model_copy(update={"port": free_port()})
    profile: Profile = made.model_copy(update={"engine": engine, "name": "bench"})
    served = await start_served(profile, lambda _: None, asyncio.Event())
    assert served.launch is not None
    await served.launch.until_ready(asyncio.Event())
    return served.facts.url


async def folder_of(url: str) -> str:
    async with DrafterSwap(url) as drafter:
        return (await drafter.status()).folder


def continuous(shop: Workshop, url: str, told: Told) -> Continuous:
    return Continuous(shop.recipe(), url, shop.root / "online", told.events.append)


async def test_rounds_train_on_what_was_answered_and_promote_what_is_better(shop: Workshop) -> None:
    shop.behave("FAKE_SERVING", accepts={"step-000005": WEAK, "step-000012": STRONG})
    url = await server(shop)
    shop.set("online", rounds=2, steps=20)
    told = Told()
    reason = await continuous(shop, url, told).run()
    assert reason == "2 rounds are done"
    first, second = (one.round for one in told.of(RoundEnded))
    assert (first.conversations, first.steps, first.result) == (30, 12, "promoted")
    assert (first.before, first.candidate) == (pytest.approx(4 / 3), pytest.approx(10 / 3))
    assert second.steps == 8  # what the bound of 20 leaves
    assert second.conversations == 30
    assert await folder_of(url) == str(first.folder / "checkpoints" / "step-000012")

    # Each round starts from the drafter that serves, and none trains on what an earlier one held out.
    started = told.of(TrainerStarted)
    begun = [one.argv[one.argv.index("--from-pretrained") + 1] for one in started]
    assert begun == [
        str(shop.folder.checkpoints / "step-000005"),
        str(first.folder / "checkpoints" / "step-000012"),
    ]
    held = [json.loads(line)["text"] for line in RunFolder(second.folder).heldout.open()]
    trained = [json.loads(line)["text"] for line in RunFolder(first.folder).prompts.open()]
    assert not set(held) & set(trained)

    captured = shop.root / "online" / "captured.jsonl"
    assert captured.stat().st_mode & 0o777 == 0o600
    last = (shop.root / "online" / "events.ndjson").read_text().splitlines()[-1]
    assert json.loads(last)["kind"] == "online_summary"


async def test_an_interrupt_saves_and_leaves_the_server_with_its_drafter(shop: Workshop) -> None:
    url = await server(shop)
    before = await folder_of(url)
    shop.behave("FAKE_TRAINER", step_s=0.2)
    shop.set("trainer", steps=500)
    told = Told()
    running = continuous(shop, url, told)
    task = asyncio.create_task(running.run())
    await asyncio.to_thread(wait_for, lambda: len(told.of(StepDone)) > 2, "three steps")
    running.interrupt()
    assert await task == "interrupted"
    assert isinstance(told.events[-1], OnlineEnded)
    assert told.of(PromotionTried) == []
    assert await folder_of(url) == before
    save = RunFolder(shop.root / "online" / "round-001").save
    assert list(save.glob("*/training_state.json"))  # what was trained so far
    assert len(running_servers()) == 1


async def test_a_server_whose_drafter_cannot_be_replaced_is_refused_at_once(shop: Workshop) -> None:
    from fakes.swapping_engine import SwappingEngine

    told = Told()
    async with SwappingEngine(developer=False) as engine:
        with pytest.raises(SpecpanelError, match="cannot be replaced"):
            await continuous(shop, engine.url, told).run()
    assert isinstance(told.events[-1], OnlineEnded)


def test_the_wait_grows_while_serving_suffers_and_goes_when_it_does_not() -> None:
    waits = [0.0]
    for slower in (0.1, 0.5, 0.9, 0.3, 0.1, 0.1, 0.1):
        waits.append(next_wait_s(waits[-1], slower, 0.25))
    assert waits == [0.0, 0.0, 0.5, 1.0, 2.0, 1.0, 0.5, 0.0]
    assert next_wait_s(50.0, 9.0, 0.25) == 60.0
