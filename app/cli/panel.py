"""Open the terminal app: over a server of ours, a profile that is started, another's server, a recording."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specpanel.core.session.desk import Desk
    from specpanel.core.settings.profile import Profile


def open_panel(*, mouse: bool = True) -> None:
    """The panel over the newest server that we started; on Launch where none runs."""
    from specpanel.app.cli.report import guarded

    guarded(_open)(mouse)


def _open(mouse: bool) -> None:
    import sys

    from specpanel.core.engine.process import running_servers
    from specpanel.core.errors import ConfigurationError

    if not (sys.stdout.isatty() and sys.stdin.isatty()):
        raise ConfigurationError(
            "the panel needs a terminal",
            "Use specpanel run or specpanel watch where there is none; specpanel --help lists all.",
        )
    running = running_servers()
    if running:
        _show(lambda desk: desk.adopt(running[-1]), mouse=mouse)
    else:
        _show(None, first_mode="launch", mouse=mouse)


def start_in_panel(profile: "Profile", *, mouse: bool = True) -> None:
    """Start ``profile`` with the panel over it; quitting asks what becomes of the server."""
    _show(lambda desk: desk.start(profile), mouse=mouse)


def watch_in_panel(url: str, metrics_urls: tuple[str, ...] = (), *, mouse: bool = True) -> None:
    """The panel over a server that someone else started."""
    _show(lambda desk: desk.watch(url, metrics_urls), mouse=mouse)


def replay_in_panel(replay: Path, speed: float, *, mouse: bool = True) -> None:
    """The panel over a recording."""
    import asyncio

    run_panel = _the_panel()
    from specpanel.core.monitor.feed import Feed

    feed = Feed()

    async def drive(notify: Callable[[str], None]) -> None:
        from specpanel.core.session.endings import told_at_the_end
        from specpanel.core.session.events import Note
        from specpanel.core.session.watching import replay_recording

        await replay_recording(replay, feed, lambda _: None, asyncio.Event(), speed=speed)
        notify(f"end of {replay.name}")
        for event in await asyncio.to_thread(told_at_the_end, replay):
            if isinstance(event, Note):
                notify(event.text)

    _leave(run_panel(feed, drive, mouse=mouse))


def _the_panel() -> "Callable[..., int]":
    """What shows it. Nothing of what is imported here is ever garbage, so nothing is looked for until the
    panel has settled, which turns collecting on again."""
    import gc

    gc.disable()
    from specpanel.app.tui.opening import run_panel

    return run_panel


def _show(begin: "Callable[[Desk], None] | None", *, mouse: bool, first_mode: str = "live") -> None:
    run_panel = _the_panel()
    from specpanel.core.monitor.feed import Feed

    feed = Feed()

    def open_desk() -> "Desk":
        from specpanel.core.session.desk import Desk
        from specpanel.core.settings.paths import data_folder

        return Desk(feed, recordings=data_folder() / "recordings")

    code = run_panel(feed, open_desk=open_desk, begin=begin, first_mode=first_mode, mouse=mouse)
    _leave(code)


def _leave(code: int) -> None:
    if code:
        raise SystemExit(code)
