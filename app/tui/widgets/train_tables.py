"""The tables of the Train screen: checkpoints with what serving shows of them, and what a run is to do."""

from collections.abc import Iterator, Sequence

from specpanel.app.run_words import ABSENT
from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.ink import Line, Span, clean, fit, wrap
from specpanel.app.tui.train_words import (
    Fact,
    chosen_checkpoint,
    promotions_of,
    served_length,
    shown,
    when,
)
from specpanel.app.tui.widgets.pane import Pane
from specpanel.core.training.audit import Promotion
from specpanel.core.training.judging import LARGEST_GAP
from specpanel.core.training.runs import TrainingRun
from specpanel.core.training.story import Story
from specpanel.core.training.story_parts import KeptCheckpoint

_INTERVALS_FROM = 54
_LABEL = 11
_RESULT_INKS = {
    "promoted": "good",
    "measured": "text",
    "rolled back": "warn",
    "kept the old one": "muted",
    "refused": "bad",
    "failed": "bad",
    "interrupted": "warn",
    "on trial": "warn",
}


class CheckpointTable(Pane):
    """A row a kept checkpoint: what its trainer foretold, what serving shows, the gap. Then promotions."""

    def __init__(self, *, glyphs: Glyphs = BRAILLE) -> None:
        super().__init__("Checkpoints", glyphs=glyphs, id="train-checkpoints")
        self._story: Story | None = None
        self._run: TrainingRun | None = None
        self._promotions: tuple[Promotion, ...] = ()
        self.step: int | None = None  # of the chosen checkpoint; None takes the best

    def place_at(self, row: int) -> int | None:
        return 0

    def show(
        self, story: Story | None, run: TrainingRun | None, promotions: Sequence[Promotion]
    ) -> None:
        if run is None or self._run is None or run.root != self._run.root:
            self.step = None
        self._story, self._run, self._promotions = story, run, tuple(promotions)
        self.redraw()

    @property
    def checkpoint(self) -> KeptCheckpoint | None:
        """The chosen one."""
        return None if self._story is None else chosen_checkpoint(self._story, self.step)

    def choose_next(self) -> None:
        """The checkpoint before the chosen one, and round again from the last."""
        if self._story is None or self.checkpoint is None:
            return
        steps = sorted(self._story.checkpoints, reverse=True)
        at = steps.index(self.checkpoint.step)
        self.step = steps[(at + 1) % len(steps)]
        self.redraw()

    def legend(self) -> Line:
        story = self._story
        return ((f"{len(story.checkpoints)} kept", "muted"),) if story and story.checkpoints else ()

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        story = self._story
        if story is None:
            return []
        if not story.checkpoints:
            text = " none is kept yet" if self._run is None or self._run.owner else " none was kept"
            return [fit(((text, "muted"),), width)]
        wide = width >= _INTERVALS_FROM
        below = list(self._below(story, width))
        room = max(2, height - min(len(below), max(0, height // 2)))
        rows = [_heading(wide), *self._rows(story, wide, room - 1)]
        rows += below[: height - len(rows)]
        return [fit(row, width, self.glyphs.ellipsis) for row in rows]

    def _rows(self, story: Story, wide: bool, room: int) -> Iterator[Line]:
        """The newest last; the chosen one is always among them."""
        chosen = self.checkpoint
        kept = sorted(story.checkpoints.values(), key=lambda one: -one.step)
        at = next((n for n, one in enumerate(kept) if chosen and one.step == chosen.step), 0)
        top = max(0, min(at - room // 2, len(kept) - room))
        for one in kept[top : top + room]:
            yield self._row(story, one, wide, chosen is not None and one.step == chosen.step)

    def _row(self, story: Story, one: KeptCheckpoint, wide: bool, chosen: bool) -> Line:
        pointer = (">" if self.glyphs.name == "ascii" else "▸") if chosen else " "
        served = story.served.get(one.step)
        length = served.heldout if served else served_length(one.path, self._promotions)
        gap = length / one.predicted - 1 if length is not None and one.predicted else None
        large = gap is not None and gap < -LARGEST_GAP
        star = "*" if one.best else " "
        ink = "title-selected" if chosen else "text"
        spans: list[Span] = [
            (f"{pointer}", "key"),
            (f"{one.step:>6}{star}", ink),
            (f" {shown(one.validation_loss):>6}", "text"),
            (f" {shown(one.predicted):>6}", "text"),
        ]
        if served is not None and served.failure:
            return (*spans, (f"  {clean(served.failure)}", "bad"))
        text = shown(length)
        spans.append((f" {text:>6}", "strong" if length is not None else "muted"))
        if wide:
            low, high = (served.low, served.high) if served else (None, None)
            between = "" if low is None or high is None else f"{low:.2f} .. {high:.2f}"
            spans.append((f"  {between:<12}", "muted"))
        sign = ABSENT if gap is None else f"{gap * 100:+.0f} %"
        spans.append((f" {sign:>6}", "warn" if large else "muted"))
        return tuple(spans)

    def _below(self, story: Story, width: int) -> Iterator[Line]:
        """Why a gap is large, and what was promoted."""
        for served in sorted(story.served.values(), key=lambda one: -one.step):
            if served.gap is not None:
                ink = "warn" if served.gap < -LARGEST_GAP else "good"
                yield (
                    (f" {served.step:>7}  ", "muted"),
                    (f"train-to-serve {served.gap * 100:+.1f} %", ink),
                    (f" ({shown(served.validation)} on val.)", "muted"),
                )
            for cause in served.causes[:2]:
                for part in wrap(clean(f"step {served.step}: {cause}"), max(10, width - 2)):
                    yield ((f" {part}", "warn"),)
        if self._run is None:
            return
        for one in promotions_of(self._run.root, self._promotions):
            step = clean(one.candidate.rpartition("/")[2])
            ink = _RESULT_INKS.get(one.result, "text")
            pause = "" if one.paused_s is None else f", paused {one.paused_s:.2f} s"
            yield (
                (f" {when(one.unix)} ", "muted"),
                (one.result, ink),
                (f" {step} on {clean(one.server)}{pause}", "muted"),
            )
        if story.served or any(one.best for one in story.checkpoints.values()):
            yield ((" * best in validation", "faint"),)


def _heading(wide: bool) -> Line:
    between = f"  {'95 %':<12}" if wide else ""
    return ((f"   step    loss  foret. served{between}    gap", "muted"),)


class PlanTable(Pane):
    """The recipe in a few rows, and which devices do what."""

    def __init__(self, *, glyphs: Glyphs = BRAILLE) -> None:
        super().__init__("Plan", glyphs=glyphs, id="train-plan")
        self._facts: tuple[Fact, ...] = ()

    def place_at(self, row: int) -> int | None:
        return 0

    def show(self, facts: Sequence[Fact]) -> None:
        self._facts = tuple(facts)
        self.redraw()

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        rows: list[Line] = []
        for fact in self._facts:
            parts = wrap(clean(fact.text), max(8, width - _LABEL - 2)) or [""]
            for number, part in enumerate(parts[:3]):
                label = fact.label if number == 0 else ""
                rows.append(((f" {label:<{_LABEL}}", "muted"), (part, fact.ink)))
        if len(rows) > height:
            rows = [*rows[: height - 1], ((" z shows the rest", "faint"),)]
        return [fit(row, width, self.glyphs.ellipsis) for row in rows]
