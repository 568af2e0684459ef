"""``specpanel train``: from prompts to a drafter, without a terminal."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specpanel.app.cli import options
from specpanel.app.cli.report import guarded, say, talk

if TYPE_CHECKING:
    from specpanel.core.training.chain import TrainingPlan
    from specpanel.core.training.recipe import Recipe

HELP = (
    "Train a drafter for a target: its own answers, its hidden states, Speculators' trainer. "
    "Without a recipe, list what there is."
)


def _recipes(incomplete: str) -> list[str]:
    from specpanel.core.training.recipe_files import recipe_names

    return [name for name in recipe_names() if name.startswith(incomplete)]


def _stage_names(incomplete: str) -> list[str]:
    from specpanel.core.training.records import STAGE_ORDER

    return [name for name in STAGE_ORDER if name.startswith(incomplete)]


@guarded
def train(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE",
            help="Name of a recipe, or a .toml file.",
            autocompletion=_recipes,
            show_default=False,
        ),
    ] = None,
    stage: Annotated[
        list[str] | None,
        typer.Option(
            "--stage", help="Only this stage; may be repeated.", autocompletion=_stage_names
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Optimiser steps.")] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with this recipe's newest run, or that in --folder."),
    ] = False,
    redo: Annotated[
        bool, typer.Option("--redo", help="Do stages again though nothing they depend on changed.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Folder of the run; one of its own otherwise.")
    ] = None,
    promote: Annotated[
        str | None,
        typer.Option(
            "--promote",
            metavar="SERVER",
            help="Then put what served best to work in this running server (name, port or address), if it is "
            "better than its drafter.",
            autocompletion=options._server_names,
        ),
    ] = None,
    from_pretrained: Annotated[
        str | None,
        typer.Option(
            "--from-pretrained",
            metavar="FOLDER",
            help="Drafter to start from: an earlier checkpoint, or one of others, which is converted.",
        ),
    ] = None,
    online: Annotated[
        bool,
        typer.Option(
            "--online",
            help="Go on in rounds beside a running server (--watch): traffic, training, promotion; bounded "
            "by the recipe's online section, ended by Ctrl-C.",
        ),
    ] = False,
    watch: Annotated[
        str | None,
        typer.Option(
            "--watch",
            metavar="SERVER",
            help="The server of --online (name, port or address), started with engine.swappable.",
            autocompletion=options._server_names,
        ),
    ] = None,
    model: options.Model = None,
    python: options.Python = None,
    trainer_python: Annotated[
        str | None,
        typer.Option("--trainer-python", help="Interpreter of the environment with Speculators."),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Any setting, for example trainer.lr=0.0005."
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    if name is None:
        _list(as_json)
        return
    given = {
        "trainer.steps": steps,
        "target.model": model,
        "engine.python": python,
        "trainer.python": trainer_python,
        "trainer.from_pretrained": from_pretrained,
        "promotion.server": promote,
    }
    recipe = _recipe(name, given, assignments or [])
    if online or watch is not None:
        if resume or redo or stage or watch is None or not online:
            raise _only_online()
        _go_on(recipe, watch, folder, as_json=as_json)
        return
    _fly(_plan(recipe, stage, folder, resume, redo), as_json=as_json)


def _recipe(name: str, given: dict[str, int | str | None], words: list[str]) -> "Recipe":
    from specpanel.core.training.recipe_files import assignments, find_recipe, read_recipe

    typed = {key: str(value) for key, value in given.items() if value is not None}
    return read_recipe(find_recipe(name), {**assignments(words), **typed})


def _plan(
    recipe: "Recipe", stages: list[str] | None, folder: Path | None, resume: bool, redo: bool
) -> "TrainingPlan":
    from specpanel.core.errors import ConfigurationError
    from specpanel.core.settings.complaints import closest
    from specpanel.core.training.chain import STAGES, TrainingPlan

    unknown = [name for name in stages or [] if name not in STAGES]
    if unknown:
        raise ConfigurationError(f"there is no stage {unknown[0]}", closest(unknown[0], STAGES))
    if stages and "data" not in stages and not resume and folder is None:
        raise ConfigurationError(
            f"--stage {stages[0]} needs the data of an earlier run",
            "Say --resume, or name its --folder.",
        )
    chosen = tuple(name for name in STAGES if stages and name in stages)
    return TrainingPlan(recipe, chosen, folder, resume, redo)


def _list(as_json: bool) -> None:
    from specpanel.core.errors import ConfigurationError
    from specpanel.core.monitor.recording import line
    from specpanel.core.training.recipe_files import find_recipe, recipe_names, summary_of

    for name in recipe_names():
        try:
            algorithm, description = summary_of(find_recipe(name))
        except ConfigurationError as error:
            algorithm, description = None, f"cannot be read: {error.message}"
        if as_json:
            content = {"name": name, "algorithm": algorithm, "description": description}
            typer.echo(line("recipe", content))
        else:
            typer.echo(f"{name:<16} {algorithm or '?':<8} {description}")


def _only_online() -> Exception:
    from specpanel.core.errors import ConfigurationError

    return ConfigurationError(
        "--online and --watch belong together, and go without --stage, --resume and --redo",
        "Say: specpanel train RECIPE --online --watch SERVER.",
    )


def _go_on(recipe: "Recipe", server: str, folder: Path | None, *, as_json: bool) -> None:
    """Continuous training with signals in place; ends with 130 where it was interrupted."""
    import asyncio

    from specpanel.app.cli.signals import on_stop_signals
    from specpanel.app.cli.train_progress import TrainingJsonPrinter, TrainingPlainPrinter
    from specpanel.core.training.continuous import Continuous

    place = None if folder is None else folder.expanduser().absolute()

    async def whole() -> str:
        listener = TrainingJsonPrinter() if as_json else TrainingPlainPrinter()
        continuous = Continuous(recipe, server, place, listener)
        on_stop_signals(continuous.interrupt)
        return await continuous.run()

    if asyncio.run(whole()) == "interrupted":
        raise typer.Exit(130)


def _fly(plan: "TrainingPlan", *, as_json: bool) -> None:
    """Run the plan with signals in place, and end with its exit status."""
    import asyncio

    from specpanel.app.cli.signals import on_stop_signals
    from specpanel.app.cli.train_progress import TrainingJsonPrinter, TrainingPlainPrinter
    from specpanel.core.training.chain import Training, TrainingOutcome

    async def whole() -> TrainingOutcome:
        training = Training(plan, TrainingJsonPrinter() if as_json else TrainingPlainPrinter())
        on_stop_signals(training.interrupt)
        return await training.run()

    outcome = asyncio.run(whole())
    if outcome.error is not None:
        say(outcome.error)
    if outcome.summary.resumable and not as_json:
        talk(f"go on with: specpanel train {plan.recipe.name} --resume")
    if outcome.exit_code:
        raise typer.Exit(int(outcome.exit_code))
