"""One form for all settings: a list that is drawn, and one editor that floats over the current row.

A widget a setting would take half a second to mount and a layout pass a keystroke; this takes neither.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from textual.app import ComposeResult
from textual.containers import Container
from textual.message import Message
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.ink import Line, Span, clean, fit, shorten, spread, width_of, wrap
from specpanel.app.tui.widgets.form_entries import (
    Entry,
    Heading,
    entries,
    facts_of,
    key_of,
    value_text,
)
from specpanel.app.tui.widgets.pane import Pane
from specpanel.core.settings.rows import Row, text_of

Purpose = Literal["value", "filter", "name"]

_PROMPTS: Mapping[Purpose, str] = {"value": "", "filter": " / ", "name": " write as "}
_TITLE_CELLS = 22

EDITOR_KEYS: Mapping[Purpose, list[tuple[str, str]]] = {
    "value": [("enter", "Take it"), ("esc", "Leave it as it was"), ("^r", "Start")],
    "filter": [("enter", "Keep the filter"), ("esc", "Show all")],
    "name": [("enter", "Write"), ("esc", "Cancel")],
}
"""The keys that work in the editor, for the key line."""


class FormRows(Pane):
    """Draws headings and rows, one of them current."""

    def __init__(self, *, glyphs: Glyphs = BRAILLE) -> None:
        super().__init__("", glyphs=glyphs, id="form-rows")
        self.entries: tuple[Entry, ...] = ()
        self.errors: Mapping[str, str] = {}
        self.cursor = 0
        self.note: Line = ()
        self.empty: tuple[str, ...] = ()
        self.prompt: Purpose | None = None
        self.words = ""
        self._top = 0

    @property
    def current(self) -> Entry | None:
        return self.entries[self.cursor] if self.cursor < len(self.entries) else None

    def legend(self) -> Line:
        return self.note

    def editor_place(self, purpose: Purpose) -> tuple[int, int, int]:
        """Column, row and width for the editor."""
        edge = 1 if self.framed else 0
        width, _ = self.inside_size()
        if purpose != "value":
            x = len(_PROMPTS[purpose])
            return edge + x, 1, max(4, width - x - 1)
        x = _TITLE_CELLS + 3
        y = 1 + self._prompt_rows + self.cursor - self._top
        return edge + x, y, max(4, width - x - 1)

    @property
    def _prompt_rows(self) -> int:
        return 1 if self.prompt is not None or self.words else 0

    def place_at(self, row: int) -> int | None:
        place = row - 1 - self._prompt_rows + self._top
        return place if row > self._prompt_rows and place < len(self.entries) else None

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        head: list[Line] = []
        if self.prompt is not None:
            head = [((_PROMPTS[self.prompt], "key"),)]
        elif self.words:
            head = [((" / ", "key"), (clean(self.words), "strong"), ("  esc shows all", "muted"))]
        if not self.entries:
            texts = self.empty or ("nothing matches",)
            lines = [part for text in texts for part in wrap(clean(text), max(1, width - 3))]
            ink = "bad" if self.empty else "muted"
            return [*head, (), *(((f"  {line}", ink),) for line in lines)]
        room = max(1, height - len(head))
        self._top = min(self._top, self.cursor, max(0, len(self.entries) - room))
        if self.cursor == self._first_of_section() + 1 == self._top:
            self._top -= 1  # keep the heading of the first row in sight
        self._top = max(self._top, self.cursor - room + 1)
        shown = list(enumerate(self.entries))[self._top : self._top + room]
        return head + [self._entry(entry, width, number == self.cursor) for number, entry in shown]

    def _first_of_section(self) -> int:
        """The place of the heading above the cursor."""
        places = [
            n for n, e in enumerate(self.entries[: self.cursor + 1]) if isinstance(e, Heading)
        ]
        return places[-1] if places else 0

    def _entry(self, entry: Entry, width: int, current: bool) -> Line:
        pointer = (">" if self.glyphs.name == "ascii" else "▸") if current else " "
        if isinstance(entry, Heading):
            return self._heading(entry, width, pointer)
        error = self.errors.get(entry.dotted)
        marks: Mapping[str, Span] = {
            "default": (" ", "text"),
            "profile": (self.glyphs.dot, "muted"),
            "edited": ("*", "warn"),
        }
        mark = (self.glyphs.states["exited"], "bad") if error else marks[entry.source]
        title = shorten(entry.title, _TITLE_CELLS - 1, self.glyphs.ellipsis)
        ink = "title-selected" if current else "text"
        left: Line = (
            (pointer, "key"),
            mark,
            *fit(((" " + title, ink),), _TITLE_CELLS + 1),
        )
        tone = "bad" if error else "muted" if entry.value is None else "strong"
        value: Line = ((value_text(entry), tone),)
        if entry.kind == "choice":
            value = (*value, (" v" if self.glyphs.name == "ascii" else " ▾", "muted"))
        right: Line = ((f" {clean(error)}", "bad"),) if error else ()
        room = width - width_of(left) - min(width_of(value), 6)
        if width_of(right) > room:
            right = fit(right, max(0, room), self.glyphs.ellipsis)
        return spread((*left, *value), right, width, self.glyphs.ellipsis)

    def _heading(self, entry: Heading, width: int, pointer: str) -> Line:
        counts = f"{entry.set_count} set"
        if entry.default_count:
            counts += f", {entry.default_count} default"
        fold = ""
        if entry.hidden_count or entry.unfolded:
            closed, opened = ("+", "-") if self.glyphs.name == "ascii" else ("▸", "▾")
            fold = opened if entry.unfolded else closed
        left: Line = ((pointer, "key"), (f" {entry.section.upper()}", "brand"))
        return spread(left, ((f"{counts} {fold or ' '} ", "muted"),), width, self.glyphs.ellipsis)


class FormHelp(Pane):
    """What the current entry means: help, type, bounds, flag and where its value comes from."""

    def __init__(self, *, glyphs: Glyphs = BRAILLE) -> None:
        super().__init__("", glyphs=glyphs, id="form-help")
        self._entry: Entry | None = None
        self._error: str | None = None

    def show(self, entry: Entry | None, error: str | None) -> None:
        self._entry, self._error = entry, error
        self.title = "" if entry is None else key_of(entry).upper()
        if isinstance(entry, Row):
            self.title = entry.title
        self.redraw()

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        entry = self._entry
        if entry is None:
            return []
        if isinstance(entry, Heading):
            verb = "hides" if entry.unfolded else "shows"
            text = f"enter {verb} the {entry.default_count} settings that rest on their default"
            return [((f" {text}" if entry.default_count else " everything is set", "muted"),)]
        if entry.kind == "choice":
            help_text = f"{entry.help} {self.glyphs.dot} {', '.join(entry.choices)}"
        else:
            help_text = entry.help
        dot = f" {self.glyphs.dot} "
        facts: Line = ((f" {dot.join(clean(fact) for fact in facts_of(entry))}", "muted"),)
        said: list[Line] = []
        if self._error:
            said = [((f" {self.glyphs.states['exited']} {clean(self._error)}", "bad"),)]
        said += [((f" {part}", "text"),) for part in wrap(help_text, max(1, width - 2))]
        return [*said[: max(1, height - 1)], facts]


class Form(Container):
    """The drawn list and its one editor."""

    DEFAULT_CSS = """
    Form { layers: rows editor; width: 1fr; height: 1fr; }
    Form FormRows { layer: rows; }
    Form Input, Form OptionList {
        layer: editor; display: none; padding: 0; border: none; background: $panel;
        scrollbar-size-vertical: 1;
    }
    Form Input { height: 1; }
    """

    @dataclass
    class Typed(Message):
        """The text of a value that is being edited."""

        text: str

    @dataclass
    class Given(Message):
        """What was entered, for what."""

        purpose: Purpose
        text: str

    @dataclass
    class Moved(Message):
        """Another entry is current, or the same one shows something else."""

    def __init__(self, *, glyphs: Glyphs = BRAILLE) -> None:
        super().__init__(id="form")
        self.rows = FormRows(glyphs=glyphs)
        self.input = Input(compact=True, id="form-input")
        self.input.cursor_blink = False
        self.options = OptionList(compact=True, markup=False, id="form-options")
        self.editing: Purpose | None = None
        self.unfolded: set[str] = set()
        self.words = ""
        self._all: tuple[Row, ...] = ()
        self._choices: tuple[str, ...] = ()

    def compose(self) -> ComposeResult:
        yield self.rows
        yield self.input
        yield self.options

    @property
    def current(self) -> Entry | None:
        return self.rows.current

    @property
    def current_row(self) -> Row | None:
        return self.current if isinstance(self.current, Row) else None

    # What is listed

    def show(
        self,
        title: str,
        rows: Iterable[Row],
        errors: Mapping[str, str],
        *,
        empty: Sequence[str] = (),
    ) -> None:
        """Lists rows; ``empty`` is said instead where there are none."""
        self.rows.title = clean(title)
        self._all = tuple(rows)
        self.rows.errors = dict(errors)
        self.rows.empty = tuple(empty) if not self._all else ()
        self._list()

    def _list(self) -> None:
        kept = None if self.current is None else key_of(self.current)
        self.rows.words = self.words
        self.rows.entries = entries(
            self._all, self.rows.errors, words=self.words, unfolded=self.unfolded
        )
        places = {key_of(entry): number for number, entry in enumerate(self.rows.entries)}
        first = 1 if len(places) > 1 else 0
        self.rows.cursor = places.get(kept or "", min(self.rows.cursor or first, len(places) - 1))
        self.rows.cursor = max(0, self.rows.cursor)
        self.rows.redraw()
        self.post_message(self.Moved())

    def move(self, step: int) -> None:
        last = max(0, len(self.rows.entries) - 1)
        self.rows.cursor = min(last, max(0, self.rows.cursor + step))
        self.rows.redraw()
        self.post_message(self.Moved())

    def go_to(self, dotted: str) -> bool:
        """Makes the row of a setting current, whatever hides it; False where there is none."""
        row = next((row for row in self._all if row.dotted == dotted), None)
        if row is None:
            return False
        self.words = ""
        if dotted not in self.rows.errors and row.source == "default":
            self.unfolded.add(row.section)
        self._list()
        places = [key_of(entry) for entry in self.rows.entries]
        self.rows.cursor = places.index(dotted)
        self.move(0)
        return True

    def fold(self, section: str) -> None:
        """Shows the defaults of a section, or hides them again."""
        self.unfolded ^= {section}
        self._list()

    def fold_all(self) -> None:
        sections = {row.section for row in self._all}
        self.unfolded = set() if self.unfolded >= sections else sections
        self._list()

    def filter_by(self, words: str) -> None:
        self.words = words
        self._list()

    # The editor

    def edit_value(self, row: Row) -> None:
        """Opens the editor over the current row: a line, or a list of choices."""
        if row.kind == "choice":
            self._open_choices(row)
        else:
            text = row.value if isinstance(row.value, str) else text_of(row, row.value)
            self._open_line("value", text)

    def ask(self, purpose: Purpose, text: str) -> None:
        """Opens the editor at the top of the form for a filter or a name."""
        self.rows.prompt = purpose
        self.rows.redraw()
        self._open_line(purpose, text)

    def _open_line(self, purpose: Purpose, text: str) -> None:
        self.editing = purpose
        x, y, width = self.rows.editor_place(purpose)
        self.input.styles.offset = (x, y)
        self.input.styles.width = width
        self.input.value = text.replace("\n", " ")
        self.input.display = True
        self.input.focus()
        self.input.action_end()
        self.post_message(self.Moved())

    def _open_choices(self, row: Row) -> None:
        self.editing = "value"
        choices = (*(("",) if row.optional else ()), *row.choices)
        self.options.clear_options()
        self.options.add_options(
            [Option(choice or "not set", id=f"choice-{n}") for n, choice in enumerate(choices)]
        )
        self._choices = choices
        x, y, width = self.rows.editor_place("value")
        room = self.size.height
        tall = min(len(choices), room)
        self.options.styles.offset = (x, max(0, min(y, room - tall)))
        self.options.styles.width = min(width, 24)
        self.options.styles.height = tall
        self.options.display = True
        self.options.focus()
        value = text_of(row, row.default if row.value is None else row.value)
        self.options.highlighted = choices.index(value) if value in choices else 0
        self.post_message(self.Moved())

    def close(self) -> None:
        """Closes the editor and forgets what was typed."""
        self.editing = None
        self.rows.prompt = None
        self.input.display = False
        self.options.display = False
        self.screen.set_focus(None)
        self.rows.redraw()
        self.post_message(self.Moved())

    def commit(self) -> None:
        """Hands on what was typed."""
        if self.editing is not None:
            purpose, text = self.editing, self.input.value
            if self.options.display:
                text = self._choices[self.options.highlighted or 0]
            self.close()
            self.post_message(self.Given(purpose, text))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.commit()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.editing == "filter":
            self.filter_by(event.value)
        elif self.editing == "value":
            self.post_message(self.Typed(event.value))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.close()
        self.post_message(self.Given("value", self._choices[event.option_index]))
