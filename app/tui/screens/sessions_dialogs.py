"""Asks before a server is stopped or a recording is deleted."""

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from specpanel.app.tui.ink import clean
from specpanel.app.tui.screens.dialogs import Dialog


class ConfirmScreen(Dialog[bool]):
    """A question whose safe answer is Enter's: no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Yes", id="confirm.yes"),
        Binding("n,enter,escape,q,ctrl+c", "dismiss(False)", "No", id="confirm.no"),
    ]

    def __init__(self, title: str, sentences: Sequence[str], yes: str) -> None:
        super().__init__()
        self.title_text = title
        self._sentences = tuple(sentences)
        self._yes = yes

    def body(self) -> Sequence[Content]:
        rows = [Content(clean(sentence)) for sentence in self._sentences]
        choices = (("y", self._yes), ("n, enter", "no"))
        rows += [Content("")]
        rows += [Content.assemble((f"{keys:<10}", "$accent bold"), what) for keys, what in choices]
        return rows
