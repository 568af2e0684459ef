"""Every command of the page on training can be given as it stands, and names a recipe that can be."""

from itertools import pairwise
from pathlib import Path

import pytest
import typer
from fakes.training.tutorial import PAGE, Shown, algorithm_pages, lessons, shown

from specpanel.app.cli.root import app
from specpanel.core.training.algorithms import KINDS
from specpanel.core.training.extraction_plan import layers_for
from specpanel.core.training.folder import RunFolder
from specpanel.core.training.records import STAGE_ORDER
from specpanel.core.training.trainer_command import trainer_flags

WITH_A_RECIPE = [one for one in shown() if one.given()["name"] is not None]


@pytest.mark.parametrize("one", WITH_A_RECIPE, ids=lambda one: one.command)
def test_the_command_is_understood_and_its_recipe_can_be(one: Shown) -> None:
    recipe = one.recipe()
    assert recipe.algorithm.type in KINDS
    layers = layers_for(recipe.algorithm.target_layer_ids, 30)
    folder = RunFolder(Path("/run"))
    flags = trainer_flags(recipe, "/m", layers, folder, "http://127.0.0.1:9/v1", cpu=True)
    asked = dict(pairwise(flags))
    assert asked["--speculator-type"] == recipe.algorithm.type
    assert asked["--max-steps"] == str(recipe.trainer.steps)


def test_every_algorithm_has_a_page_of_its_own_with_its_usual_mistakes() -> None:
    pages = algorithm_pages()
    assert len(pages) == len(KINDS)
    assert [name for name, text in pages.items() if "Usual mistake" not in text] == []
    assert {name.partition("-")[0] for name in lessons()} == set(KINDS)


def test_the_page_names_every_option_and_every_stage() -> None:
    text = PAGE.read_text(encoding="utf-8")
    train = typer.main.get_command(app).commands["train"]  # type: ignore[attr-defined]
    options = {word for one in train.params for word in one.opts if word.startswith("--")}
    assert {"--stage", "--online"} <= options
    assert [word for word in sorted(options) if f"{word}" not in text] == []
    assert [name for name in STAGE_ORDER if f"| `{name}` |" not in text] == []
