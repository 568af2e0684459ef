"""Print a training run's events as they come: JSON lines, or what a person wants to read."""

import sys
import time

import typer

from specpanel.app.cli.progress import step_text
from specpanel.app.cli.report import talk
from specpanel.core.training.events import (
    CheckpointKept,
    CheckpointMeasured,
    LoaderKnown,
    OnlineEnded,
    Progressed,
    PromotionTried,
    RecipeChosen,
    RoundBegan,
    RoundEnded,
    Saving,
    StageBegan,
    StageEnded,
    StageSkipped,
    StepDone,
    TrainerEnded,
    TrainerStarted,
    TrainingEvent,
    TrainingSummaryMade,
    ValidationDone,
    training_line,
)
from specpanel.core.training.records import (
    Acceptance,
    Evaluation,
    Prediction,
    Round,
    TrainingSummary,
)

_QUIET_S = 5.0


class TrainingJsonPrinter:
    """Every event as one line of JSON on standard output."""

    def __call__(self, event: TrainingEvent) -> None:
        typer.echo(training_line(event))


class TrainingPlainPrinter:
    """Steps as one line that is written over in a terminal; the rest as lines. The summary is the result."""

    def __init__(self) -> None:
        self._in_place = sys.stderr.isatty()
        self._open = False
        self._said_s = float("-inf")
        self._last_step = 0

    def __call__(self, event: TrainingEvent) -> None:
        match event:
            case StepDone():
                self._moving(self._step(event))
            case Progressed(_, what, done, total, per_s):
                rate = f", {per_s:.0f} tokens/s" if per_s else ""
                self._moving(f"{what}: {done} of {total}{rate}", whole=done == total)
            case TrainingSummaryMade(summary):
                self._clear()
                typer.echo(summary_lines(summary))
            case _:
                text = _line(event)
                if text:
                    self._clear()
                    talk(text)
                if isinstance(event, LoaderKnown):
                    self._last_step = event.last_step

    def _step(self, step: StepDone) -> str:
        parts = [
            f"step {step.step} of {self._last_step or '?'}",
            f"loss {_shown(step.loss, 3)}",
            f"predicted AL {_shown(step.prediction.acceptance_length, 2)}",
            f"{_shown(step.tokens_per_s, 0)} tokens/s",
        ]
        if step.waiting_share is not None:
            parts.append(f"{step.waiting_share:.0%} waiting")
        return "  ".join(parts)

    def _moving(self, text: str, *, whole: bool = False) -> None:
        if self._in_place:
            import shutil

            width = shutil.get_terminal_size().columns
            typer.echo(f"\r\x1b[K{text[: width - 1]}", err=True, nl=False)
            self._open = True
        elif whole or time.monotonic() - self._said_s >= _QUIET_S:
            self._said_s = time.monotonic()
            talk(text)

    def _clear(self) -> None:
        if self._open:
            typer.echo("\r\x1b[K", err=True, nl=False)
            self._open = False


def _line(event: TrainingEvent) -> str | None:
    match event:
        case RecipeChosen(recipe, folder):
            return f"training {recipe['name']} in {folder}"
        case StageBegan(stage, index, of):
            return f"── {stage} ({index} of {of})"
        case StageSkipped(stage, report):
            return f"── {stage}: as before ({report.took_s:.0f} s then)"
        case StageEnded(report):
            return f"{report.stage} done in {report.took_s:.0f} s"
        case TrainerStarted(pid, log, _, step):
            onwards = f" from step {step}" if step else ""
            return f"trainer started{onwards} (pid {pid}); log: {log}"
        case LoaderKnown(per_epoch, _, last):
            return f"{per_epoch} steps an epoch, to step {last}"
        case ValidationDone():
            return (
                f"validation after step {event.step}: loss {_shown(event.loss, 3)}, "
                f"{_predicted(event.prediction)}"
            )
        case CheckpointKept(checkpoint) if checkpoint.prediction is None:
            return f"kept {checkpoint.path}"
        case Saving(deadline_s):
            return f"saving (up to {deadline_s:.0f} s; a second Ctrl-C ends it without)"
        case TrainerEnded(_, reason, step, took_s):
            return f"trainer ended ({reason}) after step {step} and {took_s:.0f} s"
        case _:
            return _shown_when_served(event) or step_text(event)  # type: ignore[arg-type]


