"""The bars of the Train screen: accuracy by position, and where a step's time goes."""

from collections.abc import Sequence

from specpanel.app.run_words import ABSENT
from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.ink import Line, Span, fit
from specpanel.app.tui.widgets.pane import Pane
from specpanel.core.training.alarms import STARVED
from specpanel.core.training.line_values import mean
from specpanel.core.training.records import PositionAccuracy
from specpanel.core.training.story import Story


def bar(rate: float, cells: int, glyphs: Glyphs, ink: str) -> list[Span]:
    """A bar of ``cells`` for a rate of 0 to 1."""
    steps = len(glyphs.bar)
    full, part = divmod(round(min(1.0, max(0.0, rate)) * cells * steps), steps)
    text = glyphs.bar[-1] * full + (glyphs.bar[part - 1] if part else "")
    return [(text, ink), (glyphs.bar_track * (cells - len(text)), "grid")]


class _StoryPane(Pane):
    """A pane that draws the story that it was given last."""

    def __init__(self, title: str, *, glyphs: Glyphs, id: str) -> None:
        super().__init__(title, glyphs=glyphs, id=id)
        self._story: Story | None = None

    def place_at(self, row: int) -> int | None:
        return 0

    def show(self, story: Story) -> None:
        self._story = story
        self.redraw()


class AccuracyBars(_StoryPane):
    """Accuracy by position: the newest validation above, the last steps below it."""

    def __init__(self, *, glyphs: Glyphs) -> None:
        super().__init__("Accuracy by position", glyphs=glyphs, id="train-positions")
        self.conditional = False

    def toggle_conditional(self) -> None:
        self.conditional = not self.conditional
        self.redraw()

    def legend(self) -> Line:
        kind = "given previous" if self.conditional else "of all drafts"
        return ((kind, "muted"),)

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        story = self._story
        if story is None:
            return []
        validation = {one.position: one for one in story.validation_positions}
        train = _mean_positions(story)
        places = sorted(validation.keys() | train.keys())
        if not places:
            return [fit(((" n/a: no accuracy is logged yet", "muted"),), width)]
        each = 2 if len(places) * 2 <= height else 1
        rows: list[Line] = []
        for place in places[: max(1, height // each)]:
            shown_rows = [("valid", validation.get(place), "series-2")]
            if each == 2 or place not in validation:
                shown_rows.append(("train", train.get(place), "series-1"))
            if each == 1 and place not in validation:
                shown_rows = shown_rows[1:]
            for number, (word, one, ink) in enumerate(shown_rows):
                label = f"{place + 1:>3} " if number == 0 else "    "
                rows.append(self._row(label, word, one, ink, width))
        hidden = len(places) - max(1, height // each)
        if hidden > 0 and rows:
            rows[-1] = fit(((f"     {hidden + 1} more positions: z zooms", "muted"),), width)
        return rows[:height]

    def _row(
        self, label: str, word: str, one: PositionAccuracy | None, ink: str, width: int
    ) -> Line:
        rate = None if one is None else one.conditional if self.conditional else one.unconditional
        head: Line = ((label, "muted"), (f"{word} ", "muted"))
        if rate is None:
            return fit((*head, (ABSENT, "muted")), width)
        cells = max(4, width - 19)
        spans = [*head, *bar(rate, cells, self.glyphs, ink), (f" {rate * 100:5.1f} %", "strong")]
        return fit(spans, width, self.glyphs.ellipsis)


def _mean_positions(story: Story) -> dict[int, PositionAccuracy]:
    """Means over the last steps, by position."""
    found: dict[int, list[PositionAccuracy]] = {}
    for step in story.recent:
        for one in step.positions:
            found.setdefault(one.position, []).append(one)
    return {
        place: PositionAccuracy(
            place,
            sum(one.unconditional for one in many) / len(many),
            mean([one.conditional for one in many]),
        )
        for place, many in found.items()
    }


class TimeBars(_StoryPane):
    """Where the time of the last steps goes; waiting for hidden states first."""

    def __init__(self, *, glyphs: Glyphs) -> None:
        super().__init__("A step's time", glyphs=glyphs, id="train-times")

    def legend(self) -> Line:
        story = self._story
        recent = [] if story is None else story.recent
        whole = mean([one.step_ms for one in recent])
        if whole is None:
            return ()
        return ((f"{whole:.0f} ms", "strong"), (f" mean of {len(recent)}", "muted"))

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        story = self._story
        if story is None:
            return []
        parts = _times(story)
        if not parts:
            return [fit(((" n/a: no step has told its times yet", "muted"),), width)]
        waiting = story.waiting_share()
        starved = waiting is not None and waiting > STARVED
        rows = []
        for number, (word, ms, part) in enumerate(parts[:height]):
            ink = "warn" if number == 0 and starved else f"series-{number % 5 + 1}"
            cells = max(4, width - 28)
            spans: list[Span] = [(f" {word:<10}", "warn" if number == 0 and starved else "muted")]
            spans += bar(part, cells, self.glyphs, ink)
            spans += [(f" {part * 100:3.0f} %", "strong"), (f" {ms:7.1f} ms", "muted")]
            rows.append(fit(spans, width, self.glyphs.ellipsis))
        return rows


def _times(story: Story) -> list[tuple[str, float, float]]:
    """Part, mean milliseconds and share of the whole step."""
    recent = story.recent
    whole = mean([one.step_ms for one in recent])
    if not whole:
        return []
    named = (
        ("waiting", mean([one.fetch_ms for one in recent])),
        ("forward", mean([one.forward_ms for one in recent])),
        ("backward", mean([one.backward_ms for one in recent])),
        ("optimiser", mean([one.optimiser_ms for one in recent])),
    )
    there = [(word, ms, ms / whole) for word, ms in named if ms is not None]
    rest = whole - sum(ms for _, ms, _ in there)
    if rest / whole > 0.005:
        there.append(("the rest", rest, rest / whole))
    return there
