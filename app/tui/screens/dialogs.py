"""The modal screens: help, an error, how to quit, and the wait for things to stop."""

from collections.abc import Sequence
from typing import ClassVar, Literal, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from specpanel.app.tui.ink import clean
from specpanel.app.tui.keys import SCOPE_TITLES, Scope, keys_of
from specpanel.core.errors import SpecpanelError

QuitChoice = Literal["leave", "stop", "cancel"]


Result = TypeVar("Result")


class Dialog(ModalScreen[Result]):
    """A box in the middle. All its text is literal: no string reaches a markup parser."""

    title_text = ""

    def body(self) -> Sequence[Content]:
        """The paragraphs below the title."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Content(self.title_text), classes="dialog-title", markup=False)
            with VerticalScroll(classes="dialog-body"):
                for paragraph in self.body():
                    yield Static(paragraph, markup=False)


class HelpScreen(Dialog[None]):
    """The keys of the screen below and of the whole app."""

    title_text = "Keys"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,ctrl+c,enter,f1", "dismiss", "Close", id="help.close")
    ]

    def __init__(self, scopes: Sequence[Scope]) -> None:
        super().__init__()
        self._scopes = tuple(scopes)

    def body(self) -> Sequence[Content]:
        paragraphs = []
        for scope in self._scopes:
            rows = [Content.styled(SCOPE_TITLES[scope], "bold")]
            rows += [
                Content.assemble((f"  {key.shown:<7}", "$accent bold"), key.help)
                for key in keys_of(scope)
            ]
            paragraphs.append(Content("\n").join(rows) + "\n")
        return [*paragraphs, Content.styled("esc closes this", "$ink-muted")]


class ErrorScreen(Dialog[None]):
    """What went wrong and what to do about it."""

    title_text = "Something went wrong"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q,ctrl+c,space", "dismiss", "Close", id="error.close")
    ]

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def body(self) -> Sequence[Content]:
        message, fix = error_words(self._error)
        rows = [Content.styled(message, "$error"), Content("")]
        if fix:
            rows += [Content(fix), Content("")]
        return [*rows, Content.styled("enter closes this, q then leaves the panel", "$ink-muted")]


def error_words(error: BaseException) -> tuple[str, str]:
    """What happened and the fix, in words that may stand on a screen."""
    if isinstance(error, SpecpanelError):
        return clean(error.message), clean(error.fix)
    kind = type(error).__name__
    return (
        clean(f"{kind}: {error}" if str(error) else kind),
        "This is a fault of specpanel itself: the traceback is printed when the panel is left.",
    )


class QuitScreen(Dialog[QuitChoice]):
    """Asks what becomes of the server."""

    title_text = "A server is running"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l,enter", "choose('leave')", "Leave it running", id="quit.leave"),
        Binding("s", "choose('stop')", "Stop it", id="quit.stop"),
        Binding("c,escape,q,ctrl+c", "choose('cancel')", "Cancel", id="quit.cancel"),
    ]

    def __init__(self, server: str) -> None:
        super().__init__()
        self._server = server

    def body(self) -> Sequence[Content]:
        choices = (
            ("l, enter", "leave it running: specpanel ps lists it, specpanel stop ends it"),
            ("s", "stop it, and then leave"),
            ("c, esc", "stay here"),
        )
        rows = [Content(clean(self._server)), Content("")]
        rows += [Content.assemble((f"{keys:<10}", "$accent bold"), what) for keys, what in choices]
        return rows

    def action_choose(self, choice: QuitChoice) -> None:
        self.dismiss(choice)


class StopScreen(Dialog[bool]):
    """Asks before a server, or what the desk is about, is ended."""

    title_text = "Stop?"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,x,enter", "dismiss(True)", "Stop", id="stop.yes"),
        Binding("n,escape,q,ctrl+c", "dismiss(False)", "Cancel", id="stop.no"),
    ]

    def __init__(self, busy: str | None, server: str) -> None:
        super().__init__()
        self._busy = busy
        self._server = server

    def body(self) -> Sequence[Content]:
        what = self._server if self._busy is None else f"What is on its way: {self._busy}"
        choices = (("y, enter", "stop it"), ("n, esc", "let it go on"))
        rows = [Content(clean(what)), Content("")]
        rows += [Content.assemble((f"{keys:<10}", "$accent bold"), word) for keys, word in choices]
        return rows


class MarkScreen(Dialog[str]):
    """Asks what to call this moment."""

    title_text = "Mark this moment"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Cancel", id="mark.cancel"),
        Binding("ctrl+c", "dismiss(None)", "Cancel", id="mark.close", priority=True),
    ]

    def __init__(self, default: str) -> None:
        super().__init__()
        self._line = Input(placeholder=default, compact=True, max_length=60, id="mark")

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Content(self.title_text), classes="dialog-title", markup=False)
            yield self._line
            yield Static(Content(""), markup=False)
            yield Static(Content.styled("enter marks, esc does not", "$ink-muted"), markup=False)

    def on_mount(self) -> None:
        self._line.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())


class StoppingScreen(Dialog[None]):
    """A static line while what was started is ended."""

    title_text = "Stopping"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "app.quit", "Hurry", id="stopping.hurry")
    ]

    def body(self) -> Sequence[Content]:
        return [
            Content("Ending what was started and saving what was recorded."),
            Content(""),
            Content.styled("q again hurries", "$ink-muted"),
        ]
