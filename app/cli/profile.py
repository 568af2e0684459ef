"""``specpanel profile``: list, show, write, check."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specpanel.app.cli import options
from specpanel.app.cli.report import guarded, leave, row, say, talk
from specpanel.core.printable import cells, one_line, padded

if TYPE_CHECKING:
    from specpanel.core.settings.profile import Profile

HELP = "List, show, write and check profiles."
app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="PROFILE", autocompletion=options._profile_names)]


@app.command("list", help="Every profile: yours first, then the presets.")
@guarded
def list_profiles(as_json: options.Json = False) -> None:
    from specpanel.core.monitor.recording import line
    from specpanel.core.settings.files import catalogue

    files = catalogue()
    width = max((cells(one_line(file.name)) for file in files), default=0)
    drafters = [_drafter(file.profile) for file in files if file.profile is not None]
    column = max(map(len, drafters), default=0)
    for file in files:
        if as_json:
            content = {
                "name": file.name,
                "origin": file.origin,
                "path": str(file.path),
                "drafter": file.profile.drafter.method if file.profile else None,
                "model": file.profile.target.model if file.profile else None,
                "description": file.profile.description if file.profile else None,
                "error": str(file.error) if file.error else None,
            }
            typer.echo(line("profile", content))
        elif file.profile is None:
            name = padded(one_line(file.name), width)
            row(f"{name}  {file.origin:<6}  ✗ broken: {one_line(str(file.error), 4096)}")
        else:
            name = padded(one_line(file.name), width)
            text = f"{name}  {file.origin:<6}  {_drafter(file.profile):<{column}}"
            row(f"{text}  {one_line(file.profile.description, 400)}".rstrip())


def _drafter(profile: "Profile") -> str:
    k = profile.drafter.draft_tokens
    return profile.drafter.method + (f" K={k}" if k else "")


@app.command(help="Print a profile as TOML, with --full every setting and its help.")
@guarded
def show(
    name: Name,
    full: Annotated[bool, typer.Option("--full", help="Defaults too, each with its help.")] = False,
    as_json: options.Json = False,
) -> None:
    from specpanel.core.monitor.recording import line
    from specpanel.core.settings.files import find_profile, profile_text, read_profile

    profile = _without_secrets(read_profile(find_profile(name)))
    if as_json:
        typer.echo(line("profile", profile.model_dump(mode="json", exclude={"schema_version"})))
    elif full:
        typer.echo(_annotated(profile))
    else:
        typer.echo(profile_text(profile), nl=False)


def _without_secrets(profile: "Profile") -> "Profile":
    from specpanel.core.engine.command import redacted, redacted_argv

    engine = profile.engine
    shown = {
        "environment": {key: redacted(key, value) for key, value in engine.environment.items()},
        "arguments": redacted_argv(engine.arguments),
    }
    return profile.model_copy(update={"engine": engine.model_copy(update=shown)})


def _annotated(profile: "Profile") -> str:
    """Every setting with its value and, behind it, its help."""
    from pydantic import BaseModel

    lines: list[str] = []
    for section in type(profile).model_fields:
        part = getattr(profile, section)
        if not isinstance(part, BaseModel):
            continue
        lines.append(f"[{section}]")
        for key, info in type(part).model_fields.items():
            value = getattr(part, key)
            shown = "(vLLM decides)" if value is None else repr(value)
            lines.append(f"  {key} = {shown}  # {info.description or ''}".rstrip(" #"))
    return "\n".join(lines)


@app.command(help="Write a new profile, from another one and --set.")
@guarded
def new(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    source: Annotated[
        str | None,
        typer.Option("--from", help="Profile to copy.", autocompletion=options._profile_names),
    ] = None,
    model: options.Model = None,
    drafter: options.DrafterMethod = None,
    draft_model: options.DraftModelOption = None,
    k: options.DraftTokens = None,
    assignments: options.Assignments = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a profile of that name.")] = False,
) -> None:
    from pydantic import ValidationError

    from specpanel.core.errors import ConfigurationError
    from specpanel.core.settings.files import write_profile
    from specpanel.core.settings.profile import Profile

    flags = {"--model": model, "--drafter": drafter, "--draft-model": draft_model, "--k": k}
    model_is_set = any(text.partition("=")[0] == "target.model" for text in assignments or ())
    base = source or (None if model or model_is_set else "demo-ngram")
    profile = options.resolved_profile(base, flags, assignments, (), environment=False)
    try:
        named = Profile.model_validate({**profile.model_dump(), "name": name})
    except ValidationError:
        raise ConfigurationError(
            f"{name[:80]!r} cannot be the name of a profile",
            "Use up to 64 letters, digits, dots, dashes and underscores, beginning with a letter or digit.",
        ) from None
    typer.echo(str(write_profile(named, overwrite=force)))
    if source is None and base is not None:
        talk(
            f"made from the preset {base}, with its model; --from PROFILE or --model names another"
        )


@app.command(help="Check profiles; all of them where none is named.")
@guarded
def validate(names: Annotated[list[str] | None, typer.Argument(metavar="PROFILE…")] = None) -> None:
    from specpanel.core.errors import ConfigurationError
    from specpanel.core.settings.files import catalogue, find_profile, read_profile

    paths = [find_profile(name) for name in names] if names else [f.path for f in catalogue()]
    wrong: list[ConfigurationError] = []
    for path in paths:
        try:
            read_profile(path)
            talk(f"✓ {path}")
        except ConfigurationError as error:
            wrong.extend(error.every or (error,))
    for each in wrong[:-1]:
        say(each)
    if wrong:
        leave(wrong[-1])


@app.command(help="Print where your profiles lie, or where one does.")
@guarded
def path(name: Annotated[str | None, typer.Argument(metavar="PROFILE")] = None) -> None:
    from specpanel.core.settings.files import find_profile
    from specpanel.core.settings.paths import profiles_folder

    found: Path = find_profile(name) if name else profiles_folder()
    typer.echo(str(found))
