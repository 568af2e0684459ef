"""Every command of the page on training can be given as it stands, and names a recipe that can be."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
import typer

from specpanel.app.cli.root import app
from specpanel.core.training.algorithms import KINDS
from specpanel.core.training.extraction_plan import layers_for
from specpanel.core.training.folder import RunFolder
from specpanel.core.training.recipe_files import assignments, find_recipe, read_recipe
from specpanel.core.training.trainer_command import trainer_flags

PAGE = Path(__file__).parents[2] / "docs" / "training.md"


def commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("specpanel train")]


def test_every_algorithm_has_a_command() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(commands()) >= len(KINDS)
    for name in KINDS:
        assert name == "eagle3" or f"algorithm.type={name}" in text


@pytest.mark.parametrize("command", commands())
def test_the_command_is_understood_and_its_recipe_can_be(command: str) -> None:
    words = shlex.split(command)[2:]
    train = typer.main.get_command(app).commands["train"]  # type: ignore[attr-defined]
    given = train.make_context("train", words).params
    if given["name"] is None:
        return
    values = assignments(given["assignments"] or [])
    if given["steps"] is not None:
        values["trainer.steps"] = str(given["steps"])
    recipe = read_recipe(find_recipe(given["name"]), {"target.model": "/m", **values})
    assert recipe.algorithm.type in KINDS
    layers = layers_for(recipe.algorithm.target_layer_ids, 30)
    folder = RunFolder(Path("/run"))
    flags = trainer_flags(recipe, "/m", layers, folder, "http://127.0.0.1:9/v1", cpu=True)
    asked = dict(pairwise(flags))
    assert asked["--speculator-type"] == recipe.algorithm.type
    assert asked["--max-steps"] == str(recipe.trainer.steps)


def test_every_algorithm_has_a_page_of_its_own_with_its_usual_mistakes() -> None:
    text = PAGE.read_text(encoding="utf-8")
    parts = re.split(r"^### ", text.partition("## The algorithms")[2], flags=re.MULTILINE)[1:]
    pages = [part.partition("\n## ")[0] for part in parts]
    assert len(pages) == len(KINDS)
    assert [page[:20] for page in pages if "```sh" not in page or "Usual mistake" not in page] == []
