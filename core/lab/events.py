"""What an experiment tells while it runs, besides the events of its servers."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from specpanel.core.monitor.recording import line
from specpanel.core.session import events as session


@dataclass(frozen=True, slots=True)
class ExperimentBegan:
    """``plan`` says in one line what is going to be done."""

    kind: ClassVar[str] = "experiment"
    id: str
    experiment: str
    plan: str


@dataclass(frozen=True, slots=True)
class BlockMeasured:
    """A block was measured on every side. ``half_widths`` are relative, by arm; None: not known yet."""

    kind: ClassVar[str] = "block"
    block: int
    elapsed_s: float
    ratios: dict[str, float | None]
    half_widths: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class PointMeasured:
    """One setting was measured: a load and what was drafted."""

    kind: ClassVar[str] = "point"
    text: str
    figures: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PointProgress:
    """How far one load has got: ``done`` of ``requests``. None: not told, or nothing yet."""

    kind: ClassVar[str] = "progress"
    concurrency: int
    elapsed_s: float
    done: int | None
    requests: int
    acceptance_length: float | None


@dataclass(frozen=True, slots=True)
class ExperimentEnded:
    """The last event. ``result`` is what the store holds, too."""

    kind: ClassVar[str] = "result"
    id: str
    experiment: str
    state: str
    conclusion: str
    result: dict[str, Any] | None


LabEvent = ExperimentBegan | BlockMeasured | PointMeasured | PointProgress | ExperimentEnded
LabListener = Callable[[LabEvent | session.Event], None]


def event_line(event: LabEvent | session.Event) -> str:
    """The event as one line of the stream."""
    if isinstance(event, LabEvent):
        return line(event.kind, asdict(event))
    return session.event_line(event)
