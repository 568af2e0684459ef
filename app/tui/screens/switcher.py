"""The switcher: from any screen, by keys alone, to another configuration or another server."""

import asyncio
from collections.abc import Callable
from typing import ClassVar, cast

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static
from textual.worker import Worker

from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.desk_app import DeskApp
from specpanel.app.tui.keys import bindings
from specpanel.app.tui.owner_words import owner_sentence
from specpanel.app.tui.widgets.bars import KeyLine
from specpanel.app.tui.widgets.canvas import Canvas
from specpanel.app.tui.widgets.choice_list import ChoiceList, PlanPane, hits
from specpanel.core.errors import SpecpanelError
from specpanel.core.session.choices import Choice, choices
from specpanel.core.session.desk import Desk
from specpanel.core.session.switching import SwitchPlan, plan_adoption

_QUERY_CELLS = 24  # the matcher's time grows fast with the length
_LIST_KEYS = (("enter", "What it means"), ("up down", "Choose"), ("esc", "Close"))
_PLAN_KEYS = (("enter", "Do it"), ("esc", "Back"))
_NO_KEYS = (("esc", "Back"),)


class SwitcherScreen(ModalScreen[None]):
    """Enter shows what a choice means, a second Enter does it; typing filters."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("switcher")]

    def __init__(self, desk: Desk, say: Callable[[str], None], *, glyphs: Glyphs) -> None:
        super().__init__()
        self._desk = desk
        self._say = say
        self._found: tuple[Choice, ...] = ()
        self._planned: Choice | None = None
        self._plan: SwitchPlan | None = None
        self._looking: Worker[None] | None = None
        self._planning: Worker[None] | None = None
        self.query_line = Input(
            placeholder="a profile, a server, or a variant of this one",
            compact=True,
            max_length=_QUERY_CELLS,
            id="query",
        )
        self.list = ChoiceList(glyphs=glyphs)
        self.outlook = PlanPane(glyphs=glyphs)
        self.key_line = KeyLine(_LIST_KEYS, glyphs=glyphs)

    def compose(self) -> ComposeResult:
        current = self._desk.current
        title = "Change to" if current is None else f"Change from {current.name} to"
        with Vertical(classes="switcher"):
            yield Static(Content(title), classes="switcher-title", markup=False)
            yield self.query_line
            yield self.list
            yield self.outlook
            yield self.key_line

    def on_mount(self) -> None:
        self.query_line.focus()
        self._looking = self.run_worker(self._look(), group="choices", exclusive=True)

    async def _look(self) -> None:
        current = self._desk.current
        record = None if current is None else current.record
        self._found = await asyncio.to_thread(
            choices,
            None if current is None else current.profile,
            record.id if record is not None and current is not None and current.is_up else None,
            self._desk.recordings,
        )
        self._filter()

    def _filter(self) -> None:
        self.list.show(hits(self._found, self.query_line.value))
        self._forget_plan()

    def on_input_changed(self, event: Input.Changed) -> None:
        if self._found:
            self._filter()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        choice = self.list.choice
        if choice is None:
            return
        if choice is not self._planned:
            self._consider(choice)
        elif self._plan is not None and not self._plan.errors:
            self._do(choice)

    # What it means

    def _consider(self, choice: Choice) -> None:
        self._planned, self._plan = choice, None
        if choice.error is not None:
            self._show(SpecpanelError(choice.error))
        elif choice.record is not None:
            before = None if self._desk.current is None else self._desk.current.profile
            self._show(plan_adoption(before, choice.record))
        elif choice.profile is not None:
            self.outlook.show("Looking at the machine")
            work = self._look_ahead(choice)
            self._planning = self.run_worker(work, group="plan", exclusive=True)

    async def _look_ahead(self, choice: Choice) -> None:
        if choice.profile is None:
            return
        outlook: SwitchPlan | SpecpanelError
        try:
            outlook = await asyncio.to_thread(self._desk.plan, choice.profile)
        except SpecpanelError as error:
            outlook = error
        if choice is self._planned:
            self._show(outlook)

    def _show(self, outlook: SwitchPlan | SpecpanelError) -> None:
        possible = isinstance(outlook, SwitchPlan) and not outlook.errors
        self._plan = outlook if isinstance(outlook, SwitchPlan) else None
        self.outlook.show(outlook, self._needed() if possible else "")
        self.key_line.show(_PLAN_KEYS if possible else _NO_KEYS, ())

    def _needed(self) -> str:
        """Who else needs the server that has to make way; empty where none has to, or nobody does."""
        served, choice = self._desk.current, self._planned
        if served is None or not served.is_up or choice is None or choice.record is not None:
            return ""
        return owner_sentence(served.record)

    def _forget_plan(self) -> None:
        self._planned, self._plan = None, None
        self.outlook.show(None)
        self.key_line.show(_LIST_KEYS, ((f"{len(self.list.hits)} of {len(self._found)}", "muted"),))

    def _do(self, choice: Choice) -> None:
        if self._desk.busy is not None:
            key = cast("DeskApp", self.app).keymap.shown("panel.stop")
            self._say(f"busy: {self._desk.busy}; {key} stops that")
            return
        if choice.record is not None:
            self._desk.adopt(choice.record)
        elif choice.profile is not None:
            self._desk.start(choice.profile)
        self.dismiss()

    def on_canvas_picked(self, event: Canvas.Picked) -> None:
        """A click on a choice is as good as the arrows."""
        self.action_move(event.place - self.list.chosen)

    # Keys

    def action_move(self, rows: int) -> None:
        self.list.move(rows)
        self._forget_plan()

    def action_back(self) -> None:
        if self._planned is None:
            self.dismiss()
        else:
            self._forget_plan()

    def action_close(self) -> None:
        self.dismiss()
