"""The modal screens: help, an error, how to quit, and the wait for things to stop."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar, cast

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from specpanel.app.tui.ink import clean
from specpanel.app.tui.keymap import Keymap
from specpanel.app.tui.keys import SCOPE_TITLES, Key, Scope, bindings
from specpanel.core.errors import SpecpanelError

if TYPE_CHECKING:
    from specpanel.app.tui.desk_app import DeskApp

QuitChoice = Literal["leave", "stop", "cancel"]


Result = TypeVar("Result")


class Dialog(ModalScreen[Result]):
    """A box in the middle. All its text is literal: no string reaches a markup parser."""

    title_text = ""

    @property
    def keymap(self) -> Keymap:
        """The keys as they are bound."""
        return cast("DeskApp", self.app).keymap

    def key_rows(self, scope: Scope) -> list[Content]:
        """A row for each key that works here, and what it does."""
        return [key_row(key) for key in self.keymap.keys_of(scope)]

    def body(self) -> Sequence[Content]:
        """The paragraphs below the title."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Content(self.title_text), classes="dialog-title", markup=False)
            with VerticalScroll(classes="dialog-body"):
                for paragraph in self.body():
                    yield Static(paragraph, markup=False)


def key_row(key: Key, indent: str = "") -> Content:
    """One key and what it does, as every dialog writes it. ``enter`` is named beside it where it does."""
    shown = key.shown
    if "enter" in key.keys.split(",") and shown != "enter":
        shown = f"{shown}, enter"
    return Content.assemble((f"{indent}{shown:<10}", "$accent bold"), key.help)


class HelpScreen(Dialog[None]):
    """The keys of the screen below and of the whole app."""

    title_text = "Keys   esc closes them, down and pgdn show more"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("help")]

    def __init__(self, scopes: Sequence[Scope]) -> None:
        super().__init__()
        self._scopes = tuple(scopes)

    def body(self) -> Sequence[Content]:
        paragraphs = []
        for scope in self._scopes:
            rows = [Content.styled(SCOPE_TITLES[scope], "bold")]
            rows += [
                Content.assemble((f"  {key.shown:<7} ", "$accent bold"), key.help)
                for key in self.keymap.keys_of(scope)
            ]
            paragraphs.append(Content("\n").join(rows) + "\n")
        return paragraphs


class ErrorScreen(Dialog[bool]):
    """What went wrong and what to do about it. True asks for the log, where there is one to see."""

    title_text = "Something went wrong"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("error")]

    def __init__(self, error: BaseException, *, has_log: bool = False) -> None:
        super().__init__()
        self._error = error
        self._has_log = has_log

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self._has_log if (action, parameters) == ("dismiss", (True,)) else True

    def body(self) -> Sequence[Content]:
        message, fix = error_words(self._error)
        rows = [Content.styled(message, "$error"), Content("")]
        if fix:
            rows += [Content(fix), Content("")]
        keys = self.keymap.keys_of("error")
        return [*rows, *(key_row(key) for key in keys if key.id != "error.log" or self._has_log)]


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
    """Asks what becomes of the server, of trainings and of an experiment; each may be absent.

    ``needed`` is a sentence on who else needs the server, or empty.
    """

    title_text = "A server is running"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("quit")]

    def __init__(
        self, server: str, training: str = "", *, experiment: bool = False, needed: str = ""
    ) -> None:
        super().__init__()
        self._needed = needed
        self._server = server
        self._training = training
        self._experiment = experiment
        kinds = {"server": server, "training": training, "experiment": experiment}
        self._kinds = [kind for kind, runs in kinds.items() if runs] or ["server"]
        named = [f"an {kind}" if kind == "experiment" else f"a {kind}" for kind in self._kinds]
        words = " and ".join([", ".join(named[:-1]), named[-1]] if named[1:] else named)
        self.title_text = f"{words[0].upper()}{words[1:]} {'run' if named[1:] else 'is running'}"

    def body(self) -> Sequence[Content]:
        what = [Content(clean(self._server))] if "server" in self._kinds else []
        what += [Content(clean(self._needed))] if self._needed else []
        goes_on = "goes on by itself when it is left, and is"
        if self._training:
            where = f"{goes_on} on the Train screen next time."
            what.append(Content(clean(f"{self._training}: it {where}")))
        if self._experiment:
            what.append(Content(f"The experiment {goes_on} in the Lab next time."))
        rows = list(self.keymap.keys_of("quit"))
        if self._kinds != ["server"]:
            all_of = {1: "it", 2: "both"}.get(len(self._kinds), "all")
            rows[0] = replace(rows[0], help=f"Leave {all_of} running")
            rows[1] = replace(rows[1], help=f"Stop {all_of}, and then leave")
        return [*what, Content(""), *(key_row(key) for key in rows)]

    def action_choose(self, choice: QuitChoice) -> None:
        self.dismiss(choice)


class StopScreen(Dialog[bool]):
    """Asks before a server, or what the desk is about, is ended; Enter lets it go on.

    ``needed`` is a sentence on who else needs the server, or empty.
    """

    title_text = "Stop?"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("stop")]

    def __init__(self, busy: str | None, server: str, needed: str = "") -> None:
        super().__init__()
        self._needed = needed
        self._busy = busy
        self._server = server

    def body(self) -> Sequence[Content]:
        what = self._server if self._busy is None else f"What is on its way: {self._busy}"
        needed = [Content(clean(self._needed))] if self._needed else []
        return [Content(clean(what)), *needed, Content(""), *self.key_rows("stop")]


class MarkScreen(Dialog[str]):
    """Asks what to call this moment."""

    title_text = "Mark this moment"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("mark")]

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
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("stopping")]

    def body(self) -> Sequence[Content]:
        return [
            Content("Ending what was started and saving what was recorded."),
            Content(""),
            *self.key_rows("stopping"),
        ]
