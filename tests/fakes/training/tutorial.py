"""The commands that docs/training.md shows, and the recipe that each of them makes."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from specpanel.app.cli.root import app
from specpanel.core.training.recipe import Recipe
from specpanel.core.training.recipe_files import assignments, find_recipe, read_recipe

PAGE = Path(__file__).parents[3] / "docs" / "training.md"
NO_MODEL = "/m"


@dataclass(frozen=True)
class Shown:
    """A command of the page; ``section`` is the heading that it stands under."""

    section: str
    command: str

    def given(self, *more: str) -> dict[str, Any]:
        """What the command line makes of it, and of words behind it; ``more`` has the last word."""
        train = typer.main.get_command(app).commands["train"]  # type: ignore[attr-defined]
        context = train.make_context("train", [*shlex.split(self.command)[2:], *more])
        return dict(context.params)

    def recipe(self, *more: str) -> Recipe:
        """The recipe that it is about."""
        given = self.given(*more)
        values = assignments(given["assignments"] or [])
        if given["steps"] is not None:
            values["trainer.steps"] = str(given["steps"])
        values["target.model"] = given["model"] or NO_MODEL
        return read_recipe(find_recipe(given["name"]), values)


def shown() -> list[Shown]:
    """All of them, in the order of the page."""
    found, section = [], ""
    inside = False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside = line == "```sh"
        elif inside and line.startswith("specpanel train"):
            found.append(Shown(section, line.partition("  #")[0].strip()))
        elif not inside and (heading := re.match(r"#+ (.*)", line)):
            section = heading[1]
    return found


def algorithm_pages() -> dict[str, str]:
    """The page of each algorithm, by its heading."""
    text = PAGE.read_text(encoding="utf-8").partition("\n## The algorithms\n")[2]
    parts = re.split(r"^### ", text.partition("\n## ")[0], flags=re.MULTILINE)[1:]
    return dict(part.split("\n", 1) for part in parts)


def lessons() -> dict[str, Shown]:
    """The commands of the algorithms' pages, by algorithm and number."""
    pages = algorithm_pages()
    found: dict[str, Shown] = {}
    for one in shown():
        if one.section in pages:
            kind = one.recipe().algorithm.type
            number = 1 + sum(name.startswith(f"{kind}-") for name in found)
            found[f"{kind}-{number}"] = one
    return found
