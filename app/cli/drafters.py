"""``specpanel drafters``: what each needs and where it runs, and which fit a target."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specpanel.app.cli import options
from specpanel.app.cli.report import guarded, talk

if TYPE_CHECKING:
    from specpanel.core.matching.fit import Match
    from specpanel.core.settings.drafters.table import DrafterFacts

HELP = "List the drafters, show one, or find those that fit a target."
app = typer.Typer(no_args_is_help=False, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="NAME", autocompletion=options._methods)]


@app.callback(invoke_without_command=True)
@guarded
def list_drafters(context: typer.Context, as_json: options.Json = False) -> None:
    """List every drafter: what it needs, where it runs, and what it works with."""
    if context.invoked_subcommand is not None:
        return
    from specpanel.app.cli.plain_drafters import table_lines
    from specpanel.core.monitor.recording import line
    from specpanel.core.settings.drafters.table import FACTS, READ_FROM

    if as_json:
        for facts in FACTS.values():
            typer.echo(line("drafter", _content(facts)))
        return
    for text in table_lines(tuple(FACTS.values()), READ_FROM):
        typer.echo(text)


@app.command(help="Show one drafter: where it works, on what condition, and every setting it has.")
@guarded
def show(name: Name, as_json: options.Json = False) -> None:
    from specpanel.app.cli.plain_drafters import fact_lines
    from specpanel.core.errors import ConfigurationError
    from specpanel.core.monitor.recording import line
    from specpanel.core.settings.complaints import closest
    from specpanel.core.settings.drafters import METHODS, canonical, name_note
    from specpanel.core.settings.drafters.names import NO_DRAFTERS
    from specpanel.core.settings.drafters.table import FACTS, READ_FROM
    from specpanel.core.settings.rows import rows

    if name in NO_DRAFTERS:
        raise ConfigurationError(f"{name} is no drafter: {NO_DRAFTERS[name]}")
    method = canonical(name)
    if method not in FACTS:
        raise ConfigurationError(f"there is no drafter {name}", closest(name, METHODS))
    if note := name_note(name):
        talk(f"# {note}")
    facts = FACTS[method]
    table = {"target": {"model": "m"}, "drafter": {"method": method}}
    settings = [row for row in rows(table) if row.section == "drafter" and row.name != "method"]
    if as_json:
        listed = [
            {
                "name": row.name,
                "kind": row.kind,
                "choices": row.choices,
                "bounds": row.bounds,
                "default": row.default,
                "required": row.required,
                "help": row.help,
                "reference": row.reference,
            }
            for row in settings
        ]
        typer.echo(line("drafter", {**_content(facts), "settings": listed}))
        return
    for text in fact_lines(facts, settings, READ_FROM):
        typer.echo(text)


@app.command(
    "for", help="Rank what fits a target: drafters on disk, its MTP layers, model-free ones."
)
@guarded
def for_target(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL_DIR",
            help="Folder of the target, or the id of one in the Hugging Face cache.",
        ),
    ],
    scan: Annotated[
        list[Path] | None,
        typer.Option("--scan", metavar="DIR", help="Folder to look for drafters in; repeatable."),
    ] = None,
    python: options.Python = None,
    as_json: options.Json = False,
) -> None:
    from specpanel.app.cli.plain_drafters import match_lines, run_command, target_line
    from specpanel.core.checkpoints.config import read_config
    from specpanel.core.engine.interpreter import probe_interpreter, resolve_python
    from specpanel.core.matching.fit import ranked
    from specpanel.core.matching.scan import hub_cache
    from specpanel.core.matching.scan import scan as scan_folders
    from specpanel.core.monitor.recording import line

    target = read_config(_target_folder(model))
    found = scan_folders([path.expanduser() for path in scan or ()], hub_cache(os.environ))
    facts = probe_interpreter(resolve_python(python or os.environ.get("SPECPANEL_PYTHON")))
    device = None if facts.platform == "unknown" else facts.platform
    packages = None if facts.distribution is None else facts.packages
    matches = ranked(target, found.candidates, device, packages)
    if as_json:
        for rank, match in enumerate(matches, start=1):
            typer.echo(line("drafter_match", _match(rank, match, run_command(match, model))))
    else:
        typer.echo(target_line(target))
        for text in match_lines(matches, model):
            typer.echo(text)
        where = "" if device is None else f" on {device}"
        talk(f"{len(found.candidates)} checkpoints looked at{where}, by their config.json alone")
        if not scan:
            talk("Say --scan DIR to look into a folder of drafters, too.")
    for problem in found.unreadable:
        talk(f"skipped: {problem}")
    if not found.complete:
        talk(
            "Not every folder was looked into: there are too many. Name a smaller one with --scan."
        )


def _target_folder(model: str) -> Path:
    from specpanel.core.checkpoints.config import looks_like_hub_id
    from specpanel.core.demo.model import demo_model_folder
    from specpanel.core.errors import ConfigurationError
    from specpanel.core.matching.scan import cached_folder, hub_cache
    from specpanel.core.session.targets import DEMO_MODELS, DEMO_PREFIX

    if model.removeprefix(DEMO_PREFIX) in DEMO_MODELS and model.startswith(DEMO_PREFIX):
        return demo_model_folder().resolve()
    folder = Path(model).expanduser()
    if not folder.exists() and looks_like_hub_id(model):
        cached = cached_folder(hub_cache(os.environ), model)
        if cached is None:
            raise ConfigurationError(
                f"there is no folder {model}, and no such model in the Hugging Face cache",
                "Give the folder of a checkpoint, or download it first.",
            )
        return cached.resolve()
    return folder.resolve()


def _content(facts: "DrafterFacts") -> dict[str, Any]:
    from dataclasses import asdict

    from specpanel.core.settings.drafters.table import READ_FROM

    return {**asdict(facts), "read_from": f"vLLM {READ_FROM}"}


def _match(rank: int, match: "Match", command: list[str]) -> dict[str, Any]:
    from dataclasses import asdict

    content = {name: value for name, value in asdict(match).items() if name != "group"}
    return {"rank": rank, **content, "command": command if match.fits != "no" else None}
