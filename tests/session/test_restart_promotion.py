"""Promotion by restart: a new server beside the old one, and only the better of the two is left."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fakes.training.workshop import Workshop
from ports import free_port

from specpanel.core.engine.process import is_running, running_servers, stop_server
from specpanel.core.engine.registry import ServerRecord
from specpanel.core.errors import ConfigurationError
from specpanel.core.session.served import Served, start_served
from specpanel.core.settings.profile import Profile, Traffic
from specpanel.core.training import audit
from specpanel.core.training.events import PromotionTried
from specpanel.core.training.measuring import single_questions
from specpanel.core.training.promote import PromotionPlan
from specpanel.core.training.promote_restart import RestartPromoting, with_drafter
from specpanel.core.training.promotion_way import PromotionRun, find_server

WEAK, STRONG = [0, 1, 0], [2, 3, 2]


@pytest.fixture
def shop(tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    shop = Workshop(tmp_path / "shop", monkeypatch)
    yield shop
    for record in running_servers():
        stop_server(record, 1.0)
    assert shop.children() == []


def profile(shop: Workshop, checkpoint: Path, *, swappable: bool) -> Profile:
    made = shop.recipe().drafting_profile(str(shop.target), "eagle3", str(checkpoint), 3)
    engine = made.engine.model_copy(update={"port": free_port(), "swappable": swappable})
    return made.model_copy(update={"engine": engine, "name": "bench"})


@asynccontextmanager
async def serving(profile: Profile) -> AsyncIterator[ServerRecord]:
    """A server as ``specpanel run --keep-running`` leaves it."""
    served: Served = await start_served(profile, lambda _: None, asyncio.Event())
    assert served.launch is not None
    await served.launch.until_ready(asyncio.Event())
    yield running_servers()[0]


def plan(shop: Workshop, record: ServerRecord, candidate: Path) -> PromotionPlan:
    prompts = single_questions(shop.folder.heldout)
    return PromotionPlan(
        record.name, record.url, None, candidate, prompts, Traffic(max_tokens=9, concurrency=2)
    )


def served_drafters() -> list[str]:
    return [
        Path(getattr(record.settings.drafter, "model", "none")).name
        for record in running_servers()
        if record.settings is not None
    ]


async def test_a_better_drafter_takes_over_and_the_old_server_ends(shop: Workshop) -> None:
    shop.behave("FAKE_SERVING", accepts={"step-000005": WEAK, "step-000012": STRONG})
    await shop.run("data", "extraction", "train")
    old, new = (shop.folder.checkpoints / f"step-{n:06d}" for n in (5, 12))
    async with serving(profile(shop, old, swappable=False)) as record:
        # auto: nothing can be swapped into this server, so that a new one takes its place
        done = await PromotionRun(plan(shop, record, new), record).run()
        assert (done.result, done.way) == ("promoted", "restart"), done.reason
        assert not is_running(record)
        assert served_drafters() == ["step-000012"]
        assert done.url_after == running_servers()[0].url
        assert done.gain is not None
        assert done.gain.before == pytest.approx(4 / 3)
        assert [one.result for one in audit.read()] == ["failed", "on trial", "promoted"]

        # The stage of a run finds the server by its name, and its drafter no worse than its own candidate.
        shop.set("promotion", server=running_servers()[0].name)
        told = await shop.run("promote", resume=True)
        (tried,) = told.of(PromotionTried)
        assert tried.promotion.result == "kept the old one"
        assert served_drafters() == ["step-000012"]


async def test_a_worse_drafter_goes_and_the_old_server_never_stopped(shop: Workshop) -> None:
    shop.behave("FAKE_SERVING", accepts={"step-000005": STRONG, "step-000012": WEAK})
    await shop.run("data", "extraction", "train")
    old, new = (shop.folder.checkpoints / f"step-{n:06d}" for n in (5, 12))
    async with serving(profile(shop, old, swappable=True)) as record:
        done = await RestartPromoting(plan(shop, record, new), record).run()
        assert done.result == "rolled back"
        assert running_servers()[0].id == record.id
        assert served_drafters() == ["step-000005"]
        assert find_server(record.url)[2] is not None

        # One that does not even start leaves it alone, too.
        shop.behave("FAKE_SERVING", broken=["step-000012"], words="no room")
        with pytest.raises(Exception, match="Log:"):
            await RestartPromoting(plan(shop, record, new), record).run()
        assert served_drafters() == ["step-000005"]
        assert [one.result for one in audit.read()] == ["on trial", "rolled back", "failed"]


def test_settings_of_the_same_method_stay_with_the_new_drafter(shop: Workshop) -> None:
    folder = shop.root / "candidate"
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLMEagle3"]}')
    before = Profile.model_validate(
        {
            "name": "p",
            "target": {"model": str(shop.target)},
            "drafter": {"method": "eagle3", "model": "/old", "k": 4},
        }
    )
    after = with_drafter(before, folder)
    assert after.drafter.model_dump(exclude_unset=True) == {
        "method": "eagle3",
        "model": str(folder),
        "k": 4,
    }


def test_the_layer_of_a_fastmtp_training_is_no_drafter_before_it_is_stitched(
    shop: Workshop,
) -> None:
    folder = shop.root / "candidate"
    folder.mkdir()
    said = {"algorithm": "mtp", "proposal_methods": [{"speculative_tokens": 3}]}
    content = {"speculators_model_type": "mtp", "speculators_config": said}
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
    serving = Profile.model_validate({"name": "p", "target": {"model": str(shop.target)}})
    with pytest.raises(ConfigurationError, match="stitch-mtp") as refused:
        with_drafter(serving, folder)
    assert "stitched copy" in refused.value.fix
