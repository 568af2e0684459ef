"""Promotion: only what is shown to be better stays, everything is written down. Against a small server."""

import json
from pathlib import Path

import pytest
from fakes.swapping_engine import SwappingEngine, Worker

from specpanel.core.errors import SpecpanelError
from specpanel.core.settings.profile import Traffic
from specpanel.core.traffic.records import Prompt
from specpanel.core.training import audit
from specpanel.core.training.promote import (
    Promoting,
    PromotionPlan,
    heldout_prompts,
    predicted_length,
)
from specpanel.core.training.swap import CheckpointRefusedError
from specpanel.core.training.worker_calls import SwapError

OLD, NEW = "/drafters/old", "/drafters/new"
WEAK, STRONG = (0, 1, 0, 0), (2, 3, 1, 2)
PROMPTS = tuple(Prompt(f"p-{number}", "own", "say yes") for number in range(8))


def plan(engine: SwappingEngine, **changes: object) -> PromotionPlan:
    traffic = Traffic(max_tokens=9, concurrency=2)
    base = {"server": "bench", "url": engine.url, "model": None, "candidate": Path(NEW)}
    return PromotionPlan(**{**base, "prompts": PROMPTS, "traffic": traffic, **changes})


def results() -> list[str]:
    return [one.result for one in audit.read()]


async def test_a_better_drafter_stays() -> None:
    async with SwappingEngine(steps={OLD: WEAK, NEW: STRONG}) as engine:
        done = await Promoting(plan(engine)).run()
        assert engine.workers[0].folder == NEW
        assert engine.workers[0].before is None, "the old weights are still in memory"
        assert engine.asked.count(f"chat with {OLD}") == engine.asked.count(f"chat with {NEW}") == 8
    assert done.result == "promoted"
    assert done.gain is not None
    assert (done.gain.before, done.gain.candidate) == (1.25, 3.0)
    assert (done.fingerprint_before, done.fingerprint_after) == (OLD, NEW)
    assert results() == ["on trial", "promoted"]


@pytest.mark.parametrize(
    ("candidate", "result"), [(WEAK, "rolled back"), (STRONG, "kept the old one")]
)
async def test_what_is_worse_or_no_better_is_taken_back(
    candidate: tuple[int, ...], result: str
) -> None:
    async with SwappingEngine(steps={OLD: STRONG, NEW: candidate}) as engine:
        done = await Promoting(plan(engine)).run()
        assert engine.workers[0].folder == OLD
        assert engine.asked[-2:] == ["resume", "drafter_status"]
    assert done.result == result
    assert done.fingerprint_after == OLD
    assert results() == ["on trial", result]


async def test_measuring_alone_brings_a_better_one_back_too() -> None:
    async with SwappingEngine(steps={OLD: WEAK, NEW: STRONG}) as engine:
        done = await Promoting(plan(engine, only_measure=True)).run()
        assert engine.workers[0].folder == OLD
    assert done.result == "measured"
    assert done.gain is not None
    assert done.gain.candidate == 3.0


async def test_a_refused_checkpoint_is_written_down_before_anything_is_measured() -> None:
    worker = Worker(0, fault="prepare", reason="not in the checkpoint: fc.weight")
    async with SwappingEngine([worker], steps={OLD: WEAK}) as engine:
        with pytest.raises(CheckpointRefusedError):
            await Promoting(plan(engine)).run()
        assert not any(asked.startswith("chat") for asked in engine.asked)
    [line] = audit.read()
    assert (line.result, line.paused_s) == ("refused", None)
    assert "fc.weight" in line.reason


async def test_a_failing_copy_is_written_down() -> None:
    async with SwappingEngine([Worker(0, fault="commit")], steps={OLD: WEAK}) as engine:
        with pytest.raises(SwapError):
            await Promoting(plan(engine)).run()
        assert engine.workers[0].folder == OLD
    assert results() == ["failed"]


async def test_an_interrupt_during_the_trial_brings_the_old_drafter_back() -> None:
    async with SwappingEngine(steps={OLD: WEAK, NEW: STRONG}) as engine:
        promoting = Promoting(plan(engine), lambda text: told(text))

        def told(text: str) -> None:
            if text.startswith("swapped in"):
                promoting.interrupt()

        done = await promoting.run()
        assert engine.workers[0].folder == OLD
    assert done.result == "interrupted"
    assert results() == ["on trial", "interrupted"]


async def test_a_candidate_that_reports_nothing_is_taken_back() -> None:
    async with SwappingEngine(steps={OLD: WEAK}) as engine:
        with pytest.raises(SpecpanelError, match="does not report what it accepts"):
            await Promoting(plan(engine)).run()
        assert engine.workers[0].folder == OLD
    assert results() == ["on trial", "failed"]


def test_the_runs_own_heldout_prompts_and_prediction_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints" / "step-000003"
    folder.mkdir(parents=True)
    assert predicted_length(folder) is None
    assert len(heldout_prompts(folder)[0]) == 80
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "heldout.jsonl").write_text('{"id": "h-1", "text": "held out"}\n')
    found, source = heldout_prompts(folder)
    assert [prompt.id for prompt in found] == ["h-1"]
    assert source.endswith("heldout.jsonl")
    record = {
        "path": str(folder),
        "step": 3,
        "epoch": 0,
        "algorithm": "eagle3",
        "draft_tokens": 3,
        "target": "/t",
        "prediction": {"acceptance_length": 1.9, "positions": [], "formula": "f"},
        "validation_loss": None,
    }
    (folder / "checkpoint.json").write_text(json.dumps(record))
    assert predicted_length(folder) == 1.9
