"""What a training run tells while it runs. Each event is one line of ``--json`` and of the recording.

The servers that a run starts tell what every launch tells (``core/session/events.py``).
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from specpanel.core.monitor.recording import line
from specpanel.core.session.events import (
    FindingMade,
    Launched,
    Note,
    PhaseEntered,
    Ready,
    Stopped,
)
from specpanel.core.training.audit import Promotion
from specpanel.core.training.records import (
    Checkpoint,
    Evaluation,
    Prediction,
    Round,
    StageName,
    StageReport,
    TrainingSummary,
)


@dataclass(frozen=True, slots=True)
class RecipeChosen:
    """What the run was asked to be, without secrets, and the folder that holds all of it."""

    kind: ClassVar[str] = "recipe"
    recipe: dict[str, Any]
    folder: str


@dataclass(frozen=True, slots=True)
class StageBegan:
    kind: ClassVar[str] = "stage"
    stage: StageName
    index: int  # counts from 1 among the stages that this run does
    of: int


@dataclass(frozen=True, slots=True)
class StageSkipped:
    """An earlier run's result stands: nothing that it depends on has changed."""

    kind: ClassVar[str] = "stage_skipped"
    stage: StageName
    report: StageReport


@dataclass(frozen=True, slots=True)
class StageEnded:
    kind: ClassVar[str] = "stage_ended"
    report: StageReport


@dataclass(frozen=True, slots=True)
class Progressed:
    """How far a stage is with something countable. ``total`` None: unknown."""

    kind: ClassVar[str] = "progress"
    stage: StageName
    what: str
    done: int
    total: int | None
    per_s: float | None = None


@dataclass(frozen=True, slots=True)
class TrainerStarted:
    """The trainer runs. ``steps`` is what it was asked for, ``steps_per_epoch`` what its loader says."""

    kind: ClassVar[str] = "trainer"
    pid: int
    log: str
    argv: tuple[str, ...]
    resumed_from_step: int | None


@dataclass(frozen=True, slots=True)
class LoaderKnown:
    """The trainer has packed its data: steps an epoch, and the step that training ends at."""

    kind: ClassVar[str] = "loader"
    steps_per_epoch: int
    validation_packs: int
    last_step: int


@dataclass(frozen=True, slots=True)
class StepDone:
    """One optimiser step. ``step`` counts from 1; times in milliseconds.

    ``waiting_share`` is the part of the step spent waiting for hidden states; ``dropped`` samples of the
    step's pack that could not be had.
    """

    kind: ClassVar[str] = "step"
    step: int
    epoch: int
    elapsed_s: float
    loss: float | None
    prediction: Prediction
    learning_rate: float | None
    tokens_per_s: float | None
    step_ms: float | None
    fetch_ms: float | None
    forward_ms: float | None
    backward_ms: float | None
    optimiser_ms: float | None
    waiting_share: float | None
    dropped: float | None
    metrics: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class ValidationDone:
    kind: ClassVar[str] = "validation"
    step: int
    epoch: int
    elapsed_s: float
    loss: float | None
    prediction: Prediction
    metrics: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class CheckpointKept:
    """A checkpoint is whole and in its own folder. Told again where more is known of it:
    its prediction after validation, and when another becomes the best."""

    kind: ClassVar[str] = "checkpoint"
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class Saving:
    """The trainer was asked to stop and saves; it is given ``deadline_s`` for that."""

    kind: ClassVar[str] = "saving"
    deadline_s: float


@dataclass(frozen=True, slots=True)
class TrainerEnded:
    """``reason``: done, interrupted, best (stopped early), nan, starved, failed or killed."""

    kind: ClassVar[str] = "trainer_ended"
    exit_code: int | None
    reason: str
    step: int | None
    took_s: float


@dataclass(frozen=True, slots=True)
class CheckpointMeasured:
    """A checkpoint was served and measured, or could not be."""

    kind: ClassVar[str] = "evaluation"
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class PromotionTried:
    """A promotion was tried; the record is that of the audit log."""

    kind: ClassVar[str] = "promotion"
    promotion: Promotion


@dataclass(frozen=True, slots=True)
class RoundBegan:
    """Continuous training: ``of`` rounds at most, None where only time and steps bound them."""

    kind: ClassVar[str] = "round"
    number: int
    of: int | None
    steps_left: int


@dataclass(frozen=True, slots=True)
class RoundEnded:
    kind: ClassVar[str] = "round_ended"
    round: Round


@dataclass(frozen=True, slots=True)
class OnlineEnded:
    """The last event of continuous training; each round told its own summary before."""

    kind: ClassVar[str] = "online_summary"
    reason: str
    rounds: tuple[Round, ...]
    folder: str


@dataclass(frozen=True, slots=True)
class TrainingSummaryMade:
    """The last event of every run."""

    kind: ClassVar[str] = "summary"
    summary: TrainingSummary


TrainingEvent = (
    Note
    | FindingMade
    | Launched
    | PhaseEntered
    | Ready
    | Stopped
    | RecipeChosen
    | StageBegan
    | StageSkipped
    | StageEnded
    | Progressed
    | TrainerStarted
    | LoaderKnown
    | StepDone
    | ValidationDone
    | CheckpointKept
    | Saving
    | TrainerEnded
    | CheckpointMeasured
    | PromotionTried
    | RoundBegan
    | RoundEnded
    | OnlineEnded
    | TrainingSummaryMade
)
TrainingListener = Callable[[TrainingEvent], None]


def training_line(event: TrainingEvent) -> str:
    """The event as one line of the stream. Fields of a record stand at the top, not in an object."""
    content: dict[str, Any] = asdict(event)
    if isinstance(
        event, TrainingSummaryMade | CheckpointKept | CheckpointMeasured | PromotionTried
    ):
        content = content[event.kind]
    elif isinstance(event, RoundEnded):
        content = content["round"]
    elif isinstance(event, StageSkipped | StageEnded):
        content = content["report"]
    return line(event.kind, plain(content))


def plain(value: Any) -> Any:
    """``value`` with paths as text, for JSON."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
