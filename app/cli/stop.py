"""``specpanel stop``: end servers that specpanel started."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from specpanel.app.cli import options
from specpanel.app.cli.report import guarded, talk

if TYPE_CHECKING:
    from specpanel.core.engine.registry import ServerRecord

HELP = "End a server that specpanel started, and everything it runs."


@guarded
def stop(
    name: options.ServerName = None,
    everything: Annotated[bool, typer.Option("--all", help="Every server of ours.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, help="Seconds before it is killed.")
    ] = 20.0,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask, even where an experiment needs it.")
    ] = False,
) -> None:
    from specpanel.core.engine.process import running_servers, stop_server
    from specpanel.core.engine.registry import find
    from specpanel.core.errors import ConfigurationError, NotRunningError, SpecpanelError

    running = running_servers()
    if not everything and name is None and len(running) > 1:
        known = ", ".join(record.name for record in running)
        raise ConfigurationError(f"several servers run: {known}", "Name one, or say --all.")
    if not running:
        if everything:
            talk("No server of specpanel's is running.")
            return
        if name is None:
            raise NotRunningError("no server of specpanel's is running")
    chosen = [find(name, running)] if name is not None else running
    if not yes:
        _ask_where_it_is_needed(chosen)
    left: list[int] = []
    for record in chosen:
        talk(f"stopping {record.name} (pid {record.pid}): it gets {timeout:g} s to end by itself")
        report = stop_server(record, timeout)
        how = "killed" if report.killed else "stopped"
        typer.echo(f"{how} {record.name} (pid {record.pid}) in {report.took_s:.1f} s")
        left.extend(report.survivors)
    if left:
        raise SpecpanelError(
            f"these processes could not be ended: {', '.join(map(str, left))}",
            "They hang in the kernel; only a reboot or a reset of the device helps.",
        )


def _ask_where_it_is_needed(chosen: "Sequence[ServerRecord]") -> None:
    """Asks before a server of an experiment or a training is ended: that has nothing to show then.

    Raises:
        ConfigurationError: there is no terminal to ask on.
    """
    from specpanel.core.engine.ownership import owner_of
    from specpanel.core.errors import ConfigurationError

    needed = ((record, owner_of(record)) for record in chosen)
    what = "; ".join(
        owner.without(record.name) for record, owner in needed if owner and owner.loses_all
    )
    if not what:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigurationError(what, "Ctrl-C ends that with what it has; --yes stops the server.")
    if not typer.confirm(f"{what}. Stop it all the same?", err=True):
        talk("Nothing was stopped.")
        raise typer.Exit(1)
