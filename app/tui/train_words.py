"""The words and numbers of the Train screen. Pure; absent is ``n/a``, never 0."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specpanel.app.run_words import ABSENT
from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.ink import Line, Span, clean
from specpanel.core.training.audit import Promotion
from specpanel.core.training.runs import TrainingRun
from specpanel.core.training.story import Story
from specpanel.core.training.story_parts import KeptCheckpoint, StageCourse, StageState

# state: glyph, word, ink
STAGES: dict[StageState, tuple[str, str, str]] = {
    "waiting": ("stopped", "not yet", "muted"),
    "running": ("serving", "running", "good"),
    "done": ("good", "done", "good"),
    "as before": ("good", "as before", "muted"),
    "stopped": ("warning", "stopped", "warn"),
    "failed": ("exited", "failed", "bad"),
}
RUNS: dict[str, tuple[str, str, str]] = {
    "running": ("serving", "running", "good"),
    "done": ("good", "finished", "good"),
    "stopped": ("warning", "stopped", "warn"),
    "failed": ("exited", "failed", "bad"),
    "cut off": ("warning", "cut off", "warn"),
    "unreadable": ("exited", "unreadable", "bad"),
}
SEVERITIES = {
    "error": ("exited", "bad"),
    "warning": ("warning", "warn"),
    "note": ("stopped", "muted"),
}
_RESUMABLE = ("stopped", "failed", "cut off")


@dataclass(frozen=True, slots=True)
class RecipeEntry:
    """A recipe that can be begun, as its file has it; ``error`` says why it cannot be read."""

    name: str
    algorithm: str
    description: str
    error: str = ""
    table: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fact:
    """A row of the plan."""

    label: str
    text: str
    ink: str = "text"


def can_resume(run: TrainingRun) -> bool:
    return run.resumable and run.state in _RESUMABLE


def seconds(value: float | None) -> str:
    """How long: 4.2 s, 96 s, 12 min, 3.1 h."""
    if value is None:
        return ABSENT
    if value < 10:
        return f"{value:.1f} s"
    if value < 600:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 6000 else f"{value / 3600:.1f} h"


def shown(value: float | None, digits: int = 2) -> str:
    return ABSENT if value is None else f"{value:.{digits}f}"


def share(value: float | None) -> str:
    return ABSENT if value is None else f"{value * 100:.0f} %"


def short_target(target: str) -> str:
    """The last part of a folder or a name."""
    return clean(target.rstrip("/").rpartition("/")[2] or target) or ABSENT


def elapsed(stage: StageCourse, began_unix: float | None, now_unix: float) -> float | None:
    """What a stage took, or takes so far."""
    if stage.state == "running":
        return None if began_unix is None else max(0.0, now_unix - began_unix)
    return stage.took_s


def stage_words(stage: StageCourse, story: Story, *, over: bool = False) -> str:
    """What a stage does, or what it came to."""
    if over and stage.state == "running":
        return "went without a word"
    step = story.newest
    if stage.name == "train" and stage.state != "done" and step is not None and not stage.doing:
        wanted = story.wanted_steps
        per_epoch = story.steps_per_epoch
        of = "" if wanted is None else f" of {wanted}"
        epoch = f", epoch {step.epoch + 1}" if per_epoch else ""
        return f"step {step.step}{of}{epoch}"
    facts = stage.facts
    if stage.state == "running":
        return stage.doing
    parts = []
    for name, word in _FACTS.get(stage.name, ()):
        value = facts.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            parts.append(word.format(value))
        elif isinstance(value, str):
            parts.append(word.format(clean(value)))
    return ", ".join(parts)


_FACTS: dict[str, tuple[tuple[str, str], ...]] = {
    "data": (
        ("prompts", "{:.0f} prompts"),
        ("trained_tokens", "{:.0f} tokens"),
        ("heldout", "{:.0f} held out"),
    ),
    "extraction": (("mode", "{}"), ("probe_ms", "probe {:.0f} ms"), ("rows", "{:.0f} rows")),
    "train": (("steps", "{:.0f} steps"), ("predicted_acceptance_length", "predicts AL {:.2f}")),
}


def remaining(story: Story) -> str:
    """How much longer training takes, from the last steps; empty where that is not known."""
    step, wanted = story.newest, story.wanted_steps
    recent = [one.step_ms for one in story.recent if one.step_ms is not None]
    if step is None or wanted is None or not recent or wanted <= step.step:
        return ""
    return f"{seconds((wanted - step.step) * sum(recent) / len(recent) / 1000)} left"


def headline(story: Story, run: TrainingRun | None, glyphs: Glyphs, busy: str) -> Line:
    """What is trained, for whom, and how it stands."""
    arrow = "->" if glyphs.name == "ascii" else "→"
    name = story.name or (run.recipe if run else "")
    spans: list[Span] = [(f" {clean(name)}", "strong")]
    algorithm = clean(story.algorithm or (run.algorithm if run else ""))
    target = short_target(story.target or (run.target if run else ""))
    spans.append((f"  {algorithm} {arrow} {target}", "muted"))
    state = "running" if run is None else run.state
    glyph, word, ink = RUNS[state]
    spans.append((f"  {glyphs.states[glyph]} {word}", ink))
    if state == "running" and story.saving:
        spans.append((" and saving", "warn"))
    step, wanted = story.newest, story.wanted_steps
    if step is not None:
        of = "" if wanted is None else f"/{wanted}"
        spans += [("  step ", "muted"), (f"{step.step}{of}", "strong")]
        if state == "running" and (left := remaining(story)):
            spans.append((f"  {left}", "muted"))
    if run is not None and can_resume(run):
        spans.append(("  can be resumed", "good"))
    if busy:
        spans.append((f"  {busy}", "warn"))
    return tuple(spans)


def chosen_checkpoint(story: Story, step: int | None) -> KeptCheckpoint | None:
    """The checkpoint of a step; the best, else the last, where that is none."""
    if step is not None and step in story.checkpoints:
        return story.checkpoints[step]
    kept = sorted(story.checkpoints.values(), key=lambda one: one.step)
    best = next((one for one in kept if one.best), None)
    return best or (kept[-1] if kept else None)


def served_length(path: Path, promotions: Sequence[Promotion]) -> float | None:
    """What serving last showed of a checkpoint."""
    for one in reversed(promotions):
        if one.candidate == str(path) and one.gain is not None:
            return one.gain.candidate
    return None


def promotions_of(root: Path, promotions: Sequence[Promotion]) -> list[Promotion]:
    """Attempts with checkpoints of one run, the newest first."""
    inside = f"{root}/"
    return [one for one in reversed(promotions) if one.candidate.startswith(inside)]


def when(unix: float | None) -> str:
    return ABSENT if unix is None else time.strftime("%m-%d %H:%M", time.localtime(unix))
