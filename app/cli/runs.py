"""``specpanel runs``: past runs, listed, shown, compared, deleted."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specpanel.app.cli import options
from specpanel.app.cli.report import guarded, row, talk
from specpanel.core.printable import cells, one_line

if TYPE_CHECKING:
    from specpanel.core.session.history import PastRun
    from specpanel.core.session.history_comparison import RunComparison

HELP = "List, show, compare and delete recorded runs."
app = typer.Typer(no_args_is_help=False, rich_markup_mode=None)


Run = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Its name, the beginning of it, or last.",
        autocompletion=options.recording_names,
    ),
]


@app.callback(invoke_without_command=True)
@guarded
def list_runs(context: typer.Context, as_json: options.Json = False) -> None:
    """List recorded runs, newest first, and how much room they take."""
    if context.invoked_subcommand is not None:
        return
    from specpanel.app.cli.plain_runs import run_line
    from specpanel.app.run_words import size_text
    from specpanel.core.monitor.recording import line
    from specpanel.core.session.history import past_runs, recordings_folder, total_bytes

    runs = past_runs()
    if as_json:
        for run in runs:
            typer.echo(line("run", _table(run)))
        return
    width = max((cells(one_line(run.id)) for run in runs), default=0)
    for run in runs:
        row(run_line(run, width))
    if runs:
        many = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
        talk(f"{many}, {size_text(total_bytes(runs))} in {recordings_folder()}")
    else:
        talk("No run is recorded yet: specpanel run PROFILE and the panel record by themselves.")


@app.command(help="Show what a recorded run found.")
@guarded
def show(name: Run, as_json: options.Json = False) -> None:
    from specpanel.app.cli.plain_runs import run_text
    from specpanel.core.monitor.recording import line
    from specpanel.core.session.history import find_run

    run = find_run(name)
    typer.echo(line("run", _table(run)) if as_json else run_text(run))
    _refuse_broken(run)


@app.command(help="Compare two recorded runs: B against A.")
@guarded
def compare(
    a: Annotated[str, typer.Argument(metavar="A", autocompletion=options.recording_names)],
    b: Annotated[str, typer.Argument(metavar="B", autocompletion=options.recording_names)],
    as_json: options.Json = False,
) -> None:
    from specpanel.app.cli.plain_runs import comparison_text
    from specpanel.core.monitor.recording import line
    from specpanel.core.session.history import find_run
    from specpanel.core.session.history_comparison import compare as compare_runs

    found = compare_runs(find_run(a), find_run(b))
    typer.echo(line("runs_compared", _sides(found)) if as_json else comparison_text(found))


@app.command(help="Delete a recorded run; asks first.")
@guarded
def delete(
    name: Run, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
) -> None:
    from specpanel.app.run_words import size_text
    from specpanel.core.errors import ConfigurationError
    from specpanel.core.session.history import delete_run, find_run, recordings_folder

    run = find_run(name)
    if run.path.parent != recordings_folder():
        raise ConfigurationError(
            f"{run.path} does not lie in the folder of recordings", "Delete it by hand."
        )
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigurationError(
                "deleting asks first, and there is no terminal to ask on", "Say --yes."
            )
        if not typer.confirm(f"Delete {run.id} ({size_text(run.size_bytes)})?", err=True):
            talk("Nothing was deleted.")
            raise typer.Exit(1)
    delete_run(run)
    typer.echo(f"deleted {run.id}")


def _refuse_broken(run: "PastRun") -> None:
    """A recording that cannot be read is shown with its reason, and is a failure."""
    if run.ended == "broken":
        raise typer.Exit(1)


def _table(run: "PastRun") -> dict[str, Any]:
    from dataclasses import asdict

    from specpanel.core.engine.registry import table_without_secrets

    settings = None if run.settings is None else table_without_secrets(run.settings)
    figures = None if run.figures is None else asdict(run.figures)
    plain = ("size_bytes", "name", "ended", "why", "started_unix", "duration_s", "model", "drafter")
    return {
        "id": run.id,
        "path": str(run.path),
        **{field: getattr(run, field) for field in plain},
        "draft_tokens": run.draft_tokens,
        "vllm_version": run.vllm_version,
        "figures": figures,
        "settings": settings,
    }


def _sides(found: "RunComparison") -> dict[str, Any]:
    from dataclasses import asdict

    changes = None if found.settings is None else [asdict(change) for change in found.settings]
    return {
        "a": found.a.id,
        "b": found.b.id,
        "rows": [asdict(row) for row in found.rows],
        "settings": changes,
        "notes": found.notes,
    }
