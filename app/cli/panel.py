"""Open the terminal app: empty, over a server, over a recording, or over a session of ours."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

if TYPE_CHECKING:
    from specpanel.core.session.session import Plan

Driver = Callable[[Callable[[str], None]], Awaitable[None]]


def open_panel() -> None:
    """The panel over the newest server that we started; empty where none runs."""
    from specpanel.app.cli.report import guarded

    guarded(_open)()


def _open() -> None:
    import sys

    from specpanel.core.engine.process import running_servers
    from specpanel.core.errors import ConfigurationError

    if not (sys.stdout.isatty() and sys.stdin.isatty()):
        raise ConfigurationError(
            "the panel needs a terminal",
            "Use specpanel run or specpanel watch where there is none; specpanel --help lists all.",
        )
    running = running_servers()
    show_panel(running[-1].url if running else None, None, 1.0)


def show_panel(url: str | None, replay: Path | None, speed: float) -> None:
    """The panel over a server or a recording; empty over neither."""
    import asyncio

    from specpanel.app.tui.panel import run_panel
    from specpanel.core.monitor.feed import Feed
    from specpanel.core.session.watching import replay_recording, watch_server

    feed = Feed()

    async def drive(notify: Callable[[str], None]) -> None:
        stop = asyncio.Event()
        if replay is not None:
            await replay_recording(replay, feed, lambda _: None, stop, speed=speed)
            notify(f"end of {replay.name}")
        elif url is not None:
            await watch_server(url, feed, lambda _: None, stop)

    _leave(run_panel(feed, drive if url or replay else None))


def fly_in_panel(plan: "Plan") -> None:
    """Run a session with the panel over it; quitting asks what becomes of the server."""
    from specpanel.app.cli.plain import summary_text
    from specpanel.app.tui.panel import run_panel
    from specpanel.core.monitor.feed import Feed
    from specpanel.core.session.events import Event, FindingMade, Note
    from specpanel.core.session.session import Outcome, Session

    feed = Feed()
    session: Session | None = None
    outcome: Outcome | None = None

    async def drive(notify: Callable[[str], None]) -> None:
        nonlocal session, outcome

        def listen(event: Event) -> None:
            if isinstance(event, Note | FindingMade):
                notify(event.text)

        session = Session(plan, listen, feed)
        outcome = await session.run()
        if outcome.error is not None:
            raise outcome.error

    def on_quit(choice: Literal["leave", "stop"]) -> None:
        if session is None:
            return
        if choice == "leave":
            session.leave()
        else:
            session.interrupt()

    code = run_panel(feed, drive, owns_server=True, on_quit=on_quit)
    if outcome is not None and outcome.summary.legs:
        typer.echo(summary_text(outcome.summary))
    _leave(code)


def _leave(code: int) -> None:
    if code:
        raise typer.Exit(code)
