"""What the stages of a training run hand to each other. Absent is None, never 0."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from specpanel.core.monitor.frame import Interval

StageName = Literal["data", "extraction", "train", "evaluate", "promote"]
STAGE_ORDER: tuple[StageName, ...] = ("data", "extraction", "train", "evaluate", "promote")


@dataclass(frozen=True, slots=True)
class PositionAccuracy:
    """How often the trainer's draft agreed with the target at one position of a draft.

    ``unconditional``: agreed here and at every position before; ``conditional``: agreed here, given the
    ones before. Either may be what the trainer logs; the other follows from it.
    """

    position: int  # 0 is the first drafted token
    unconditional: float
    conditional: float | None


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the trainer's own accuracies say that serving will show.

    ``acceptance_length`` is 1 + Σ unconditional, or the trainer's own estimate; ``formula`` says which.
    None where the algorithm logs nothing that it could be made of.
    """

    acceptance_length: float | None
    positions: tuple[PositionAccuracy, ...]
    formula: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A drafter that the run keeps: a folder that vLLM can serve and that no later save touches.

    ``step`` counts optimiser steps since the run began, resumes included. ``prediction`` is from the
    validation that followed the save; None where there was none. ``tokenizer_sha256`` and
    ``mapping_sha256`` (d2t and t2d; None with a full vocabulary) are what it was trained with.
    """

    path: Path
    step: int
    epoch: int
    algorithm: str  # Speculators' word
    draft_tokens: int  # K that it was trained for
    target: str
    prediction: Prediction | None
    validation_loss: float | None
    tokenizer_sha256: str | None = None
    mapping_sha256: str | None = None
    best: bool = False


@dataclass(frozen=True, slots=True)
class PositionServed:
    """How often vLLM accepted the draft's token at one position, beside what the trainer foretold of it."""

    position: int  # 0 is the first drafted token
    rate: Interval
    predicted: float | None


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What serving a checkpoint showed on one set of prompts, each asked once, greedy.

    ``acceptance_length`` is 1 + accepted / drafts over all of them, its interval 95 % from resampled
    prompts; None where nothing was drafted. ``answer_tokens`` is the mean length of an answer.
    ``token_weighted`` is the mean of the prompts' acceptance lengths, each counted by its tokens: the
    trainer's average, which is over tokens, where acceptance length is over drafts.
    """

    prompts: int
    failed: int
    drafts: int
    acceptance_length: float | None
    interval: Interval | None
    positions: tuple[PositionServed, ...]
    answer_tokens: float | None
    token_weighted: float | None = None


@dataclass(frozen=True, slots=True)
class CauseCheck:
    """One known cause of a drafter that serves worse than it trained, looked at.

    ``state``: ``differs`` is likely to be it, ``same`` is not it, ``unknown`` could not be told.
    """

    cause: str
    state: Literal["differs", "same", "unknown"]
    text: str


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A checkpoint, served by vLLM and measured.

    ``heldout`` are prompts that training never saw. ``validation`` are the prompts whose rows the trainer
    made ``predicted`` from, so ``gap`` (acceptance length served there / predicted - 1) is of training
    against serving alone; where the trainer averaged over tokens, ``gap_by_tokens`` does so, too.
    ``heldout_gap`` holds the difference of the prompts as well. ``way``: a server of its own, or swapped
    into one. ``failure``: why it was not measured. ``checks`` are there where the gap is large.
    """

    checkpoint: Path
    step: int
    way: Literal["started", "swapped"] | None
    heldout: Acceptance | None
    validation: Acceptance | None
    predicted: float | None
    gap: float | None
    heldout_gap: float | None
    checks: tuple[CauseCheck, ...]
    took_s: float
    failure: str | None = None
    gap_by_tokens: float | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One round of continuous training. ``result`` is that of its promotion, None where it came to none.

    ``before`` and ``candidate`` are acceptance lengths on the same held-out conversations. ``slower``: how
    much longer a token of the server took at worst while training went on, relative to before.
    """

    number: int
    folder: Path
    conversations: int  # new ones
    steps: int | None
    result: str | None
    before: float | None
    candidate: float | None
    slower: float | None
    took_s: float


@dataclass(frozen=True, slots=True)
class StageReport:
    """How a stage ended. ``facts`` is what it found, as JSON; ``took_s`` its wall time.

    ``settings_sha256`` is of everything that the stage's result depends on: a later run with the same
    one takes the result as it is.
    """

    stage: StageName
    took_s: float
    settings_sha256: str
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TrainingSummary:
    """What a run of stages came to; the last line of every stream.

    ``stages`` are those that have a result, also from an earlier run. ``failure`` is one sentence and its
    fix; None where all went well. ``resumable``: the same command with ``--resume`` goes on from here.
    ``evaluations`` are by step; ``served_best`` is the one with the longest acceptance on held-out prompts.
    ``minutes`` are of all stages that have a result, those of an earlier run included.
    """

    recipe: str
    algorithm: str
    target: str
    folder: Path
    steps: int | None
    took_s: float
    stages: tuple[StageReport, ...]
    checkpoints: tuple[Checkpoint, ...]
    best: Checkpoint | None
    interrupted: bool
    failure: str | None
    resumable: bool
    evaluations: tuple[Evaluation, ...] = ()
    served_best: Evaluation | None = None
    minutes: float | None = None
