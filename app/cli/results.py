"""``specpanel results``: what experiments found, listed, shown, exported."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specpanel.app.cli import options
from specpanel.app.cli.report import guarded, talk

if TYPE_CHECKING:
    from specpanel.core.lab.store import Experiment

HELP = "List, show and export what experiments found."
app = typer.Typer(no_args_is_help=False, rich_markup_mode=None)


def _names(incomplete: str) -> list[str]:
    from specpanel.core.lab.store import Store, store_path

    if not store_path().exists():
        return []
    with Store() as store:
        return [one.id for one in store.experiments() if one.id.startswith(incomplete)]


def _formats(incomplete: str) -> list[str]:
    from specpanel.core.lab.export import FORMATS

    return [name for name in FORMATS if name.startswith(incomplete)]


Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Its name, the beginning of it, or last.", autocompletion=_names
    ),
]


@app.callback(invoke_without_command=True)
@guarded
def results(context: typer.Context, as_json: options.Json = False) -> None:
    if context.invoked_subcommand is None:
        _list(as_json)


@app.command("list", help="List experiments, newest first.")
@guarded
def list_results(as_json: options.Json = False) -> None:
    _list(as_json)


def _list(as_json: bool) -> None:
    from specpanel.app.cli.plain_lab import experiment_line
    from specpanel.core.lab.store import Store, store_path
    from specpanel.core.monitor.recording import line

    found: tuple[Experiment, ...] = ()
    if store_path().exists():
        with Store() as store:
            found = store.experiments()
    for one in found:
        typer.echo(line("experiment", _head(one)) if as_json else experiment_line(one))
    if not found and not as_json:
        talk(
            "There are no results yet: specpanel run, compare, breakeven, tune and parity keep theirs here."
        )


@app.command(help="Show what an experiment found.")
@guarded
def show(name: Name, as_json: options.Json = False) -> None:
    from specpanel.app.cli.plain_lab import experiment_text
    from specpanel.core.lab.store import Store
    from specpanel.core.monitor.recording import line

    with Store() as store:
        found = store.find(name)
        runs = store.runs(found.id)
    if as_json:
        table = {**_head(found), "result": found.result, "runs": [_run(run) for run in runs]}
        typer.echo(line("experiment", table))
    else:
        typer.echo(experiment_text(found))


@app.command(help="Delete what an experiment found, with all that it measured.")
@guarded
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without being asked.")] = False,
) -> None:
    from specpanel.core.errors import ConfigurationError
    from specpanel.core.lab.store import Store

    with Store() as store:
        found = store.find(name)
        if not yes:
            raise ConfigurationError(
                f"{found.id} ({found.title}) would be deleted for good", "Say --yes to do it."
            )
        store.delete(found.id)
    talk(f"deleted {found.id}")


@app.command(help="Write an experiment out: json, csv (a row a request), markdown or html.")
@guarded
def export(
    name: Name,
    form: Annotated[
        str,
        typer.Option(
            "--format", "-f", help="json, csv, markdown or html.", autocompletion=_formats
        ),
    ] = "json",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write; standard output where absent."),
    ] = None,
) -> None:
    from specpanel.core.errors import ConfigurationError, SpecpanelError
    from specpanel.core.lab.export import exported
    from specpanel.core.lab.store import Store

    with Store() as store:
        text = exported(store, store.find(name), form)
    if out is None:
        typer.echo(text, nl=False)
        return
    if not out.absolute().parent.is_dir():
        raise ConfigurationError(
            f"there is no folder {out.absolute().parent}", "Make it first, or write elsewhere."
        )
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SpecpanelError(f"{out} cannot be written: {error.strerror or error}") from None
    talk(f"wrote {out}")


def _head(found: "Experiment") -> dict[str, Any]:
    from dataclasses import asdict

    table = asdict(found)
    table.pop("result")
    table["experiment"] = table.pop("kind")  # ``kind`` is the line's
    return table


def _run(run: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(run)
