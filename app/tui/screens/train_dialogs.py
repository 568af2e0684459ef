"""Asks what a training shall do before it is begun, or gone on with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Input, Static

from specpanel.app.tui.ink import clean
from specpanel.app.tui.keys import bindings
from specpanel.app.tui.screens.dialogs import Dialog, key_row


@dataclass(frozen=True, slots=True)
class StartWish:
    """What was typed; empty keeps what the recipe says."""

    steps: str
    model: str


class StartScreen(Dialog[StartWish]):
    """Steps and target of a training; Enter in either field begins it.

    Args:
        steps, model: what the recipe says; ``model`` None where the target is not asked for.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("trainstart")]
    DEFAULT_CSS = """
    StartScreen .field { height: 1; }
    StartScreen .field Static { width: 12; }
    StartScreen .field Input { width: 1fr; }
    """

    def __init__(
        self, title: str, sentences: Sequence[str], *, steps: str, model: str | None
    ) -> None:
        super().__init__()
        self.title_text = title
        self._sentences = tuple(sentences)
        self._steps = Input(
            placeholder=clean(steps), compact=True, max_length=9, type="integer", id="train-steps"
        )
        self._model = Input(placeholder=clean(model or "a folder"), compact=True, id="train-model")
        self._asks_model = model is not None
        self._must_name = model == ""

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Content(clean(self.title_text)), classes="dialog-title", markup=False)
            for sentence in self._sentences:
                yield Static(Content(clean(sentence)), markup=False)
            yield Static(Content(""), markup=False)
            yield self._field("steps", self._steps)
            if self._asks_model:
                yield self._field("target", self._model)
            yield Static(Content(""), markup=False)
            yield Static(key_row(self.keymap.keys_of("trainstart")[0]), markup=False)
            yield Static(key_row(self.keymap.keys_of("trainstart")[1]), markup=False)

    def _field(self, label: str, line: Input) -> Horizontal:
        line.cursor_blink = False
        return Horizontal(Static(Content(label), markup=False), line, classes="field")

    def on_mount(self) -> None:
        (self._model if self._must_name else self._steps).focus()

    def action_next_field(self) -> None:
        other = self._model if self._steps.has_focus and self._asks_model else self._steps
        other.focus()

    def action_begin(self) -> None:
        steps, model = self._steps.value.strip(), self._model.value.strip()
        if steps and (not steps.isdigit() or int(steps) < 1):
            self.notify("steps are a number from 1 on", severity="warning", markup=False)
            self._steps.focus()
        elif self._must_name and not model:
            self.notify(
                "this recipe names no target: type the folder of one",
                severity="warning",
                markup=False,
            )
            self._model.focus()
        else:
            self.dismiss(StartWish(steps, model))
