"""The tree of commands, and what ``specpanel`` does without one."""

from typing import Annotated

import typer

from specpanel.app.cli import (
    breakeven,
    check,
    command,
    compare,
    demo,
    devices,
    doctor,
    drafters,
    mla,
    options,
    parity,
    plot,
    profile,
    promote,
    ps,
    results,
    run,
    runs,
    stop,
    train,
    tune,
    watch,
)

app = typer.Typer(
    name="specpanel",
    help="A control panel for speculative decoding on vLLM. Without a command it opens the panel.",
    no_args_is_help=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("run", help=run.HELP)(run.run)
app.command("watch", help=watch.HELP)(watch.watch)
app.command("plot", help=plot.HELP)(plot.plot)
app.command("demo", help=demo.HELP)(demo.demo)
app.command("check", help=check.HELP)(check.check)
app.command("command", help=command.HELP)(command.command)
app.add_typer(drafters.app, name="drafters", help=drafters.HELP)
app.add_typer(profile.app, name="profile", help=profile.HELP)
app.add_typer(runs.app, name="runs", help=runs.HELP)
app.command("compare", help=compare.HELP)(compare.compare)
app.command("breakeven", help=breakeven.HELP)(breakeven.breakeven)
app.command("tune", help=tune.HELP)(tune.tune)
app.command("parity", help=parity.HELP)(parity.parity)
app.add_typer(results.app, name="results", help=results.HELP)
app.add_typer(mla.app, name="mla", help=mla.HELP)
app.command("train", help=train.HELP)(train.train)
app.command("promote", help=promote.HELP)(promote.promote)
app.command("ps", help=ps.HELP)(ps.ps)
app.command("stop", help=stop.HELP)(stop.stop)
app.command("devices", help=devices.HELP)(devices.devices)
app.command("doctor", help=doctor.HELP)(doctor.doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"specpanel {version('specpanel')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    no_mouse: options.NoMouse = False,
) -> None:
    if context.invoked_subcommand is None:
        from specpanel.app.cli.panel import open_panel

        open_panel(mouse=not no_mouse)
    elif context.obj and context.invoked_subcommand not in ("run", "command", "check"):
        raise typer.BadParameter(
            f"arguments for vLLM after -- mean nothing to specpanel {context.invoked_subcommand}"
        )
