"""Above the charts: how the training stands, stage by stage. Below them: alarms and the log's last line."""

import time
from collections.abc import Sequence

from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.ink import Line, Span, clean, fit, spread, width_of, wrap
from specpanel.app.tui.train_words import (
    SEVERITIES,
    STAGES,
    RecipeEntry,
    elapsed,
    headline,
    seconds,
    stage_words,
)
from specpanel.app.tui.widgets.pane import Pane
from specpanel.core.training.alarms import Trouble
from specpanel.core.training.runs import TrainingRun
from specpanel.core.training.story import Story
from specpanel.core.training.story_parts import StageCourse

_NAME = 11


class _Strip(Pane):
    """A pane that is only its rows where there is no room for a frame."""

    def compose_rows(self, width: int, height: int) -> Sequence[Line]:
        if self.framed and height > 2:
            return super().compose_rows(width, height)
        return self.compose_inside(width, height)


class TrainHead(_Strip):
    """A headline, and the stages: a row each where there is room, else all in one."""

    def __init__(self, *, glyphs: Glyphs = BRAILLE) -> None:
        super().__init__("Stages", glyphs=glyphs, id="train-head")
        self._story: Story | None = None
        self._run: TrainingRun | None = None
        self._recipe: RecipeEntry | None = None
        self._began_unix: float | None = None
        self._busy = ""

    def show(
        self, story: Story, run: TrainingRun | None, *, began_unix: float | None, busy: str
    ) -> None:
        """``began_unix`` is of the running stage; ``busy`` says what the screen is about."""
        self._story, self._run, self._recipe = story, run, None
        self._began_unix, self._busy = began_unix, busy
        self.redraw()

    def show_recipe(self, recipe: RecipeEntry | None) -> None:
        self._story = self._run = None
        self._recipe = recipe
        self.redraw()

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        story = self._story
        if story is None:
            return self._of_recipe(width)
        rows: list[Line] = [headline(story, self._run, self.glyphs, self._busy)]
        stages = list(story.shown_stages())
        if height > len(stages):
            rows += [self._stage(stage, story, width) for stage in stages]
        elif height > 1:
            rows.append(self._in_one(stages, width))
        return [fit(row, width, self.glyphs.ellipsis) for row in rows]

    def _of_recipe(self, width: int) -> Sequence[Line]:
        recipe = self._recipe
        if recipe is None:
            return []
        rows: list[Line] = [
            ((f" {clean(recipe.name)}", "strong"), (f"  {clean(recipe.algorithm)}", "muted")),
            ((f" {clean(recipe.description)}", "text"),),
        ]
        return [fit(row, width, self.glyphs.ellipsis) for row in rows]

    @property
    def _over(self) -> bool:
        return self._run is not None and self._run.state != "running"

    def _glyph(self, stage: StageCourse) -> tuple[str, str, str]:
        if self._over and stage.state == "running":
            return self.glyphs.states["warning"], "cut off", "warn"
        if self._over and stage.state == "waiting":
            return self.glyphs.states["stopped"], "not done", "muted"
        glyph, word, ink = STAGES[stage.state]
        return self.glyphs.states[glyph], word, ink

    def _took(self, stage: StageCourse) -> str:
        if self._over and stage.state == "running":
            return ""
        took = elapsed(stage, self._began_unix, time.time())
        return "" if took is None else seconds(took)

    def _stage(self, stage: StageCourse, story: Story, width: int) -> Line:
        glyph, word, ink = self._glyph(stage)
        doing = clean(stage_words(stage, story, over=self._over))
        return (
            (f" {glyph} ", ink),
            (f"{stage.name:<{_NAME}}", "text"),
            (f"{word:<10}", ink),
            (f"{self._took(stage):>8}  ", "strong"),
            (doing, "muted"),
        )

    def _in_one(self, stages: Sequence[StageCourse], width: int) -> Line:
        """All in a row; where that is too long, the word of those that are done is left out."""
        for brief in (False, True):
            spans: list[Span] = []
            for stage in stages:
                glyph, word, ink = self._glyph(stage)
                said = "" if brief and stage.state in ("done", "as before") else f" {word}"
                took = self._took(stage)
                spans += [(f" {glyph} ", ink), (stage.name, "text"), (said, ink)]
                spans.append((f" {took} " if took else " ", "strong"))
            if width_of(spans) <= width:
                break
        return tuple(span for span in spans if span[0])


class TrainFoot(_Strip):
    """The worst alarm with its fix, how many more there are, and what the log said last."""

    def __init__(self, *, glyphs: Glyphs = BRAILLE) -> None:
        super().__init__("Alarms and log", glyphs=glyphs, id="train-foot")
        self._alarms: tuple[Trouble, ...] = ()
        self._log_line = ""
        self._quiet = ""

    def show(self, alarms: Sequence[Trouble], log_line: str, quiet: str) -> None:
        """``quiet`` is said where there is no alarm."""
        self._alarms, self._log_line, self._quiet = tuple(alarms), log_line, quiet
        self.redraw()

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        if height < 2:
            return [self._alarm(width) if self._alarms else self._log(width)]
        alarms = self._wrapped(width, height - 1) if height > 2 else [self._alarm(width)]
        return [*alarms, self._log(width)]

    def _alarm(self, width: int) -> Line:
        if not self._alarms:
            return fit(((f" {clean(self._quiet)}", "muted"),), width, self.glyphs.ellipsis)
        worst, more = self._alarms[0], len(self._alarms) - 1
        glyph, ink = SEVERITIES[worst.severity]
        text = clean(f"{worst.text}. {worst.fix}".removesuffix(". "))
        right: Line = ((f" and {more} more ", "muted"),) if more else ()
        left: Line = ((f" {self.glyphs.states[glyph]} ", ink), (text, ink))
        return spread(left, right, width, self.glyphs.ellipsis)

    def _wrapped(self, width: int, height: int) -> list[Line]:
        if not self._alarms:
            return [self._alarm(width)]
        rows: list[Line] = []
        for one in self._alarms:
            glyph, ink = SEVERITIES[one.severity]
            text = clean(f"{one.text}. {one.fix}".removesuffix(". "))
            for number, part in enumerate(wrap(text, max(10, width - 4))):
                mark = self.glyphs.states[glyph] if number == 0 else " "
                rows.append(((f" {mark} ", ink), (part, ink)))
        return rows[:height]

    def _log(self, width: int) -> Line:
        text = clean(self._log_line)
        words: Line = ((" log ", "muted"), (text, "text")) if text else ((" ", "muted"),)
        return fit(words, width, self.glyphs.ellipsis)
