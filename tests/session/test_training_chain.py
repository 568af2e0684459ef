"""The chain of stages over a server and a trainer that keep to the real protocols and compute nothing."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.engine.workbench import wait_for
from fakes.training.workshop import HIDDEN, LAYERS, Told, Workshop

from specpanel.core.errors import ExitCode
from specpanel.core.session.events import FindingMade, Launched, Note
from specpanel.core.traffic.prompts import read_prompts
from specpanel.core.training import target_client
from specpanel.core.training.events import (
    CheckpointKept,
    LoaderKnown,
    Saving,
    StageBegan,
    StageSkipped,
    StepDone,
    TrainerEnded,
    TrainerStarted,
    TrainingSummaryMade,
    ValidationDone,
    training_line,
)
from specpanel.core.training.token_rows import read_rows


@pytest.fixture
def shop(tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    shop = Workshop(tmp_path / "shop", monkeypatch)
    yield shop
    assert shop.children() == []


def notes(told: Told) -> str:
    return "\n".join(note.text for note in told.of(Note))


def error(told: Told) -> str:
    assert told.outcome is not None
    return str(told.outcome.error)


async def until(condition, what: str) -> None:
    await asyncio.to_thread(wait_for, condition, what)


async def test_the_whole_chain_leaves_a_drafter_and_nothing_running(shop: Workshop) -> None:
    told = await shop.run()
    assert told.outcome is not None
    assert told.outcome.error is None
    summary = told.outcome.summary
    assert [one.stage for one in summary.stages] == ["data", "extraction", "train"]
    assert [one.stage for one in told.of(StageBegan)] == ["data", "extraction", "train"]
    assert summary.steps == 12
    assert summary.best is not None
    assert summary.best.step == 12
    assert (summary.best.path / "model.safetensors").is_file()
    assert summary.best.prediction is not None
    assert summary.best.prediction.acceptance_length > 1.2
    assert [one.step for one in summary.checkpoints] == [5, 10, 12]
    assert [one.step for one in told.of(StepDone)] == list(range(1, 13))
    assert told.of(LoaderKnown)[0].last_step == 12
    assert isinstance(told.events[-1], TrainingSummaryMade)
    assert not shop.states.exists()  # ours, and gone


async def test_every_event_is_a_line_of_json_and_in_the_recording(shop: Workshop) -> None:
    told = await shop.run()
    recorded = (shop.folder.root / "events.ndjson").read_text(encoding="utf-8").splitlines()
    assert recorded == [training_line(event) for event in told.events]
    lines = [json.loads(line) for line in recorded]
    assert all(line["schema_version"] == 1 for line in lines)
    assert [line["kind"] for line in (lines[0], lines[-1])] == ["recipe", "summary"]
    assert json.loads(shop.folder.summary.read_text(encoding="utf-8"))["steps"] == 12


async def test_held_out_prompts_are_never_trained_on(shop: Workshop) -> None:
    await shop.run("data")
    held = read_prompts(shop.folder.heldout)
    trained = read_prompts(shop.folder.prompts)
    assert (len(trained), len(held)) == (24, 6)
    assert not {one.text for one in held} & {one.text for one in trained}
    assert len({one.kind for one in held}) >= 4
    assert {row.id for row in read_rows(shop.folder.rows)} == {one.id for one in trained}


async def test_the_data_set_is_in_the_order_of_the_prompts(shop: Workshop) -> None:
    await shop.run("data")
    asked = [prompt.id for prompt in read_prompts(shop.folder.prompts)]
    by_id = {row.id: list(row.input_ids) for row in read_rows(shop.folder.rows)}
    rows = (shop.folder.prepared / "data-00000.arrow").read_text().splitlines()
    assert [json.loads(row)["input_ids"] for row in rows] == [by_id[name] for name in asked]


async def test_offline_all_states_are_on_disk_and_no_server_runs_while_training(
    shop: Workshop,
) -> None:
    shop.set("extraction", mode="offline")
    told = await shop.run()
    assert told.outcome is not None
    assert told.outcome.error is None
    files = sorted(shop.folder.states.glob("hs_*.safetensors"))
    assert len(files) == 24
    rows = [
        json.loads(line)["input_ids"]
        for line in (shop.folder.prepared / "data-00000.arrow").read_text().splitlines()
    ]
    for number in (0, 11, 23):
        data = (shop.folder.states / f"hs_{number}.safetensors").read_bytes()
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        assert header["hidden_states"]["shape"] == [len(rows[number]), LAYERS, HIDDEN]
    kinds = [type(event).__name__ for event in told.events]
    assert "Launched" not in kinds[kinds.index("TrainerStarted") :]
    assert kinds.count("Stopped") == kinds.count("Launched") == 2


async def test_a_second_run_takes_every_result_and_more_steps_go_on(shop: Workshop) -> None:
    shop.set("extraction", mode="offline")
    await shop.run()
    again = await shop.run(resume=True)
    assert [one.stage for one in again.of(StageSkipped)] == ["data", "extraction", "train"]
    assert again.of(Launched) == []
    shop.set("trainer", steps=20)
    more = await shop.run(resume=True)
    assert [one.stage for one in more.of(StageSkipped)] == ["data", "extraction"]
    assert more.of(TrainerStarted)[0].resumed_from_step == 12
    assert more.of(StepDone)[0].step == 13
    assert more.outcome is not None
    assert more.outcome.summary.steps == 20


async def test_other_data_does_every_stage_again(shop: Workshop) -> None:
    await shop.run("data")
    shop.set("data", max_tokens=12)
    told = await shop.run("data", resume=True)
    assert told.of(StageSkipped) == []
    assert all(row.trained <= 12 for row in read_rows(shop.folder.rows))


async def test_an_interrupt_saves_and_a_resume_ends_what_was_begun(
    shop: Workshop, tmp_path: Path
) -> None:
    shop.behave("FAKE_TRAINER", gate={"step": 7, "file": str(tmp_path / "gate")})
    told = Told()
    training = shop.training(told)
    running = asyncio.create_task(training.run())
    await until(lambda: len(told.of(StepDone)) >= 7, "seven steps")
    training.interrupt()
    outcome = await running
    assert outcome.exit_code == ExitCode.INTERRUPTED
    assert outcome.summary.resumable
    assert len(told.of(Saving)) == 1
    assert told.of(TrainerEnded)[0].reason == "interrupted"
    (tmp_path / "gate").touch()
    more = await shop.run(resume=True)
    assert more.of(TrainerStarted)[0].resumed_from_step in (7, 8)
    assert more.outcome is not None
    assert more.outcome.summary.steps == 12


async def test_an_interrupt_while_the_target_answers_leaves_its_rows(shop: Workshop) -> None:
    told = Told()
    training = shop.training(told)
    running = asyncio.create_task(training.run())
    await until(lambda: told.of(Launched), "the server")
    training.interrupt()
    outcome = await running
    assert outcome.exit_code == ExitCode.INTERRUPTED
    assert (await shop.run("data", resume=True)).outcome is not None


async def test_a_trainer_killed_by_9_is_told_and_gone_on_from(
    shop: Workshop, tmp_path: Path
) -> None:
    shop.behave("FAKE_TRAINER", die_at=8, died=str(tmp_path / "died"))
    told = await shop.run()
    assert "the trainer ended with exit code -9" in error(told)
    assert "--resume" in error(told)
    more = await shop.run(resume=True)
    assert more.of(TrainerStarted)[0].resumed_from_step == 5
    assert more.outcome is not None
    assert more.outcome.error is None
    assert more.outcome.summary.steps == 12


async def test_a_save_cut_in_half_is_put_aside(shop: Workshop) -> None:
    await shop.run()
    newest = shop.folder.save / "2" / "model.safetensors"
    newest.write_bytes(newest.read_bytes()[:20])
    shop.set("trainer", steps=20)
    more = await shop.run(resume=True)
    assert "is not whole and was put aside" in notes(more)
    assert more.of(TrainerStarted)[0].resumed_from_step == 10


async def test_a_loss_that_is_no_number_ends_training_and_keeps_what_was_good(
    shop: Workshop,
) -> None:
    shop.behave("FAKE_TRAINER", nan_at=7, step_s=0.05)
    told = await shop.run()
    assert "the loss became NaN at step 8" in error(told)
    assert [one.step for one in shop.folder.kept()] == [5]
    assert told.of(Saving) == []  # nothing good to save
    shop.behave("FAKE_TRAINER")
    more = await shop.run(resume=True)
    assert more.of(TrainerStarted)[0].resumed_from_step == 5


async def test_training_ends_early_when_validation_gets_no_better(shop: Workshop) -> None:
    shop.set("trainer", steps=100, patience=2)
    shop.behave("FAKE_TRAINER", losses=[3.0, 2.0, 2.5, 2.5, 1.0], step_s=0.05)
    told = await shop.run()
    assert told.of(TrainerEnded)[0].reason == "best"
    assert told.outcome is not None
    assert told.outcome.summary.best is not None
    assert told.outcome.summary.best.step == 10
    assert len(told.of(ValidationDone)) in (4, 5)
    assert sum(one.best for one in shop.folder.kept()) == 1


async def test_waiting_for_states_is_told_with_what_helps(shop: Workshop) -> None:
    shop.set("trainer", steps=30)
    shop.behave("FAKE_TRAINER", waiting=0.8)
    told = await shop.run()
    (found,) = [one for one in told.of(FindingMade) if one.code == "training-starved"]
    assert "80% of the last 20 steps" in found.text


async def test_a_trainer_that_fails_says_why(shop: Workshop) -> None:
    shop.behave("FAKE_TRAINER", fail="torch.OutOfMemoryError: 3 GiB")
    told = await shop.run()
    assert "exit code 1: torch.OutOfMemoryError: 3 GiB" in error(told)
    assert told.outcome is not None
    assert told.outcome.summary.resumable


async def test_a_trainer_that_does_not_save_in_time_is_ended(
    shop: Workshop, tmp_path: Path
) -> None:
    shop.set("trainer", save_timeout_s=0.5)
    shop.behave("FAKE_TRAINER", hang_at=3)
    told = Told()
    training = shop.training(told)
    running = asyncio.create_task(training.run())
    await until(lambda: len(told.of(StepDone)) >= 3, "three steps")
    training.interrupt()
    outcome = await running
    assert outcome.exit_code == ExitCode.INTERRUPTED
    assert told.of(TrainerEnded)[0].exit_code == -signal.SIGKILL


async def test_an_extraction_server_that_dies_is_started_once_more(
    shop: Workshop, tmp_path: Path
) -> None:
    shop.behave("FAKE_TRAINER", gate={"step": 7, "file": str(tmp_path / "gate")})
    told = Told()
    running = asyncio.create_task(shop.training(told).run())
    await until(lambda: len(told.of(StepDone)) >= 7, "seven steps")
    os.kill(told.of(Launched)[-1].pid, signal.SIGKILL)
    await until(lambda: len(told.of(TrainerStarted)) == 2, "the trainer's second start")
    (tmp_path / "gate").touch()
    outcome = await running
    assert outcome.error is None
    assert outcome.summary.steps == 12
    assert told.of(TrainerStarted)[1].resumed_from_step in (7, 8)
    assert [one.reason for one in told.of(TrainerEnded)] == ["server", "done"]
    assert "started once more" in notes(told)


@pytest.mark.parametrize("when", ["die_after", "die_writing"])
async def test_offline_a_server_that_dies_is_started_once_more_and_nothing_is_fetched_twice(
    shop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(target_client, "_LOCK_WAIT_S", 2.0)
    shop.set("extraction", mode="offline", concurrency=2)
    await shop.run("data")
    shop.behave("FAKE_STATES", **{when: 12}, died=str(tmp_path / "died"))
    told = await shop.run("extraction", resume=True)
    assert error(told) == "None"
    assert len(told.of(Launched)) == 2
    assert len(list(shop.folder.states.glob("hs_*.safetensors"))) == 24


async def test_a_server_that_dies_for_good_stops_with_everything_saved(shop: Workshop) -> None:
    shop.set("extraction", mode="offline", concurrency=2)
    await shop.run("data")
    shop.behave("FAKE_STATES", die_after=12)
    told = await shop.run("extraction", resume=True)
    assert told.outcome is not None
    assert told.outcome.error is not None
    assert len(told.of(Launched)) == 2, told.outcome.error
    assert list(shop.folder.states.glob("hs_*.safetensors"))


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"nan": True}, "not finite"),
        ({"shift": True}, "other tokens"),
        ({"layers": 6}, "shape"),
        ({"hidden": 32}, "shape"),
    ],
)
async def test_wrong_hidden_states_stop_before_the_first_step(
    shop: Workshop, how: dict[str, object], reason: str
) -> None:
    shop.behave("FAKE_STATES", **how)
    told = await shop.run()
    assert reason in error(told)
    assert told.of(TrainerStarted) == []


async def test_a_prompt_that_is_refused_is_named_and_many_stop(shop: Workshop) -> None:
    shop.set("data", concurrency=1)
    shop.behave("FAKE_STATES", refuse=20)
    told = await shop.run("data")
    assert "no row, the server refuses" in notes(told)
    assert error(told) == "None"
    shop.set("data", max_tokens=20)
    shop.behave("FAKE_STATES", refuse=3)
    told = await shop.run("data", resume=True)
    assert "prompts failed" in error(told)


@pytest.mark.parametrize(
    ("how", "reason"), [("fail", "ValueError: the disk is full"), ("lose", "wrote 21 rows of 24")]
)
async def test_a_tool_that_loses_rows_is_found_out(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch, how: str, reason: str
) -> None:
    monkeypatch.setenv("FAKE_PREPARE", how)
    assert reason in error(await shop.run("data"))


async def test_e22_a_data_set_that_lay_there_is_not_taken_for_the_new_one(shop: Workshop) -> None:
    shop.folder.prepared.mkdir(parents=True)
    (shop.folder.prepared / "data-00000.arrow").write_text('{"input_ids": [1]}\n')
    told = await shop.run("data")
    assert error(told) == "None"
    assert len((shop.folder.prepared / "data-00000.arrow").read_text().splitlines()) == 24


async def test_flags_that_the_trainer_refuses_stop_before_anything_is_started(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_TRAINER_REFUSES", "1")
    told = await shop.run()
    assert "the trainer refuses its settings" in error(told)
    assert told.outcome is not None
    assert told.outcome.exit_code == ExitCode.USAGE
    assert told.of(Launched) == []


async def test_given_answers_become_rows_by_the_targets_own_template(
    shop: Workshop, tmp_path: Path
) -> None:
    chat = [
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": "Because."},
        {"role": "user", "content": "Really?"},
        {"role": "assistant", "content": "Yes."},
    ]
    lines = [
        json.dumps({"messages": [{**chat[0], "content": f"Why {n}?"}, *chat[1:]]})
        for n in range(14)
    ]
    path = tmp_path / "chats.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    shop.set("data", source=str(path), answers="given", heldout=2)
    told = await shop.run("data")
    assert error(told) == "None"
    rows = list(read_rows(shop.folder.rows))
    assert len(rows) == 24  # two answers of each of twelve
    assert all(0 < row.trained < len(row.input_ids) for row in rows)


async def test_a_relative_target_is_stored_by_its_whole_path(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop.root)
    shop.set("target", model="target")
    told = await shop.run()
    argv = told.of(TrainerStarted)[0].argv
    assert argv[argv.index("--verifier-name-or-path") + 1] == str(shop.target)
    assert told.of(CheckpointKept)[0].checkpoint.target == str(shop.target)
