"""``specpanel stop``: end servers that specpanel started."""

from typing import Annotated

import typer

from specpanel.app.cli import options
from specpanel.app.cli.report import guarded, talk

HELP = "End a server that specpanel started, and everything it runs."


@guarded
def stop(
    name: options.ServerName = None,
    everything: Annotated[bool, typer.Option("--all", help="Every server of ours.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, help="Seconds before it is killed.")
    ] = 20.0,
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
    left: list[int] = []
    for record in chosen:
        report = stop_server(record, timeout)
        how = "killed" if report.killed else "stopped"
        typer.echo(f"{how} {record.name} (pid {record.pid}) in {report.took_s:.1f} s")
        left.extend(report.survivors)
    if left:
        raise SpecpanelError(
            f"these processes could not be ended: {', '.join(map(str, left))}",
            "They hang in the kernel; only a reboot or a reset of the device helps.",
        )
