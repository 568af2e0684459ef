"""``specpanel demo``: a real model, a real drafter, on this machine's CPU."""

import sys
from typing import Annotated

import typer

from specpanel.app.cli import options
from specpanel.app.cli.report import guarded

HELP = "Serve a small real model with the n-gram drafter on this machine and show what it does."
_PROFILE = "demo-ngram"
_REQUESTS_WITHOUT_TTY = 24


@guarded
def demo(
    name: Annotated[
        str, typer.Option("--profile", help="Which demonstration: demo-ngram, demo-draft-model, …")
    ] = _PROFILE,
    port: options.Port = None,
    python: options.Python = None,
    requests: options.Requests = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Progress lines instead of the panel.")
    ] = False,
    as_json: options.Json = False,
    no_mouse: options.NoMouse = False,
) -> None:
    flags = {"--port": port, "--python": python, "--requests": requests}
    profile = options.resolved_profile(name, flags, None, ())
    in_panel = sys.stdout.isatty() and sys.stdin.isatty() and not plain and not as_json
    if in_panel:
        from specpanel.app.cli.panel import start_in_panel

        start_in_panel(profile, mouse=not no_mouse)
        return
    from specpanel.app.cli.run import fly
    from specpanel.core.session.plan import Plan

    if profile.traffic.requests is None and profile.traffic.duration_s is None:
        traffic = profile.traffic.model_copy(update={"requests": _REQUESTS_WITHOUT_TTY})
        profile = profile.model_copy(update={"traffic": traffic})
    fly(Plan(profile), as_json=as_json)
