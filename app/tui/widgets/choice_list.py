"""The two halves of the switcher: what can be changed to, and what the chosen change means."""

from collections.abc import Sequence
from dataclasses import dataclass

from textual.fuzzy import FuzzySearch

from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.ink import Line, Span, clean, fit, shorten, width_of, wrap
from specpanel.app.tui.widgets.canvas import Canvas
from specpanel.app.tui.widgets.pane import Pane
from specpanel.core.errors import SpecpanelError
from specpanel.core.session.choices import Choice
from specpanel.core.session.switching import SwitchPlan

_MATCHED_CELLS = 80
_KIND_CELLS = 9
_SETTING_CELLS = 26


@dataclass(frozen=True, slots=True)
class Hit:
    """A choice that the query fits; ``places`` are the matched characters of its name."""

    choice: Choice
    places: frozenset[int]


def hits(found: Sequence[Choice], query: str) -> tuple[Hit, ...]:
    """The choices that ``query`` fits, best first; all in their order where it is empty."""
    if not query.strip():
        return tuple(Hit(choice, frozenset()) for choice in found)
    search = FuzzySearch()
    scored = []
    for choice in found:
        text = f"{clean(choice.name)} {choice.kind} {clean(choice.about)}"[:_MATCHED_CELLS]
        score, places = search.match(query.strip(), text)
        if score > 0:
            scored.append((score, Hit(choice, frozenset(places))))
    return tuple(hit for _, hit in sorted(scored, key=lambda pair: -pair[0]))


class ChoiceList(Canvas):
    """One row a choice: name, kind and what it is; the chosen one stays in sight."""

    def __init__(self, *, glyphs: Glyphs) -> None:
        super().__init__(id="choices")
        self.glyphs = glyphs
        self.hits: tuple[Hit, ...] = ()
        self.chosen = 0
        self.empty_words = "Looking for profiles and servers"
        self._top = 0

    @property
    def choice(self) -> Choice | None:
        return self.hits[self.chosen].choice if self.chosen < len(self.hits) else None

    def show(self, found: tuple[Hit, ...]) -> None:
        self.hits, self.chosen, self._top = found, 0, 0
        self.empty_words = "Nothing fits"
        self.redraw()

    def move(self, rows: int) -> None:
        self.chosen = max(0, min(len(self.hits) - 1, self.chosen + rows))
        self.redraw()

    def place_at(self, row: int) -> int | None:
        return self._top + row if self._top + row < len(self.hits) else None

    def compose_rows(self, width: int, height: int) -> Sequence[Line]:
        if not self.hits:
            return [((f" {self.empty_words}", "muted"),)]
        self._top = max(min(self._top, self.chosen), self.chosen - height + 1, 0)
        names = max(16, min(34, width // 3))
        return [
            self._row(number, names, width)
            for number in range(self._top, min(len(self.hits), self._top + height))
        ]

    def _row(self, number: int, names: int, width: int) -> Line:
        hit = self.hits[number]
        chosen = number == self.chosen
        pointer = (">" if self.glyphs.name == "ascii" else "▸") if chosen else " "
        name = shorten(clean(hit.choice.name), names, self.glyphs.ellipsis)
        plain = "title-selected" if chosen else "strong"
        spans: list[Span] = [
            (char, "key" if place in hit.places else plain) for place, char in enumerate(name)
        ]
        row: list[Span] = [(f"{pointer} ", "key"), *fit(spans, names), ("  ", "text")]
        row.append((f"{hit.choice.kind:<{_KIND_CELLS}} ", "muted"))
        row.append((clean(hit.choice.about), "bad" if hit.choice.error else "text"))
        return fit(row, width, self.glyphs.ellipsis)


class PlanPane(Pane):
    """What differs, what it costs and how it is done, or what forbids it."""

    def __init__(self, *, glyphs: Glyphs) -> None:
        super().__init__("What it means", glyphs=glyphs, id="plan")
        self.framed = False
        self._rows: list[Line] = []
        self._outlook: SwitchPlan | SpecpanelError | str | None = None
        self._needed = ""

    def show(self, outlook: SwitchPlan | SpecpanelError | str | None, needed: str = "") -> None:
        """A plan, why there is none, a sentence meanwhile, or nothing.

        ``needed`` is a sentence on who else needs the server that has to make way.
        """
        self._outlook, self._needed = outlook, needed
        self.redraw()

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        outlook = self._outlook
        if outlook is None:
            return [((" enter shows it", "muted"),)]
        if isinstance(outlook, str):
            return _wrapped(outlook, "muted", width)
        if isinstance(outlook, SpecpanelError):
            return self._forbidden(f"{outlook.message}. {outlook.fix}".rstrip(), width)
        tail = _wrapped(f"Cost: {outlook.cost}", "strong", width)
        tail += _wrapped(self._needed, "warn", width) if self._needed else []
        for finding in outlook.errors:
            tail += self._forbidden(f"{finding.text}. {finding.fix}".rstrip(), width)
        changes = [self._change(one.setting, one.before, one.after) for one in outlook.changes]
        if not changes:
            changes = [((" nothing differs", "muted"),)]
        room = max(1, height - len(tail))
        if len(changes) > room:
            left = len(changes) - room + 1
            changes = changes[: room - 1]
            changes.append(((f" {self.glyphs.ellipsis} {left} settings more", "muted"),))
        return [*changes, *tail]

    def _change(self, setting: str, before: str, after: str) -> Line:
        arrow = "->" if self.glyphs.name == "ascii" else "→"
        name: Line = ((f" {clean(setting)}", "muted"),)
        if width_of(name) < _SETTING_CELLS:
            name = fit(name, _SETTING_CELLS)
        return (
            *name,
            ("  ", "text"),
            (clean(before), "muted"),
            (f" {arrow} ", "key"),
            (clean(after), "strong"),
        )

    def _forbidden(self, text: str, width: int) -> list[Line]:
        return _wrapped(f"{self.glyphs.states['exited']} {clean(text)}", "bad", width)


def _wrapped(text: str, ink: str, width: int) -> list[Line]:
    return [((f" {part}", ink),) for part in wrap(clean(text), max(1, width - 2))]
