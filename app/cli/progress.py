"""Print a session's events as they come: JSON lines on standard output, or talk on standard error."""

import sys

import typer

from specpanel.app.cli.plain import frame_text, summary_text
from specpanel.app.cli.plain_explain import choice_lines, finding_line
from specpanel.app.cli.report import talk
from specpanel.core.session.events import (
    ChosenFound,
    Event,
    FindingMade,
    Forced,
    FrameTaken,
    Launched,
    LegBegan,
    Note,
    PathologyFound,
    PhaseEntered,
    Ready,
    RequestDone,
    Stopped,
    SummaryMade,
    event_line,
)

_QUIET_S = 5.0
_INDENT = " " * 9


class JsonPrinter:
    """Every event as one line of JSON on standard output."""

    def __call__(self, event: Event) -> None:
        typer.echo(event_line(event))


class PlainPrinter:
    """What a person wants to read: steps as lines, figures as one line that is written over in a terminal.

    The summary goes to standard output, everything else to standard error.
    """

    def __init__(self) -> None:
        self._in_place = sys.stderr.isatty()
        self._open = False
        self._state = ""
        self._said_s = float("-inf")  # by the Frames' own clock, which a replay goes through faster
        self._unsaid: str | None = None

    def __call__(self, event: Event) -> None:
        match event:
            case FrameTaken(frame):
                self._figures(frame_text(frame), frame.server.state, frame.time_unix)
            case SummaryMade(summary):
                self._clear()
                if summary.legs:
                    typer.echo(summary_text(summary))
            case _:
                text = step_text(event)
                if text:
                    self._clear()
                    talk(text)

    def finish(self) -> None:
        """Say the newest figures, where they have not been said: nothing comes after them."""
        if self._open:
            typer.echo("", err=True)
            self._open = False
        if self._unsaid is not None:
            talk(self._unsaid)
            self._unsaid = None

    def _figures(self, text: str, state: str, time_s: float) -> None:
        changed, self._state = state != self._state, state
        if self._in_place:
            import shutil

            width = shutil.get_terminal_size().columns
            typer.echo(f"\r\x1b[K{text[: width - 1]}", err=True, nl=False)
            self._open = True
        elif changed or abs(time_s - self._said_s) >= _QUIET_S:
            self._said_s, self._unsaid = time_s, None
            talk(text)
        else:
            self._unsaid = text

    def _clear(self) -> None:
        if self._open:
            typer.echo("\r\x1b[K", err=True, nl=False)
            self._open = False


def step_text(event: Event) -> str | None:
    """An event as a line for a person; None where it says nothing."""
    match event:
        case Note(text):
            return text
        case FindingMade(severity=severity, text=text, fix=fix):
            glyph = {"error": "✗", "warning": "!"}.get(severity, "·")
            return f"{glyph} {text}" + (f" — {fix}" if fix else "")
        case Forced(codes):
            return f"! started in spite of {', '.join(codes)} (--force)"
        case LegBegan(_, "none", _):
            return "── plain decoding"
        case LegBegan(_, drafter, k):
            return f"── drafter {drafter}" + (f", K={k}" if k else "")
        case Launched(name, pid, url, log, _):
            return f"starting {name} (pid {pid}) for {url}; log: {log}"
        case PhaseEntered(phase, detail, elapsed_s, _, _):
            # The column of seconds is the Frames' own; a start counts from its launch, in words.
            told = f"{_INDENT}{phase}, {elapsed_s:.0f} s into the start"
            return f"{told}  {detail}" if detail else told
        case Ready(url, took_s):
            return f"{_INDENT}ready at {url} after {took_s:.0f} s"
        case RequestDone(_, request) if request.error is not None:
            return f"! request {request.index} ({request.prompt_id}) failed: {request.error}"
        case Stopped(name, killed, took_s, survivors):
            how = "killed" if killed else "stopped"
            left = f"; still there: {', '.join(map(str, survivors))}" if survivors else ""
            return f"{how} {name} in {took_s:.1f} s{left}"
        case _:
            return _explained(event)


def _explained(event: Event) -> str | None:
    """What the server turned out to be."""
    match event:
        case ChosenFound(choices, _):
            return "\n".join(choice_lines(choices)) or None
        case PathologyFound(_, found):
            return finding_line(found)
        case _:
            return None
