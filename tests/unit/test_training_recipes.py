"""Recipes: presets, files, and what is told of mistakes in them."""

from pathlib import Path

import pytest

from specpanel.core.errors import ConfigurationError
from specpanel.core.training.algorithms import KINDS
from specpanel.core.training.extraction_plan import layers_for
from specpanel.core.training.folder import RunFolder
from specpanel.core.training.recipe import Recipe
from specpanel.core.training.recipe_files import (
    PRESETS,
    assignments,
    find_recipe,
    read_recipe,
    recipe_names,
)
from specpanel.core.training.trainer_command import epochs_for, trainer_command, trainer_flags


def recipe(**changes: object) -> Recipe:
    return Recipe.model_validate({"target": {"model": "/models/t"}, **changes})


def flags(found: Recipe, *, cpu: bool = True) -> list[str]:
    layers = layers_for(found.algorithm.target_layer_ids, 30)
    folder = RunFolder(Path("/run"))
    return list(trainer_flags(found, "/models/t", layers, folder, "http://h:1/v1", cpu=cpu))


def value(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


@pytest.mark.parametrize("path", sorted(PRESETS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_preset_can_be_read(path: Path) -> None:
    assert read_recipe(path, {"target.model": "/models/t"}).name == path.stem
    assert path.stem in recipe_names()


def test_a_mistake_is_told_with_file_line_and_what_was_meant(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[target]\nmodel = "/m"\n\n[trainer]\nstepz = 3\n', encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        read_recipe(path)
    assert "mine.toml, line 5: trainer.stepz: there is no such setting" in str(caught.value)
    assert "steps" in caught.value.fix
    with pytest.raises(ConfigurationError, match=r"--set trainer\.steps: should be greater"):
        read_recipe(find_recipe("train-demo"), {"trainer.steps": "0"})


def test_a_recipe_that_is_not_there_names_what_comes_close() -> None:
    with pytest.raises(ConfigurationError) as caught:
        find_recipe("train-dem")
    assert "train-demo" in caught.value.fix
    with pytest.raises(ConfigurationError, match="no such setting"):
        assignments(["trainer.step=3"])


def test_another_algorithm_drops_the_settings_of_the_files_own() -> None:
    found = read_recipe(
        find_recipe("train-demo"), {"algorithm.type": "dflash", "algorithm.block_size": "4"}
    )
    assert found.algorithm.type == "dflash"
    assert found.algorithm.draft_tokens == 3


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"data": {"seq_length": 1024}}, "a pack must hold the longest row"),
        ({"target": {"model": "/m", "max_model_len": 512}}, "one more token"),
        ({"extraction": {"port": 8000}}, "must differ"),
        ({"target": {"model": "/m", "served_name": "x"}}, "by its path"),
        ({"algorithm": {"type": "eagle3", "target_layer_ids": [1, 2]}}, "exactly three layers"),
        ({"algorithm": {"type": "eagle3", "fc_norm": True, "norm_before_fc": True}}, "exclude"),
        ({"algorithm": {"type": "eagle4"}}, "eagle4"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        recipe(**changes)


def test_both_sides_get_the_same_layers() -> None:
    found = layers_for(None, 30)
    assert found.target == (2, 15, 27)
    assert found.written == (2, 15, 27, 30)
    assert layers_for(None, 4).written == (1, 2, 3, 4)


@pytest.mark.parametrize("layer", [0, 30, 78])
def test_a_layer_that_is_not_there_is_refused(layer: int) -> None:
    with pytest.raises(ConfigurationError, match=f"layer {layer} of a target of 30 layers"):
        layers_for((2, 15, layer), 30)


def test_on_a_cpu_the_trainer_gets_what_runs_there() -> None:
    words = flags(recipe())
    assert value(words, "--draft-attn-impl") == "sdpa"
    assert value(words, "--loss-implementation") == "eager"
    assert value(words, "--num-workers") == "0"
    assert value(words, "--optimizer") == "adamw"
    on_gpu = flags(recipe(), cpu=False)
    assert "--draft-attn-impl" not in on_gpu
    assert "--optimizer" not in on_gpu


def test_what_the_user_says_wins_over_what_a_cpu_needs() -> None:
    words = flags(recipe(trainer={"optimizer": "muon", "num_workers": 1}))
    assert value(words, "--optimizer") == "muon"
    assert value(words, "--num-workers") == "1"


def test_offline_training_asks_no_server() -> None:
    words = flags(recipe(extraction={"mode": "offline"}))
    assert value(words, "--on-missing") == "raise"
    assert value(words, "--hidden-states-path") == "/run/data/states"
    online = flags(recipe())
    assert value(online, "--on-missing") == "generate"
    assert value(online, "--hidden-states-path") != "/run/data/states"


def test_a_checkpoint_to_start_from_brings_its_own_shape() -> None:
    words = flags(
        recipe(
            algorithm={"type": "eagle3", "num_layers": 1, "full_attention_indices": [0]},
            trainer={"from_pretrained": "/ck"},
        )
    )
    assert value(words, "--from-pretrained") == "/ck"
    assert "--num-layers" not in words
    assert "--full-attention-indices" not in words


@pytest.mark.parametrize("name", KINDS)
def test_every_algorithm_names_its_draft_tokens_and_how_it_is_served(name: str) -> None:
    found = recipe(algorithm={"type": name})
    assert found.algorithm.draft_tokens >= 1
    kind = KINDS[name]
    assert (kind.serve_method is None) <= bool(kind.not_served)
    assert value(flags(found), "--speculator-type") == name


def test_draft_tokens_are_those_that_speculators_stores() -> None:
    # speculators_config.proposal_methods[0].speculative_tokens of its checkpoints.
    stored = {"eagle3": 3, "peagle": 8, "dflash": 15, "dflash2": 7, "dspark": 8, "xpress": 15}
    for name, tokens in stored.items():
        assert recipe(algorithm={"type": name}).algorithm.draft_tokens == tokens


def test_several_processes_go_through_torchrun() -> None:
    found = recipe(trainer={"processes": 4, "fsdp": True, "devices": "0,1,2,3"})
    words = tuple(flags(found, cpu=False))
    command = trainer_command(found, "/py", words, RunFolder(Path("/run")), cpu=False)
    assert command.argv[1:3] == ("-m", "torch.distributed.run")
    assert "--fsdp-shard" in command.argv
    assert command.environment["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"


@pytest.mark.parametrize(("steps", "per_epoch", "epochs"), [(30, 10, 3), (31, 10, 4), (1, 57, 1)])
def test_steps_become_epochs(steps: int, per_epoch: int, epochs: int) -> None:
    assert epochs_for(steps, per_epoch) == epochs
