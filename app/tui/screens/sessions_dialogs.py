"""Asks before a server is stopped or a recording is deleted."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from textual.binding import BindingType
from textual.content import Content

from specpanel.app.tui.ink import clean
from specpanel.app.tui.keys import bindings
from specpanel.app.tui.screens.dialogs import Dialog, key_row


class ConfirmScreen(Dialog[bool]):
    """A question whose safe answer is Enter's: no."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("confirm")]

    def __init__(self, title: str, sentences: Sequence[str], yes: str) -> None:
        super().__init__()
        self.title_text = title
        self._sentences = tuple(sentences)
        self._yes = yes

    def body(self) -> Sequence[Content]:
        yes, no = self.keymap.keys_of("confirm")
        return [
            *(Content(clean(sentence)) for sentence in self._sentences),
            Content(""),
            key_row(replace(yes, help=self._yes)),
            key_row(no),
        ]
