"""Kept checkpoints are served and measured on prompts that training never saw. Over servers of the tests."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.engine.workbench import wait_for
from fakes.training.workshop import Told, Workshop

from specpanel.app.cli.train_progress import summary_lines
from specpanel.core.errors import ExitCode
from specpanel.core.session.events import FindingMade, Launched, Note
from specpanel.core.training.events import CheckpointMeasured, Progressed
from specpanel.core.training.records import Evaluation

WHOLE = ("data", "extraction", "train", "evaluate")


@pytest.fixture
def shop(tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    shop = Workshop(tmp_path / "shop", monkeypatch)
    yield shop
    assert shop.children() == []


def evaluations(told: Told) -> dict[int, Evaluation]:
    return {one.evaluation.step: one.evaluation for one in told.of(CheckpointMeasured)}


def drafting(told: Told) -> list[str]:
    return [one.name for one in told.of(Launched) if "-drafts" in one.name]


async def test_every_checkpoint_is_measured_with_one_server(shop: Workshop) -> None:
    accepts = {"step-000005": [0, 1], "step-000010": [1, 1], "step-000012": [2, 1]}
    shop.behave("FAKE_SERVING", accepts=accepts)
    told = await shop.run(*WHOLE)
    assert told.outcome is not None
    assert told.outcome.error is None
    found = evaluations(told)
    lengths = {step: one.heldout and one.heldout.acceptance_length for step, one in found.items()}
    assert lengths == {5: 1.5, 10: 2.0, 12: 2.5}
    assert [one.way for one in found.values()] == ["started", "swapped", "swapped"]
    assert len(drafting(told)) == 1
    heldout = found[12].heldout
    assert heldout is not None
    assert (heldout.prompts, heldout.failed, heldout.drafts) == (6, 0, 12)
    assert heldout.interval is not None
    rates = [(one.position, one.rate.estimate) for one in heldout.positions]
    assert rates == [(0, 1.0), (1, 0.5), (2, 0.0)]
    assert heldout.positions[0].predicted == pytest.approx(0.24)

    # The best one is measured on the prompts of its own validation, too: the gap is of the same prompts.
    assert found[12].validation is not None
    assert found[12].validation.prompts == 3
    assert found[12].gap == pytest.approx(2.5 / found[12].predicted - 1)
    assert found[5].validation is None

    summary = told.outcome.summary
    assert [one.step for one in summary.evaluations] == [5, 10, 12]
    assert summary.served_best == found[12]
    assert summary.minutes is not None
    text = summary_lines(summary)
    assert "acceptance length 2.50 (2.50 … 2.50) on 6 prompts" in text
    assert told.of(Progressed)[-1].done == 6


async def test_what_was_measured_stands_and_the_last_line_holds_it(shop: Workshop) -> None:
    await shop.run(*WHOLE)
    again = await shop.run(*WHOLE, resume=True)
    assert drafting(again) == []
    line = json.loads((shop.folder.root / "events-2.ndjson").read_text().splitlines()[-1])
    assert (line["kind"], line["served_best"]["heldout"]["prompts"]) == ("summary", 6)
    assert line["served_best"]["predicted"] == line["best"]["prediction"]["acceptance_length"]


async def test_only_the_best_checkpoints_are_measured_where_that_was_asked_for(
    shop: Workshop,
) -> None:
    shop.set("trainer", steps=14)
    shop.behave("FAKE_TRAINER", losses=[3.0, 1.0, 2.0])
    shop.set("evaluation", checkpoints=2)
    told = await shop.run(*WHOLE)
    assert list(evaluations(told)) == [10, 14]


async def test_a_large_gap_names_its_causes(shop: Workshop) -> None:
    shop.set("data", temperature=0.7)
    shop.behave("FAKE_SERVING", accepts={f"step-{n:06d}": [0, 0, 0] for n in (5, 10, 12)})
    told = await shop.run(*WHOLE)
    best = evaluations(told)[12]
    assert best.gap is not None
    assert best.gap < -0.05
    states = {one.cause: one.state for one in best.checks}
    assert states["chat template"] == "same"
    assert states["answers"] == "differs"
    assert states["sliding window"] == "same"
    assert best.checks[0].state == "differs"


async def test_a_drafter_that_vllm_serves_nowhere_is_told_and_is_no_failure(shop: Workshop) -> None:
    shop.set("algorithm", type="xpress")
    told = await shop.run(*WHOLE)
    assert told.outcome is not None
    assert told.outcome.error is None
    assert "not-evaluated" in [one.code for one in told.of(FindingMade)]
    assert told.outcome.summary.served_best is None


async def test_an_interrupt_keeps_what_was_measured_and_leaves_no_server(shop: Workshop) -> None:
    told = Told()
    training = shop.training(told, *WHOLE)
    running = asyncio.create_task(training.run())
    await asyncio.to_thread(wait_for, lambda: told.of(CheckpointMeasured), "a checkpoint measured")
    training.interrupt()
    outcome = await running
    assert outcome.exit_code == ExitCode.INTERRUPTED
    assert shop.folder.evaluations() != ()
    assert outcome.summary.resumable


async def test_a_checkpoint_of_another_shape_gets_a_server_of_its_own(shop: Workshop) -> None:
    shop.behave("FAKE_SERVING", refuses=["step-000005"])
    told = await shop.run(*WHOLE)
    assert told.outcome is not None
    assert told.outcome.error is None
    assert evaluations(told)[5].way == "started"
    assert evaluations(told)[10].way == "swapped"
    assert any("a server of its own" in note.text for note in told.of(Note))


async def test_mtp_layers_are_put_into_a_copy_of_the_target_before_they_are_served(
    shop: Workshop,
) -> None:
    path = shop.target / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "model_type": "qwen3", "num_nextn_predict_layers": 1}))
    shop.set("algorithm", type="mtp")
    shop.set("evaluation", checkpoints=1)
    told = await shop.run(*WHOLE)
    assert told.outcome is not None
    assert told.outcome.error is None
    (found,) = told.outcome.summary.evaluations
    assert (found.way, found.failure) == ("started", None)
    copy = shop.folder.root / "stitched" / "step-000012"
    assert (copy / "model.safetensors").is_file()
    launched = [one for one in told.of(Launched) if "-drafts" in one.name]
    assert str(copy) in launched[0].argv
