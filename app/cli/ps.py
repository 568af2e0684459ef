"""``specpanel ps``: servers that specpanel started and that still run."""

import time
from dataclasses import asdict

import typer

from specpanel.app.cli import options
from specpanel.app.cli.report import guarded, talk
from specpanel.core.printable import one_line, padded

HELP = "List the servers that specpanel started and that still run."


@guarded
def ps(as_json: options.Json = False) -> None:
    from specpanel.core.engine.ownership import owner_of
    from specpanel.core.engine.process import running_servers
    from specpanel.core.monitor.recording import line

    records = running_servers()
    if not records and not as_json:
        talk("No server of specpanel's is running.")
    for record in records:
        owner = owner_of(record)
        if as_json:
            content = record.model_dump(mode="json", exclude={"schema_version"})
            used_by = None if owner is None else {**asdict(owner), "loses_all": owner.loses_all}
            typer.echo(line("server", {**content, "url": record.url, "used_by": used_by}))
            continue
        drafter = record.drafter + (f" K={record.draft_tokens}" if record.draft_tokens else "")
        uptime = _age(time.time() - record.started_unix)
        typer.echo(
            f"{padded(one_line(record.name), 24)} pid {record.pid:<8} {record.url:<28} "
            f"{padded(one_line(drafter), 16)} {uptime:>8}  {one_line(str(record.log), 4096)}"
            + ("" if owner is None else f"  used by {owner.words}")
        )


def _age(seconds: float) -> str:
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"
