"""The dialog that starts an experiment: which one, on which profiles, for how long."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.desk_app import DeskApp
from specpanel.app.tui.ink import Line, Span, clean, fit
from specpanel.app.tui.keymap import Keymap
from specpanel.app.tui.keys import bindings
from specpanel.app.tui.lab_jobs import specpanel_command
from specpanel.app.tui.widgets.canvas import Canvas

KINDS = ("compare", "breakeven", "tune", "parity")
_ABOUT = {
    "compare": "which is faster, and by how much: mark A, then B and more",
    "breakeven": "from which acceptance on speculation pays, by load and K",
    "tune": "which K at which load, written into a profile of its own",
    "parity": "whether greedy answers are those without the drafter",
}
TRAFFIC_ENDS = "The traffic to the server that runs now ends, for it would disturb."
_MINUTES = (2, 5, 10, 20, 40)
_TIMED = ("compare", "tune")
_LETTERS = "ABCDEFGH"


@dataclass(frozen=True, slots=True)
class Wish:
    """An experiment to start."""

    kind: str
    profiles: tuple[str, ...]
    minutes: int

    @property
    def arguments(self) -> tuple[str, ...]:
        timed = ("--minutes", str(self.minutes)) if self.kind in _TIMED else ()
        return (self.kind, *self.profiles, *timed)

    @property
    def words(self) -> str:
        """As it is typed."""
        return " ".join(("specpanel", *self.arguments))

    def command(self) -> list[str]:
        return specpanel_command(*self.arguments, "--json")


class ProfileMarks(Canvas):
    """The user's profiles; those that take part have letters, in the order of marking."""

    def __init__(self, *, glyphs: Glyphs) -> None:
        super().__init__(id="lab-profiles")
        self.glyphs = glyphs
        self.names: tuple[tuple[str, str], ...] = ()
        self.marked: tuple[str, ...] = ()
        self.cursor = 0
        self.reading = True

    def compose_rows(self, width: int, height: int) -> Sequence[Line]:
        if not self.names:
            text = "looking for profiles" if self.reading else "there is no profile: 1 makes one"
            return [((f" {text}", "muted"),)]
        top = max(0, min(self.cursor - height // 2, len(self.names) - height))
        rows: list[Line] = []
        for place in range(top, min(len(self.names), top + height)):
            name, about = self.names[place]
            chosen = place == self.cursor
            pointer = ">" if self.glyphs.name == "ascii" else "▸"
            mark = _LETTERS[self.marked.index(name)] if name in self.marked else " "
            row: list[Span] = [(pointer if chosen else " ", "key"), (f" {mark} ", "warn")]
            ink = "title-selected" if chosen else "text"
            row += fit(((clean(name), ink),), max(10, min(34, width // 2)), self.glyphs.ellipsis)
            row.append((f" {clean(about)}", "muted"))
            rows.append(tuple(row))
        return rows

    def place_at(self, row: int) -> int | None:
        return row if row < len(self.names) else None


class NewExperimentScreen(ModalScreen[Wish | None]):
    """``current`` is the profile that is being served: it comes first. ``sending``: it gets our traffic."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("labnew")]
    AUTO_FOCUS = ""

    def __init__(self, current: str | None, *, glyphs: Glyphs, sending: bool = False) -> None:
        super().__init__()
        self._current = current
        self._sending = sending
        self.kind = 0
        self.minutes = _MINUTES.index(10)
        self.profiles = ProfileMarks(glyphs=glyphs)
        self._top = Static("", markup=False)
        self._bottom = Static("", markup=False)

    @property
    def keymap(self) -> Keymap:
        """The keys as they are bound."""
        return cast("DeskApp", self.app).keymap

    def compose(self) -> ComposeResult:
        with Vertical(classes="switcher"):
            yield Static(Content("New experiment"), classes="switcher-title", markup=False)
            yield self._top
            yield self.profiles
            yield self._bottom

    def on_mount(self) -> None:
        self._show()
        self.run_worker(self._read(), group="lab-profiles")

    async def _read(self) -> None:
        found = await asyncio.to_thread(profile_choices)
        found.sort(key=lambda one: one[0] != self._current)
        self.profiles.names, self.profiles.reading = tuple(found), False
        self._show()

    def _show(self) -> None:
        kind, shown = KINDS[self.kind], self.keymap.shown
        kinds = [(f" {one} ", "bold reverse" if one == kind else "$ink-muted") for one in KINDS]
        about = f"\n{_ABOUT[kind]}"
        self._top.update(
            Content.assemble((f"{shown('labnew.kind')} ", "$accent bold"), *kinds, about, "\n")
        )
        wish = self.wish()
        command = "" if wish is None else wish.words
        rows = [Content.styled(command or self._missing(), "" if command else "$ink-muted")]
        if self._sending:
            rows.append(Content.styled(TRAFFIC_ENDS, "$warning"))
        keys = [("labnew.mark", "marks"), ("labnew.start", "starts"), ("labnew.cancel", "closes")]
        if kind in _TIMED:
            words = f"{_MINUTES[self.minutes]} minutes at most"
            keys.insert(1, ("labnew.longer", f"and {shown('labnew.shorter')}: {words}"))
        parts: list[str | tuple[str, str]] = []
        for id, what in keys:
            parts += [(f"{shown(id)} ", "$accent bold"), f"{what}   "]
        rows.append(Content.assemble(*parts))
        self._bottom.update(Content("\n").join(rows))
        self.profiles.redraw()

    def _missing(self) -> str:
        if KINDS[self.kind] == "compare":
            return "mark two profiles or more; the others are compared with the first, A"
        return "choose a profile"

    def wish(self) -> Wish | None:
        """What would be started; None while something is missing."""
        marks, kind = self.profiles, KINDS[self.kind]
        if not marks.names:
            return None
        here = marks.names[marks.cursor][0]
        chosen = marks.marked
        if kind == "compare":
            if len(chosen) == 1 and here not in chosen:
                chosen = (*chosen, here)
            return Wish(kind, chosen, _MINUTES[self.minutes]) if len(chosen) > 1 else None
        return Wish(kind, (here,), _MINUTES[self.minutes])

    # Keys

    def action_kind(self, step: int) -> None:
        self.kind = (self.kind + step) % len(KINDS)
        self._show()

    def action_move(self, step: int) -> None:
        last = max(0, len(self.profiles.names) - 1)
        self.profiles.cursor = max(0, min(last, self.profiles.cursor + step))
        self._show()

    def action_mark(self) -> None:
        marks = self.profiles
        if not marks.names:
            return
        name = marks.names[marks.cursor][0]
        if name in marks.marked:
            marks.marked = tuple(one for one in marks.marked if one != name)
        elif len(marks.marked) < len(_LETTERS):
            marks.marked = (*marks.marked, name)
        self._show()

    def action_minutes(self, step: int) -> None:
        self.minutes = max(0, min(len(_MINUTES) - 1, self.minutes + step))
        self._show()

    def action_start(self) -> None:
        wish = self.wish()
        if wish is None:
            cast("DeskApp", self.app).say(self._missing())
        else:
            self.dismiss(wish)

    def on_canvas_picked(self, event: Canvas.Picked) -> None:
        self.profiles.cursor = event.place
        self.action_mark()


def profile_choices() -> list[tuple[str, str]]:
    """Names of profiles that can be read, and what each drafts with."""
    from specpanel.core.session.choices import drafter_words
    from specpanel.core.settings.files import catalogue

    return [
        (file.name, drafter_words(file.profile)) for file in catalogue() if file.profile is not None
    ]
