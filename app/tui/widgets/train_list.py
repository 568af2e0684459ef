"""Recipes to begin and trainings that there are: one list with one cursor."""

from collections.abc import Sequence
from pathlib import Path

from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.ink import Line, Span, clean, fit, shorten
from specpanel.app.tui.train_words import RUNS, RecipeEntry, can_resume, shown, when
from specpanel.app.tui.widgets.pane import Pane
from specpanel.core.training.runs import TrainingRun

Entry = RecipeEntry | TrainingRun

_LONG = 60


def key_of(entry: Entry) -> str | Path:
    """What stays the same over a rereading."""
    return entry.root if isinstance(entry, TrainingRun) else entry.name


class TrainList(Pane):
    """Trainings first, those that run on top, then the recipes."""

    def __init__(self, *, glyphs: Glyphs = BRAILLE) -> None:
        super().__init__("Trainings", glyphs=glyphs, id="train-list")
        self.runs: tuple[TrainingRun, ...] = ()
        self.recipes: tuple[RecipeEntry, ...] = ()
        self.reading = True
        self._cursor = 0
        self._places: list[int | None] = []

    def place_at(self, row: int) -> int | None:
        return self._places[row - 1] if 0 < row <= len(self._places) else None

    def put(self, runs: Sequence[TrainingRun], recipes: Sequence[RecipeEntry]) -> None:
        """Takes what was read; the cursor stays on what it is on."""
        chosen = self.chosen
        first = not self.entries
        running = [run for run in runs if run.state == "running"]
        self.runs = (*running, *(run for run in runs if run.state != "running"))
        self.recipes, self.reading = tuple(recipes), False
        if chosen is not None and not first:
            self.choose(key_of(chosen))
        self.redraw()

    def choose(self, key: str | Path) -> bool:
        """Puts the cursor on an entry; whether it is there."""
        keys = [key_of(entry) for entry in self.entries]
        if key in keys:
            self._cursor = keys.index(key)
        return key in keys

    @property
    def entries(self) -> list[Entry]:
        return [*self.runs, *self.recipes]

    @property
    def cursor(self) -> int:
        return max(0, min(self._cursor, len(self.entries) - 1))

    @property
    def chosen(self) -> Entry | None:
        entries = self.entries
        return entries[self.cursor] if entries else None

    def move(self, step: int) -> None:
        self._cursor = max(0, min(len(self.entries) - 1, self.cursor + step))
        self.redraw()

    def legend(self) -> Line:
        if self.reading:
            return (("reading", "warn"),)
        running = sum(run.state == "running" for run in self.runs)
        return ((f"{running} running", "good"),) if running else ()

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        self._places = []
        rows: list[Line] = []
        places: list[int | None] = []
        at = number = 0
        for heading, group in (("TRAININGS", self.runs), ("RECIPES", self.recipes)):
            if group and height > 2:
                rows.append(((f"   {heading}", "brand"),))
                places.append(None)
            for entry in group:
                if number == self.cursor:
                    at = len(rows)
                rows.append(self._row(entry, width, number == self.cursor))
                places.append(number)
                number += 1
        top = max(0, min(at - height // 2, len(rows) - height))
        self._places = places[top : top + height]
        return rows[top : top + height]

    def _row(self, entry: Entry, width: int, chosen: bool) -> Line:
        pointer = (">" if self.glyphs.name == "ascii" else "▸") if chosen else " "
        ink = "title-selected" if chosen else "text"
        head: Line = ((pointer, "key"),)
        if isinstance(entry, RecipeEntry):
            return fit((*head, *self._recipe(entry, ink)), width, self.glyphs.ellipsis)
        return fit((*head, *self._run(entry, width - 1, ink)), width, self.glyphs.ellipsis)

    def _recipe(self, entry: RecipeEntry, ink: str) -> Line:
        if entry.error:
            sign = self.glyphs.states["exited"]
            return ((f"  {clean(entry.name)}", ink), (f"  {sign} {clean(entry.error)}", "bad"))
        return (
            (f"  {clean(entry.name)}", ink),
            (f"  {clean(entry.algorithm)}", "muted"),
            (f"  {clean(entry.description)}", "faint"),
        )

    def _run(self, run: TrainingRun, width: int, ink: str) -> Line:
        glyph, word, tone = RUNS[run.state]
        right: list[Span] = [(f" {when(run.began_unix)}", "muted")]
        if width >= _LONG:
            done = "" if run.steps is None else f"{run.steps} steps"
            length = "" if run.predicted is None else f"AL {shown(run.predicted)}"
            right += [
                (f"  {done:>11}", ink),
                (f"  {length:<7}", ink),
                (f"  {word:<10}", tone),
                ("can be resumed" if can_resume(run) else " " * 14, "good"),
            ]
        else:
            right.append((f" {word:<10}", tone))
            right.append((" +" if can_resume(run) else "  ", "good"))
        taken = sum(len(text) for text, _ in right)
        room = max(6, width - 2 - taken)
        name = fit(((shorten(clean(run.recipe), room, self.glyphs.ellipsis), ink),), room)
        return ((f"{self.glyphs.states[glyph]} ", tone), *name, *right)
