"""Every command of the page on training can be given as it stands, and names a recipe that can be."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from specpanel.app.cli.root import app
from specpanel.core.training.algorithms import KINDS
from specpanel.core.training.recipe_files import assignments, find_recipe, read_recipe

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
