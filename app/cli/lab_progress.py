"""Print an experiment's events as they come."""

import typer

from specpanel.app.cli.plain_lab import block_line, progress_line
from specpanel.app.cli.progress import PlainPrinter
from specpanel.app.cli.report import talk
from specpanel.core.lab.events import (
    BlockMeasured,
    ExperimentBegan,
    ExperimentEnded,
    LabEvent,
    PointMeasured,
    PointProgress,
    event_line,
)
from specpanel.core.session.events import Event

_QUIET_S = 5.0


class LabPrinter:
    """For a person: the steps, on standard error; what was found is printed at the end."""

    def __init__(self) -> None:
        self._servers = PlainPrinter()
        self._said_s = float("-inf")

    def __call__(self, event: LabEvent | Event) -> None:
        match event:
            case ExperimentBegan(name, _, plan):
                talk(f"{name}: {plan}")
            case BlockMeasured():
                talk(block_line(event))
            case PointMeasured(text, _):
                talk(text)
            case PointProgress():
                self._progress(event)
            case ExperimentEnded():
                pass
            case _:
                self._servers(event)

    def _progress(self, event: PointProgress) -> None:
        """At most a line in a few seconds; the clock of each load begins anew."""
        if 0 <= event.elapsed_s - self._said_s < _QUIET_S:
            return
        self._said_s = event.elapsed_s
        talk(progress_line(event))


def print_json(event: LabEvent | Event) -> None:
    typer.echo(event_line(event))
