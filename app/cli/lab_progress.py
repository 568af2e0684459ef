"""Print an experiment's events as they come."""

import typer

from specpanel.app.cli.plain_lab import block_line
from specpanel.app.cli.progress import PlainPrinter
from specpanel.app.cli.report import talk
from specpanel.core.lab.events import (
    BlockMeasured,
    ExperimentBegan,
    ExperimentEnded,
    LabEvent,
    PointMeasured,
    event_line,
)
from specpanel.core.session.events import Event


class LabPrinter:
    """For a person: the steps, on standard error; what was found is printed at the end."""

    def __init__(self) -> None:
        self._servers = PlainPrinter()

    def __call__(self, event: LabEvent | Event) -> None:
        match event:
            case ExperimentBegan(name, _, plan):
                talk(f"{name}: {plan}")
            case BlockMeasured():
                talk(block_line(event))
            case PointMeasured(text, _):
                talk(text)
            case ExperimentEnded():
                pass
            case _:
                self._servers(event)


def print_json(event: LabEvent | Event) -> None:
    typer.echo(event_line(event))