def _shown_when_served(event: TrainingEvent) -> str | None:
    match event:
        case CheckpointMeasured(evaluation):
            return "\n".join(evaluation_lines(evaluation))
        case PromotionTried(tried):
            return f"{tried.server}: {tried.result}: {tried.reason}"
        case RoundBegan(number, of, left):
            return f"══ round {number}{f' of {of}' if of else ''}, {left} steps left"
        case RoundEnded(done):
            return _round_text(done)
        case OnlineEnded(reason, rounds, folder):
            better = sum(one.result == "promoted" for one in rounds)
            return f"ended: {reason}; {len(rounds)} rounds, {better} promoted; everything: {folder}"
        case _:
            return None


def _round_text(done: Round) -> str:
    """A round in one line."""
    parts = [
        f"round {done.number}: {done.conversations} new conversations",
        f"{_shown(done.steps, 0)} steps",
        f"{done.result or 'nothing promoted'} (acceptance length {_shown(done.before, 2)} → "
        f"{_shown(done.candidate, 2)})",
    ]
    if done.slower is not None:
        parts.append(f"a token took {done.slower:+.0%} at worst")
    return ", ".join(parts)


def summary_lines(summary: TrainingSummary) -> str:
    """The summary as text."""
    lines = [f"{summary.recipe}: {summary.algorithm} for {summary.target}"]
    if summary.failure:
        lines.append(f"failed: {summary.failure}")
    elif summary.interrupted:
        lines.append("interrupted")
    lines.append(
        "stages: "
        + (", ".join(f"{one.stage} {one.took_s:.0f} s" for one in summary.stages) or "none")
    )
    if summary.best is not None:
        best = summary.best
        lines.append(f"best checkpoint: {best.path} (step {best.step})")
        if best.prediction is not None:
            lines.append(f"predicted: {_predicted(best.prediction)} [{best.prediction.formula}]")
    served = summary.served_best
    if served is not None:
        lines.append(f"served best: {served.checkpoint}")
        lines.extend(f"  {text}" for text in evaluation_lines(served)[1:])
    gap = next((one for one in summary.evaluations if one.gap is not None), None)
    if gap is not None and gap != served:
        lines.append(f"train to serve, step {gap.step}: {_gap_text(gap)}")
    if summary.minutes is not None:
        lines.append(f"all stages: {summary.minutes:.1f} minutes")
    lines.append(f"everything: {summary.folder}")
    return "\n".join(lines)


def evaluation_lines(evaluation: Evaluation) -> list[str]:
    """What serving showed of a checkpoint: a heading, then one line a fact."""
    name = evaluation.checkpoint.name
    if evaluation.heldout is None:
        return [f"{name}: not measured: {evaluation.failure}"]
    lines = [f"{name}, served:", f"held-out prompts: {_served(evaluation.heldout)}"]
    if evaluation.validation is not None:
        lines.append(f"validation prompts: {_served(evaluation.validation)}")
    if evaluation.predicted is not None:
        lines.append(f"train to serve: {_gap_text(evaluation)}")
    lines.extend(
        f"{check.state}: {check.cause}: {check.text}"
        for check in evaluation.checks
        if check.state != "same"
    )
    return lines


def _gap_text(evaluation: Evaluation) -> str:
    told = [f"foretold {_shown(evaluation.predicted, 2)}"]
    if evaluation.gap is not None:
        told.append(f"{evaluation.gap:+.1%} on the prompts it was foretold for")
    if evaluation.gap_by_tokens is not None:
        told.append(f"{evaluation.gap_by_tokens:+.1%} averaged over tokens, as the trainer does")
    if evaluation.heldout_gap is not None:
        told.append(f"{evaluation.heldout_gap:+.1%} on held-out ones")
    return ", ".join(told)


def _served(found: Acceptance) -> str:
    if found.acceptance_length is None:
        return "nothing was drafted"
    rates = " ".join(f"{one.rate.estimate:.3f}" for one in found.positions)
    bounds = f" ({found.interval.low:.2f} … {found.interval.high:.2f})" if found.interval else ""
    return (
        f"acceptance length {found.acceptance_length:.2f}{bounds} on {found.prompts} prompts, "
        f"by position {rates}"
    )


def _predicted(found: Prediction) -> str:
    if found.acceptance_length is None:
        return f"acceptance length n/a ({found.formula})"
    rates = " ".join(f"{one.unconditional:.3f}" for one in found.positions)
    return f"acceptance length {found.acceptance_length:.2f}, by position {rates}"


def _shown(value: float | None, digits: int) -> str:
    return "n/a" if value is None else f"{value:.{digits}f}"
