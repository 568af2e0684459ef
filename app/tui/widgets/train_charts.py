"""The line charts of the Train screen: a figure over the steps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specpanel.app.run_words import ABSENT
from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.charts.line_plot import Reference, Series
from specpanel.app.tui.charts.step_plot import StepPlot
from specpanel.app.tui.figures import grouped
from specpanel.app.tui.ink import Line, Span
from specpanel.app.tui.widgets.pane import Pane
from specpanel.core.training.curve import Curve
from specpanel.core.training.story import Story

_FEWEST_STEPS = 10
_LONG_TITLE_FROM = 60


@dataclass(frozen=True, slots=True)
class StepSubject:
    """One chart: its lines, where they come from, and how a value is written."""

    id: str
    title: str
    short_title: str
    series: tuple[Series, ...]
    curves: Callable[[Story], tuple[Curve, ...]]
    show_value: Callable[[float], str]
    low: float | None = None
    high: float | None = None
    reference: Reference | None = None


def _rate(value: float) -> str:
    return f"{value:.1e}"


SUBJECTS: dict[str, StepSubject] = {
    one.id: one
    for one in (
        StepSubject(
            "loss",
            "Loss",
            "Loss",
            (Series("train", "series-1", 1), Series("val", "series-2", 0)),
            lambda story: (story.loss, story.validation_loss),
            lambda value: f"{value:.2f}",
        ),
        StepSubject(
            "length",
            "Expected acceptance length",
            "Exp. AL",
            (Series("train", "series-1", 1), Series("val", "series-2", 0)),
            lambda story: (story.length, story.validation_length),
            lambda value: f"{value:.2f}",
            low=1.0,
            high=2.0,
            reference=Reference(1.0, "nothing accepted"),
        ),
        StepSubject(
            "rate",
            "Learning rate",
            "Learning rate",
            (Series("lr", "series-3", 0),),
            lambda story: (story.learning_rate,),
            _rate,
            low=0.0,
            high=1e-5,
        ),
        StepSubject(
            "speed",
            "Tokens/s",
            "Tokens/s",
            (Series("trained", "series-1", 0),),
            lambda story: (story.tokens_per_s,),
            lambda value: grouped(value),
            low=0.0,
            high=10.0,
        ),
    )
}


class StepChart(Pane):
    """Lines over the steps of the story that ``show`` was given last."""

    def __init__(self, subject: StepSubject, *, glyphs: Glyphs, patterns: bool) -> None:
        super().__init__(subject.title, glyphs=glyphs, id=f"train-{subject.id}")
        self.subject = subject
        self.plot = StepPlot(
            subject.series,
            glyphs=glyphs,
            low=subject.low,
            high=subject.high,
            patterns=patterns,
            reference=subject.reference,
        )
        self._story: Story | None = None
        self._over = False
        self._taken: tuple[tuple[int, int], ...] = ()  # of each curve: remade, points taken
        self._steps = 0

    def place_at(self, row: int) -> int | None:
        return 0

    def wear(self, *, patterns: bool) -> None:
        """Whether lines differ by dash pattern from now on."""
        if patterns != self.plot.patterns:
            self.plot.patterns = patterns
            self.redraw()

    def show(self, story: Story, *, over: bool) -> None:
        """``over``: no step comes any more, so the axis ends at the last one."""
        if story is not self._story or over != self._over:
            self._taken = ()
        self._story, self._over = story, over
        self._feed()
        self.redraw()

    def _feed(self) -> None:
        story = self._story
        if story is None:
            return
        curves = self.subject.curves(story)
        last = max((curve.last_step or 0 for curve in curves), default=0)
        wanted = (0 if self._over else story.wanted_steps) or 0
        steps = max(_FEWEST_STEPS, last, wanted)
        marks = tuple((curve.remade, len(curve)) for curve in curves)
        same = [before[0] == now[0] for before, now in zip(self._taken, marks, strict=False)]
        if len(same) != len(marks) or not all(same) or steps != self._steps:
            self.plot.resize(*self.inside_size(), steps)
            self._steps, before = steps, [0] * len(curves)
        else:
            before = [taken - 1 for _, taken in self._taken]
        self.plot.put([curve.since(index) for curve, index in zip(curves, before, strict=True)])
        self._taken = marks
        reading = "no step yet" if not self._over else "no step was done"
        self.plot.empty_reason = "" if any(len(curve) for curve in curves) else f"n/a: {reading}"

    def on_resize(self) -> None:
        long = self.size.width >= _LONG_TITLE_FROM
        self.title = self.subject.title if long else self.subject.short_title
        self.forget_rows()
        self.reload()

    def reload(self) -> None:
        self._taken = ()
        self._feed()
        self.redraw()

    def move_cursor(self, columns: int) -> None:
        self.plot.move_cursor(columns)
        self.redraw()

    def drop_cursor(self) -> None:
        self.plot.cursor = None
        self.redraw()

    def legend(self) -> Line:
        story = self._story
        if story is None:
            return ()
        step = self.plot.step_under_cursor()
        curves = self.subject.curves(story)
        values = [curve.last if step is None else curve.at(step) for curve in curves]
        spans: list[Span] = [] if step is None else [(f"step {step}  ", "strong")]
        for series, value in reversed(list(zip(self.plot.series, values, strict=True))):
            sample = self.glyphs.sample
            if self.plot.patterns:
                sample = self.glyphs.dashes[series.dash % len(self.glyphs.dashes)]
            text = ABSENT if value is None else self.subject.show_value(value)
            spans += [(f"{sample} ", series.ink), (f"{series.name} ", "muted")]
            spans.append((f"{text} ", "muted" if value is None else "strong"))
        return tuple(spans)

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        if self._story is None:
            return []
        return self.plot.draw()
