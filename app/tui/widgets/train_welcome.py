"""What stands in the place of the charts where a recipe is chosen, or nothing was trained yet."""

from collections.abc import Sequence

from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.ink import Line, Span, clean, fit, wrap
from specpanel.app.tui.train_words import RecipeEntry
from specpanel.app.tui.widgets.pane import Pane


class Welcome(Pane):
    """What to do where there is no training yet."""

    def __init__(self, *, glyphs: Glyphs = BRAILLE) -> None:
        super().__init__("Train a drafter", glyphs=glyphs, id="train-welcome")
        self._rows: tuple[Span, ...] = ()

    def show(self, rows: Sequence[Span]) -> None:
        self._rows = tuple(rows)
        self.redraw()

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        wrapped: list[Line] = []
        for text, ink in self._rows:
            wrapped += [((f"  {part}", ink),) for part in wrap(clean(text), max(10, width - 4))]
        above = max(0, (height - len(wrapped)) // 3)
        rows: list[Line] = [*([()] * above), *wrapped]
        return [fit(row, width, self.glyphs.ellipsis) for row in rows[:height]]


def welcome_words(
    entry: RecipeEntry | None, *, first: bool, start: str, reread: str
) -> Sequence[Span]:
    """How to begin with the recipe; ``first``: nothing was trained yet. The last two are keys."""
    if entry is None:
        return (("Reading trainings and recipes.", "muted"),)
    if entry.error:
        return ((entry.error, "bad"), (f"Mend the file, then {reread} reads it again.", "muted"))
    words: list[Span] = [("No training yet.", "strong"), ("", "text")] if first else []
    return (
        *words,
        (
            f"{start} trains {entry.name}: the target answers the prompts, its hidden states are "
            "taken out of it, and Speculators trains on both. It asks for steps first.",
            "text",
        ),
        ("", "text"),
        ("It runs in a process of its own, and goes on when this panel is left.", "muted"),
        (f"Without the panel: specpanel train {entry.name}", "muted"),
        ("A training that was started elsewhere appears here by itself.", "muted"),
        ("", "text"),
        ("Recipes of your own: ~/.config/specpanel/recipes/NAME.toml (docs/training.md)", "faint"),
    )
