"""The panel without the parser: the words that open it are few, and a parser of all commands is slow.

Whatever is not plainly one of them goes to the parser, which knows help, completion and complaints.
"""

import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

_COMPLETION = "_SPECPANEL_COMPLETE"


def shortcut(arguments: Sequence[str]) -> Callable[[], None] | None:
    """What these arguments mean, where they do nothing but open the panel; None for all others.

    The same as ``specpanel`` and ``specpanel watch (URL | --replay FILE [--speed N]) --tui``, with or
    without ``--no-mouse``, mean to the parser.
    """
    if _COMPLETION in os.environ:
        return None
    if not arguments or list(arguments) == ["--no-mouse"]:
        from specpanel.app.cli.panel import open_panel

        return partial(open_panel, mouse=not arguments)
    return _watching(arguments[1:]) if arguments[0] == "watch" else None


def _watching(words: Sequence[str]) -> Callable[[], None] | None:
    flags = [word for word in words if word in ("--tui", "--no-mouse")]
    rest = [word for word in words if word not in flags]
    if "--tui" not in flags or len(set(flags)) != len(flags):
        return None
    mouse = "--no-mouse" not in flags
    match rest:
        case [url] if not _is_option(url):
            from specpanel.app.cli.panel import watch_in_panel
            from specpanel.app.cli.report import guarded

            return partial(guarded(watch_in_panel), url, mouse=mouse)
        case ["--replay", path, *more] if not _is_option(path) and os.path.isfile(path):
            speed = _speed(more)
            if speed is None:
                return None
            from specpanel.app.cli.panel import replay_in_panel
            from specpanel.app.cli.report import guarded

            return partial(guarded(replay_in_panel), Path(path), speed, mouse=mouse)
    return None


def _is_option(word: str) -> bool:
    return not word or word.startswith("-")


def _speed(words: Sequence[str]) -> float | None:
    """How many times faster: 1 where nothing is said of it; None for what the parser has to judge."""
    match words:
        case []:
            return 1.0
        case ["--speed", number] if number.replace(".", "", 1).isdecimal() and number.isascii():
            speed = float(number)
            return speed if math.isfinite(speed) else None
    return None
