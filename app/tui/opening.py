"""Showing the panel in this terminal, from the first look at it to the exit status."""

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from specpanel.app.tui.ink import clean
from specpanel.app.tui.panel import Begin, FeedDriver, OpenDesk, Panel
from specpanel.app.tui.screens.dialogs import error_words
from specpanel.app.tui.widgets.board import HOW_TO_BEGIN
from specpanel.core.errors import ConfigurationError, SpecpanelError
from specpanel.core.monitor.feed import Feed

if TYPE_CHECKING:
    from specpanel.core.session.desk import Desk


def run_panel(
    feed: Feed,
    driver: FeedDriver | None = None,
    *,
    desk: "Desk | None" = None,
    open_desk: OpenDesk | None = None,
    begin: Begin | None = None,
    first_mode: str = "live",
    theme: str | None = None,
    window_minutes: int = 5,
    mouse: bool = True,
    how_to_begin: Sequence[tuple[str, str]] = HOW_TO_BEGIN,
) -> int:
    """Shows the panel until it is left and gives the exit status.

    What failed last, and what could not be ended, is printed on standard error once the screen is back.

    Raises:
        ConfigurationError: the terminal cannot show a panel.
    """
    require_terminal()
    panel = Panel(
        feed,
        driver=driver,
        desk=desk,
        open_desk=open_desk,
        begin=begin,
        first_mode=first_mode,
        theme=theme,
        window_minutes=window_minutes,
        how_to_begin=how_to_begin,
    )
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, panel.heed_early)
    panel.run(mouse=mouse)
    if panel.failure is not None:
        message, fix = error_words(panel.failure)
        if isinstance(panel.failure, SpecpanelError):
            sys.stderr.write(f"specpanel: {message}\n" + (f"  {fix}\n" if fix else ""))
        fault = (
            panel.failure.__cause__ if isinstance(panel.failure, SpecpanelError) else panel.failure
        )
        if fault is not None and not isinstance(fault, SpecpanelError | OSError):
            traceback.print_exception(fault)
    if panel.left_behind:
        left = clean(", ".join(panel.left_behind))
        sys.stderr.write(f"specpanel: killed without an end of its own; still there: {left}\n")
    return int(panel.exit_code)


def require_terminal() -> None:
    """Refuses a terminal that cannot show a panel, and names what works there.

    The panel draws on standard error's terminal and reads keys from standard input.
    """
    headless = "use `specpanel run` or `specpanel watch`, which print plain lines"
    if os.environ.get("TERM", "") in {"dumb", "unknown"}:
        raise ConfigurationError("This terminal (TERM=dumb) cannot show the panel", headless)
    if not (os.isatty(0) and os.isatty(2)):
        raise ConfigurationError(
            "The panel needs a terminal for its keys and its picture", headless
        )
