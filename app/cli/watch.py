"""``specpanel watch``: figures of a server that someone else started, or of a recording."""

from pathlib import Path
from typing import Annotated

import typer

from specpanel.app.cli import options
from specpanel.app.cli.report import guarded

HELP = "Watch a running vLLM server, or replay a recording with --replay FILE."


@guarded
def watch(
    url: Annotated[str | None, typer.Argument(metavar="URL")] = None,
    recording: Annotated[
        str | None,
        typer.Option(
            "--replay",
            metavar="FILE",
            help="Show the Frames of a recording: a file, a run's name, or last.",
            autocompletion=options.recording_names,
        ),
    ] = None,
    speed: Annotated[
        float, typer.Option("--speed", min=0, help="Times faster than it was; 0: at once.")
    ] = 1.0,
    duration: Annotated[
        float | None, typer.Option("--duration", min=0, help="Seconds to watch for.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option("--record", help="Write the Frames to this file (NDJSON).")
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metrics",
            metavar="URL",
            help="Metrics of an engine behind a router; may be repeated.",
        ),
    ] = None,
    as_json: options.Json = False,
    tui: Annotated[
        bool, typer.Option("--tui", help="Draw them in the panel, which records them.")
    ] = False,
    no_mouse: options.NoMouse = False,
) -> None:
    from specpanel.core.errors import ConfigurationError

    if (url is None) == (recording is None):
        raise ConfigurationError(
            "watch needs a URL or --replay FILE, and one of them only",
            "For example: specpanel watch http://127.0.0.1:8000",
        )
    replay = None if recording is None else options.recording_called(recording)
    if tui:
        from specpanel.app.cli.panel import replay_in_panel, watch_in_panel

        if replay is not None:
            replay_in_panel(replay, speed, mouse=not no_mouse)
        else:
            watch_in_panel(str(url), tuple(metrics or ()), mouse=not no_mouse)
        return

    import asyncio

    from specpanel.app.cli.progress import JsonPrinter, PlainPrinter
    from specpanel.app.cli.signals import on_stop_signals
    from specpanel.core.monitor.feed import Feed
    from specpanel.core.session.endings import told_at_the_end
    from specpanel.core.session.watching import replay_recording, watch_server

    printer = JsonPrinter() if as_json else PlainPrinter()

    async def whole() -> bool:
        stop = asyncio.Event()
        interrupted = False

        def interrupt() -> None:
            nonlocal interrupted
            interrupted = True
            stop.set()

        on_stop_signals(interrupt)
        if replay is not None:
            await replay_recording(replay, Feed(), printer, stop, speed=speed)
            if isinstance(printer, PlainPrinter):
                printer.finish()
            if not interrupted:
                for event in told_at_the_end(replay):
                    printer(event)
        else:
            await watch_server(
                str(url),
                Feed(),
                printer,
                stop,
                duration_s=duration,
                record=record,
                metrics_urls=tuple(metrics or ()),
            )
        return interrupted

    if asyncio.run(whole()):
        raise typer.Exit(130)
