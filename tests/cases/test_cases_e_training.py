"""Public reports about training drafters (Speculators, SpecForge, EAGLE): what a run must make of each."""

import asyncio
import dataclasses
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fakes.engine.workbench import wait_for
from fakes.training.workshop import Told, Workshop

from specpanel.core.engine.command import Command
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.errors import ConfigurationError, ExitCode, SpecpanelError
from specpanel.core.session.events import FindingMade, Launched
from specpanel.core.training.checks import check_recipe
from specpanel.core.training.conversations import read_lines, refuse_bad
from specpanel.core.training.dataset_checks import describe_rows, judge_rows
from specpanel.core.training.events import Saving, StepDone, TrainerEnded, TrainerStarted
from specpanel.core.training.extraction_plan import extracting, layers_for, whole_prompts
from specpanel.core.training.extraction_server import refuse_full
from specpanel.core.training.folder import RunFolder
from specpanel.core.training.progress import prediction
from specpanel.core.training.recipe import Recipe
from specpanel.core.training.stage import Workplace
from specpanel.core.training.token_rows import make_row
from specpanel.core.training.trainer_command import trainer_command


@pytest.fixture
def shop(tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    shop = Workshop(tmp_path / "shop", monkeypatch)
    yield shop
    assert shop.children() == []


def place(shop: Workshop, recipe: Recipe, *, platform: str = "cpu") -> Workplace:
    facts = InterpreterFacts(
        "/py", "3.11", "vllm", "0.32.0", platform, "serve", "/bin/vllm", frozenset()
    )
    return Workplace(
        recipe=recipe,
        folder=shop.folder,
        target=str(shop.target),
        vllm=facts,
        trainer=facts,
        emit=lambda event: None,
        interrupted=asyncio.Event(),
        hurry=threading.Event(),
    )


def found(shop: Workshop, **settings: object) -> dict[str, str]:
    """Findings of the recipe's checks on a machine with CUDA: severity by code."""
    platform = str(settings.pop("platform", "cpu"))
    for section, values in settings.items():
        shop.set(section, **values)  # type: ignore[arg-type]
    checks = check_recipe(place(shop, shop.recipe(), platform=platform))
    return {one.code: one.severity for one in checks}


def rows(prompt: int, answer: int) -> list[FindingMade]:
    made = [make_row(f"r{n}", range(prompt), range(answer), 10_000) for n in range(32)]
    facts = describe_rows(
        made, seq_length=10_000, pack_length=500, validation_share=0.1, draft_vocab_size=None
    )
    return list(judge_rows(facts, least_mask_share=0.02))


def test_e01_a_template_without_a_mask_blocks_and_a_thin_mask_warns() -> None:
    assert [(one.code, one.severity) for one in rows(100, 0)] == [("nothing-to-learn", "error")]
    assert [(one.code, one.severity) for one in rows(200, 2)] == [("few-trained-tokens", "warning")]
    assert rows(100, 50) == []


async def test_e02_a_draft_vocabulary_made_anew_is_not_put_under_an_old_drafter(
    shop: Workshop,
) -> None:
    shop.set("algorithm", draft_vocab_size=100)
    first = await shop.run()
    assert first.outcome is not None
    assert first.outcome.error is None
    shop.set("trainer", steps=20)
    shop.set("data", max_tokens=12)  # other rows, and with them another vocabulary
    told = await shop.run(resume=True)
    assert told.outcome is not None
    assert told.outcome.exit_code == ExitCode.USAGE
    assert "draft vocabulary" in str(told.outcome.error)
    assert told.of(TrainerStarted) == []


async def test_e04_a_mapping_that_lay_in_the_data_folder_is_never_picked_up(
    shop: Workshop,
) -> None:
    shop.folder.prepared.mkdir(parents=True)
    stale = shop.folder.prepared / "t2d-32.npy"
    np.save(stale, np.ones(32, bool))
    await shop.run("data")
    assert not stale.exists()


@pytest.mark.parametrize("layer", [78, 79, 0])
def test_e05_a_layer_that_is_the_last_or_beyond_is_refused_with_the_convention(layer: int) -> None:
    with pytest.raises(ConfigurationError) as caught:
        layers_for((2, 39, layer), 78)
    assert "Use layers from 1 to 77" in str(caught.value)
    assert layers_for((2, 39, 75), 78).written == (2, 39, 75, 78)


@pytest.mark.parametrize(
    ("version", "whole"),
    [("0.18.0", True), ("0.22.1", True), ("0.23.0", False), ("0.32.0+cpu", False), (None, False)],
)
def test_e07_prompts_stay_whole_where_chunks_spoilt_states(
    version: str | None, whole: bool
) -> None:
    assert bool(whole_prompts(version)) is whole
    command = extracting(Command(("vllm",), {}), layers_for(None, 30), {}, None, version)
    assert ("--no-enable-chunked-prefill" in command.argv) is whole


async def test_e08_states_of_another_vllm_are_not_mixed_in(shop: Workshop) -> None:
    shop.set("extraction", mode="offline")
    told = await shop.run("data", "extraction")
    assert told.outcome is not None
    facts = told.outcome.summary.stages[1].facts
    assert facts["vllm_version"] == "0.32.0"
    from specpanel.core.training.extraction_stage import ExtractionStage

    now = place(shop, shop.recipe())
    later = dataclasses.replace(now, vllm=dataclasses.replace(now.vllm, vllm_version="0.33.0"))
    stage = ExtractionStage()
    assert stage.depends_on(now) != stage.depends_on(later)


def test_e10_a_checkpoint_of_another_vocabulary_is_not_started_from(
    shop: Workshop, tmp_path: Path
) -> None:
    old = tmp_path / "old"
    old.mkdir()
    config = {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "speculators_config": {"algorithm": "eagle3", "verifier": {"name_or_path": "/x"}},
        "transformer_layer_config": {
            "model_type": "llama",
            "hidden_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "vocab_size": 32000,
        },
    }
    (old / "config.json").write_text(json.dumps(config), encoding="utf-8")
    codes = found(shop, trainer={"from_pretrained": str(old)})
    assert codes == {"start-of-another-target": "error"}
    config["speculators_config"] = {"algorithm": "dflash"}
    config["speculators_model_type"] = "dflash"
    (old / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert found(shop) == {"start-of-another-kind": "error"}


def test_e13_what_training_promises_is_told_for_every_position() -> None:
    promised = prediction({f"full_acc_{n}": 0.5 ** (n + 1) for n in range(3)})
    assert [round(one.unconditional, 3) for one in promised.positions] == [0.5, 0.25, 0.125]
    assert promised.acceptance_length == pytest.approx(1.875)


async def test_e11_a_head_that_fails_in_vllms_own_trial_is_told_and_the_others_are_measured(
    shop: Workshop,
) -> None:
    words = "mat1 and mat2 shapes cannot be multiplied (2048x1728 and 576x576)"
    shop.behave("FAKE_SERVING", broken=["step-000012"], words=words)
    told = await shop.run("data", "extraction", "train", "evaluate")
    assert told.outcome is not None
    assert told.outcome.error is None
    found = {one.step: one for one in told.outcome.summary.evaluations}
    assert found[12].failure is not None
    assert "Log:" in found[12].failure
    assert found[5].heldout is not None
    assert told.outcome.summary.served_best is not None
    assert told.outcome.summary.served_best.step == 10


async def test_e16_running_out_of_memory_names_the_length_first(shop: Workshop) -> None:
    shop.behave("FAKE_TRAINER", fail="torch.OutOfMemoryError: CUDA out of memory.")
    told = await shop.run()
    assert told.outcome is not None
    assert told.outcome.error is not None
    assert told.outcome.error.fix.startswith("Lower trainer.total_seq_len first")


def test_e17_what_would_fill_the_disk_stops_before_it_begins(tmp_path: Path) -> None:
    with pytest.raises(SpecpanelError, match="are to stay free"):
        refuse_full(tmp_path / "states", 10**18, 0.05, "the hidden states of the data")


async def test_e19_one_signal_saves_and_only_a_second_ends_without(shop: Workshop) -> None:
    shop.set("trainer", save_timeout_s=60)
    shop.behave("FAKE_TRAINER", hang_at=3)
    told = Told()
    training = shop.training(told)
    running = asyncio.create_task(training.run())
    await asyncio.to_thread(wait_for, lambda: len(told.of(StepDone)) >= 3, "three steps")
    training.interrupt()
    await asyncio.to_thread(wait_for, lambda: told.of(Saving), "the save")
    assert told.of(Saving)[0].deadline_s == 60
    assert told.of(TrainerEnded) == []  # it is waited for
    training.interrupt()
    outcome = await running
    assert outcome.exit_code == ExitCode.INTERRUPTED
    assert told.of(TrainerEnded)[0].exit_code == -9


def test_e20_the_trainers_console_is_wide_and_no_figure_is_read_from_it() -> None:
    recipe = Recipe.model_validate({"target": {"model": "/m"}})
    command = trainer_command(recipe, "/py", (), RunFolder(Path("/run")), cpu=True)
    assert int(command.environment["COLUMNS"]) >= 1000
    assert command.environment["NO_COLOR"] == "1"
    assert command.environment["SPECPANEL_METRICS"] != str(RunFolder(Path("/run")).log)


def test_e22_every_shape_of_rows_is_read_or_named() -> None:
    lines = [
        b'{"messages":[{"role":"user","content":"2+2?"},{"role":"assistant","content":"4"}]}',
        b'{"conversations":[{"from":"human","value":"2+2?"},{"from":"gpt","value":"4"}]}',
        b'[{"from":"human","value":"x"},{"from":"gpt","value":"y"}]',
        b'{"conversations":[{"from":"human","value":"x"}]}',
        b'{"messages":[{"role":"tool","content":"{}"},'
        b'{"role":"assistant","content":null,"tool_calls":[]}]}',
        b'{"text":"plain"}',
        b"",
        b'{"messages": [',
    ]
    reading = read_lines(lines, "rows", answers_needed=True)
    assert len(reading.conversations) == 2
    assert reading.converted == 1
    assert [one.line for one in reading.skipped] == [3, 4, 5, 6, 8]
    assert [one.line for one in reading.skipped if one.unreadable] == [8]
    assert (reading.tool_rows, reading.blank) == (1, 1)
    with pytest.raises(ConfigurationError, match="1 of 7 lines cannot be read"):
        refuse_bad(reading, "rows")


@pytest.mark.parametrize(
    ("server", "trainer", "shared"),
    [("0,1,2", "0", True), ("0", "1", False), (None, "0", True), (None, None, True)],
)
def test_e23_a_gpu_that_server_and_trainer_share_is_told(
    shop: Workshop, server: str | None, trainer: str | None, shared: bool
) -> None:
    if server is not None:
        shop.set("engine", environment={"CUDA_VISIBLE_DEVICES": server})
    shop.set("trainer", devices=trainer)
    assert ("devices-shared" in found(shop, platform="cuda")) is shared


async def test_e25_next_to_nothing_accepted_with_a_reduced_vocabulary_points_at_head_and_map(
    shop: Workshop,
) -> None:
    shop.set("algorithm", draft_vocab_size=100)
    shop.set("evaluation", checkpoints=1)
    shop.behave("FAKE_SERVING", accepts={"step-000012": [0] * 30 + [1]})
    told = await shop.run("data", "extraction", "train", "evaluate")
    assert told.outcome is not None
    (found,) = told.outcome.summary.evaluations
    (check,) = [one for one in found.checks if one.cause == "draft vocabulary"]
    assert check.state == "differs"
    assert "d2t" in check.text
    assert "lm_head" in check.text


def test_fast_mtp_is_refused_for_a_target_without_mtp_layers(shop: Workshop) -> None:
    recipe = shop.recipe().model_copy(
        update={
            "algorithm": Recipe.model_validate(
                {"target": {"model": "/m"}, "algorithm": {"type": "mtp"}}
            ).algorithm
        }
    )
    codes = {one.code: one.severity for one in check_recipe(place(shop, recipe))}
    assert codes["mtp-not-possible"] == "error"


async def test_a_speculators_that_is_not_there_is_named_before_anything_starts(
    shop: Workshop,
) -> None:
    import sys

    bare = shop.root / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n', encoding="utf-8")
    bare.chmod(0o755)
    shop.set("trainer", python=str(bare))
    told = await shop.run()
    assert told.outcome is not None
    assert "there is no Speculators in" in str(told.outcome.error)
    assert told.of(Launched) == []
