"""What a session tells while it runs. Each event is one line of ``--json`` and of a recording."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from specpanel.core.engine.chosen import Choice
from specpanel.core.monitor.frame import Frame
from specpanel.core.monitor.recording import frame_line, line
from specpanel.core.session.summary import Summary
from specpanel.core.speculation.pathologies import Pathology
from specpanel.core.traffic.records import RequestRecord


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence for the person who watches."""

    kind: ClassVar[str] = "note"
    text: str


@dataclass(frozen=True, slots=True)
class SettingsChosen:
    """What the run or the server was asked to be: the profile as a table, without secrets."""

    kind: ClassVar[str] = "settings"
    profile: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FindingMade:
    """Preflight found something. ``severity`` is error, warning or note; ``evidence`` what it rests on."""

    kind: ClassVar[str] = "finding"
    code: str
    severity: str
    text: str
    fix: str
    field: str | None = None
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Forced:
    """The user started in spite of preflight's errors; ``codes`` names them."""

    kind: ClassVar[str] = "forced"
    codes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LegBegan:
    """A measurement begins: ``leg`` is ``baseline`` or ``drafter``."""

    kind: ClassVar[str] = "leg"
    leg: str
    drafter: str
    draft_tokens: int | None


@dataclass(frozen=True, slots=True)
class Launched:
    """vLLM was started."""

    kind: ClassVar[str] = "launched"
    name: str
    pid: int
    url: str
    log: str
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PhaseEntered:
    """The start reached another phase; ``previous_s`` is how long the one before took."""

    kind: ClassVar[str] = "phase"
    phase: str
    detail: str
    elapsed_s: float
    previous: str
    previous_s: float


@dataclass(frozen=True, slots=True)
class Ready:
    """The server answers; ``took_s`` counts from its start."""

    kind: ClassVar[str] = "ready"
    url: str
    took_s: float


@dataclass(frozen=True, slots=True)
class ChosenFound:
    """What vLLM chose beside what was wished, once it is ready; ``remarks`` are its own words."""

    kind: ClassVar[str] = "chosen"
    choices: tuple[Choice, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PathologyFound:
    """Something is wrong with the acceptance; told once, when it is first there."""

    kind: ClassVar[str] = "pathology"
    elapsed_s: float
    pathology: Pathology


@dataclass(frozen=True, slots=True)
class RequestDone:
    """A request ended, well or not. ``leg`` as in LegBegan."""

    kind: ClassVar[str] = "request"
    leg: str
    request: RequestRecord


@dataclass(frozen=True, slots=True)
class FrameTaken:
    kind: ClassVar[str] = "frame"
    frame: Frame


@dataclass(frozen=True, slots=True)
class Stopped:
    """The server was ended. ``killed`` means that it did not end by itself in time."""

    kind: ClassVar[str] = "stopped"
    name: str
    killed: bool
    took_s: float
    survivors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SummaryMade:
    """The last event of every session."""

    kind: ClassVar[str] = "summary"
    summary: Summary


Event = (
    Note
    | SettingsChosen
    | FindingMade
    | Forced
    | LegBegan
    | Launched
    | PhaseEntered
    | Ready
    | ChosenFound
    | PathologyFound
    | RequestDone
    | FrameTaken
    | Stopped
    | SummaryMade
)
Listener = Callable[[Event], None]


def event_line(event: Event) -> str:
    """The event as one line of the stream. Fields of a record stand at the top, not in an object."""
    if isinstance(event, FrameTaken):  # one a second
        return frame_line(event.frame)
    content: dict[str, Any] = asdict(event)
    if isinstance(event, SummaryMade):
        content = content[event.kind]
    elif isinstance(event, PathologyFound):
        content = {"elapsed_s": event.elapsed_s, **content["pathology"]}
    elif isinstance(event, RequestDone):
        request: dict[str, Any] = content["request"]
        # The record's own ``kind`` is the prompt's class, the line's is the event's.
        content = {"leg": event.leg, "prompt_kind": request.pop("kind"), **request}
    return line(event.kind, content)
