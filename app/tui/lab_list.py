"""Experiments, newest first: verdict, ratio and interval of each; one cursor."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specpanel.app.run_words import started_text
from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.ink import Line, Span, clean, fit
from specpanel.app.tui.lab_charts import RatioScale, whisker
from specpanel.app.tui.lab_words import KIND_WORDS, STARTING, Brief, brief, state_span
from specpanel.app.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from specpanel.core.lab.store import Experiment

Progress = Mapping[str, Sequence[Mapping[str, Any]]]
_SAID, _FIGURES, _KIND, _WHEN, _STATE, _WHISKER = 13, 22, 11, 12, 14, 17
_WITH_WHEN, _WITH_STATE, _WITH_WHISKER = 74, 88, 112


class LabList(Pane):
    """Holds what was read and the cursor; the screen does the rest."""

    def __init__(self, *, glyphs: Glyphs = BRAILLE) -> None:
        super().__init__("Experiments", glyphs=glyphs, id="lab-list")
        self.selected = True
        self.found: tuple[Experiment, ...] = ()
        self.progress: Progress = {}
        self.reading = True
        self.how_to_begin: Sequence[Span] = ()
        self.starting: tuple[str, str] | None = (
            None  # kind and title, until its row is in the store
        )
        self.cursor = 0
        self._briefs: list[Brief] = []
        self._places: list[int | None] = []

    def put(self, found: Sequence["Experiment"], progress: Progress) -> None:
        """Takes what was read; the cursor stays on what it is on."""
        chosen = self.chosen
        self.found, self.progress, self.reading = tuple(found), progress, False
        self._briefs = [brief(one, progress.get(one.id, ()), self.glyphs) for one in found]
        ids = [one.id for one in found]
        if chosen is not None and chosen.id in ids:
            self.cursor = ids.index(chosen.id)
        self.cursor = max(0, min(self.cursor, len(found) - 1))
        self.redraw()

    def place_of(self, pid: int) -> int | None:
        """Where that stands which the process ``pid`` measures; None: there is no such row."""
        for place, one in enumerate(self.found):
            if one.state == "running" and one.writer[0] == pid:
                return place
        return None

    @property
    def chosen(self) -> "Experiment | None":
        return self.found[self.cursor] if self.cursor < len(self.found) else None

    def move(self, step: int) -> None:
        self.cursor = max(0, min(len(self.found) - 1, self.cursor + step))
        self.redraw()

    def place_at(self, row: int) -> int | None:
        return self._places[row - 1] if 0 < row <= len(self._places) else None

    def legend(self) -> Line:
        if self.reading:
            return (("reading", "warn"),)
        running = sum(one.state == "running" for one in self.found)
        words = f"{len(self.found)}" + (f", {running} running" if running else "")
        return ((words, "muted"),) if self.found else ()

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        self._places = []
        if not self.found and self.starting is None:
            return [] if self.reading else self._empty(width, height)
        ends = [end for one in self._briefs for end in one.ends or ()]
        scale = RatioScale.over(ends)
        rows: list[Line] = [self._heading(width)]
        begun = [] if self.starting is None else [self._starting_row(*self.starting, width)]
        rows += begun
        room = max(1, height - len(rows))
        top = max(0, min(self.cursor - room // 2, len(self.found) - room))
        self._places = [None] * len(rows)
        for place in range(top, min(len(self.found), top + room)):
            rows.append(self._row(place, scale, width))
            self._places.append(place)
        return rows

    def _empty(self, width: int, height: int) -> list[Line]:
        words = self.how_to_begin
        left = max(1, (width - max((len(text) for text, _ in words), default=0)) // 2)
        rows: list[Line] = [()] * max(0, (height - len(words)) // 2)
        return rows + [((" " * left, "text"), word) for word in words]

    def _heading(self, width: int) -> Line:
        parts = [f"   {'verdict':<{_SAID - 2}}", f"{'ratio (95 %)':<{_FIGURES}}"]
        if width >= _WITH_WHISKER:
            parts.append(f"{'against 1':<{_WHISKER + 1}}")
        parts.append(f"{'kind':<{_KIND}}")
        row: list[Span] = [("".join(parts), "muted")]
        row += fit((("what", "muted"),), max(8, self._title_cells(width)))
        if width >= _WITH_WHEN:
            row.append((f"{'started':<{_WHEN}}", "muted"))
        if width >= _WITH_STATE:
            row.append(("state", "muted"))
        return tuple(row)

    def _title_cells(self, width: int) -> int:
        taken = 1 + _SAID + _FIGURES + _KIND
        taken += _WHISKER + 1 if width >= _WITH_WHISKER else 0
        taken += _WHEN if width >= _WITH_WHEN else 0
        taken += _STATE if width >= _WITH_STATE else 0
        return width - taken

    def _starting_row(self, kind: str, title: str, width: int) -> Line:
        """An experiment that has not written a line yet: to be seen, not to be chosen."""
        before = _SAID + _FIGURES + (_WHISKER + 1 if width >= _WITH_WHISKER else 0)
        row: list[Span] = [(" ", "text"), *fit((STARTING,), before)]
        row += fit(((KIND_WORDS.get(kind, clean(kind)), "muted"),), _KIND, self.glyphs.ellipsis)
        room = max(8, self._title_cells(width))
        row += fit(((clean(title), "text"),), room - 1, self.glyphs.ellipsis)
        return tuple(row)

    def _row(self, place: int, scale: RatioScale, width: int) -> Line:
        one, told = self.found[place], self._briefs[place]
        chosen = place == self.cursor
        pointer = ">" if self.glyphs.name == "ascii" else "▸"
        ink = "title-selected" if chosen else "text"
        plain = self.glyphs.name == "ascii"
        figures = told.figures.replace("±", "+/-") if plain else told.figures
        row: list[Span] = [(pointer if chosen else " ", "key")]
        row += fit((told.said,), _SAID - 1, self.glyphs.ellipsis)
        row.append((" ", "text"))
        row += fit(((clean(figures), ink),), _FIGURES - 1, self.glyphs.ellipsis)
        row.append((" ", "text"))
        if width >= _WITH_WHISKER:
            low, high = told.ends or (None, None)
            row += whisker(told.value, low, high, scale, _WHISKER, self.glyphs, told.ink)
            row.append((" ", "text"))
        row += fit(
            ((KIND_WORDS.get(one.kind, clean(one.kind)), "muted"),), _KIND, self.glyphs.ellipsis
        )
        room = max(8, self._title_cells(width))
        row += fit(((clean(one.title), ink),), room - 1, self.glyphs.ellipsis)
        row.append((" ", "text"))
        if width >= _WITH_WHEN:
            row += fit(
                ((started_text(one.started_unix, "%m-%d %H:%M"), "muted"),),
                _WHEN,
                self.glyphs.ellipsis,
            )
        if width >= _WITH_STATE:
            row.append(state_span(one.state, self.glyphs))
        return tuple(row)
