"""The Launch screen: choose a profile, change it in one form, see the command it becomes, start it."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import ClassVar

from textual.binding import BindingType
from textual.containers import Container, Horizontal
from textual.widget import Widget
from textual.worker import Worker

from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.keys import bindings
from specpanel.app.tui.screens.launch_layout import LaunchPlan, View, plan_launch
from specpanel.app.tui.screens.launch_outlook import look_at, prospect
from specpanel.app.tui.screens.launch_shelf import Shelf
from specpanel.app.tui.screens.launch_starting import StartingScreen
from specpanel.app.tui.widgets.canvas import Canvas
from specpanel.app.tui.widgets.command_preview import CommandPreview, Findings, PreflightLine
from specpanel.app.tui.widgets.form import EDITOR_KEYS, Form, FormHelp
from specpanel.app.tui.widgets.form_entries import Heading
from specpanel.app.tui.widgets.profile_list import ProfileList, reason_of
from specpanel.core.engine.command import shell_text
from specpanel.core.errors import ConfigurationError, SpecpanelError
from specpanel.core.monitor.feed import Feed
from specpanel.core.settings.files import catalogue, write_profile
from specpanel.core.settings.overrides import Overrides, from_environment
from specpanel.core.settings.profile import Profile
from specpanel.core.settings.rows import parse

_SETTLE_S = 0.15
"""Edits that follow each other faster are looked at once."""


class LaunchScreen(StartingScreen):
    """Edits drafts of profiles. What blocks (files, probes, preflight) is done in threads."""

    tab = "Launch"
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("launch")]

    def __init__(
        self, tabs: Sequence[tuple[str, str]], *, glyphs: Glyphs, chosen: str | None = None
    ) -> None:
        super().__init__(tabs, glyphs=glyphs)
        self.shelf = Shelf(chosen)
        self.outlook = None
        self.side_shown = True
        self.view: View = "form"
        self._plan: LaunchPlan = plan_launch(120, 40)
        self._copying = False
        self.profiles = ProfileList(glyphs=glyphs)
        self.form = Form(glyphs=glyphs)
        self.command = CommandPreview(glyphs=glyphs)
        self.findings = Findings(glyphs=glyphs)
        self.summary = PreflightLine(glyphs=glyphs)
        self.help_pane = FormHelp(glyphs=glyphs)
        self.side = Container(self.command, self.findings, id="launch-side")

    def compose_body(self) -> Iterable[Widget]:
        yield Horizontal(self.profiles, self.form, self.side, id="launch-body")
        yield self.summary
        yield self.help_pane

    def on_mount(self) -> None:
        self.form.show("", (), {}, empty=("reading the profiles",))
        self._show_keys()

    def on_screen_resume(self) -> None:
        self.top_bar.show(self.panel.feed.latest)
        self._read_profiles()

    def receive(self, feed: Feed) -> None:
        self.top_bar.show(feed.latest)
        self._show_profiles()

    def _work(self, group: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Does something beside the loop; what is newer in the same group takes its place."""
        _: Worker[None] = self.run_worker(work, group=group, exclusive=True)

    # Profiles

    def _read_profiles(self) -> None:
        self._work("profiles", self._catalogue)

    async def _catalogue(self) -> None:
        try:
            overrides = from_environment()
        except ConfigurationError as error:
            self.panel.say(str(error), severity="error")
            overrides = Overrides({})
        listed = await asyncio.to_thread(catalogue, overrides=overrides)
        self.shelf.fill(listed, self._in_use())
        self._show_draft()
        if self.draft is not None and self.draft.profile is not None:
            # The machine may have changed while another screen was shown.
            self._work("look-ahead", partial(self._look, self.draft.profile))

    def _show_profiles(self) -> None:
        shelf = self.shelf
        self.profiles.show(shelf.files, shelf.chosen, edited=shelf.edited, running=self._in_use())

    def _show_draft(self) -> None:
        file, draft = self.shelf.file, self.draft
        if draft is None:
            said: tuple[str, ...] = ("no profile",)
            if file is not None and file.error is not None:
                said = (reason_of(file), file.error.fix, str(file.path))
            self.form.show(file.name if file else "", (), {}, empty=said)
        else:
            self.form.show(
                f"{self.shelf.chosen}{' *' if draft.edited else ''}", draft.rows, draft.errors
            )
            if draft.profile is not None:
                self._look_ahead(draft.profile)
            wanted = self.panel.setting_to_mend
            if wanted is not None and self.form.go_to(wanted):
                self.panel.setting_to_mend = None
        self._show_profiles()
        self._show_side()
        self._show_legend()

    def _show_legend(self) -> None:
        names, chosen = self.shelf.names, self.shelf.chosen
        self.form.rows.note = ()
        if chosen in names and not self._plan.wide:
            place = f"{names.index(chosen) + 1}/{len(names)}"
            self.form.rows.note = (("[ ]", "key"), (f" other profile {place}", "muted"))
        self.form.rows.redraw()

    # The command and preflight

    def _look_ahead(self, profile: Profile) -> None:
        if self.outlook is None or self.outlook.profile != profile:
            self._work("look-ahead", partial(self._look, profile))

    async def _look(self, profile: Profile) -> None:
        """The newest profile wins: another look cancels this one."""
        await asyncio.sleep(_SETTLE_S)
        self.outlook = await asyncio.to_thread(look_at, profile)
        found = self._current_outlook()
        if found and found.prepared and self.draft and self.draft.is_about(found.prepared.subject):
            self._show_draft()
        self._show_side()

    def _show_side(self) -> None:
        seen = prospect(self.draft, self.outlook)
        self.command.show(seen.command, self.form.current_row, stale=seen.stale, note=seen.note)
        note = "" if seen.errors or seen.findings is not None else seen.note
        self.findings.show(
            seen.errors, seen.findings, facts=seen.facts, unjudged=seen.unjudged, note=note
        )
        self.summary.show(seen.errors, seen.findings, note, unjudged=seen.unjudged)

    # The mouse

    def on_canvas_picked(self, event: Canvas.Picked) -> None:
        """A click on a profile or a setting makes it current, one on the current setting edits it."""
        if event.canvas is self.profiles:
            chosen = self.shelf.chosen
            here = self.shelf.names.index(chosen) if chosen in self.shelf.names else 0
            self.action_profile(event.place - here)
        elif self.form.editing is None and event.place != self.form.rows.cursor:
            self.form.move(event.place - self.form.rows.cursor)
        elif self.form.editing is None:
            self.action_enter()

    # The form

    def on_form_moved(self, event: Form.Moved) -> None:
        self._show_help()
        self._show_side()
        self._show_keys()

    def _show_help(self, typed_error: str | None = None) -> None:
        row, draft = self.form.current_row, self.draft
        error = typed_error
        if error is None and row is not None and draft is not None:
            error = draft.errors.get(row.dotted)
        self.help_pane.show(self.form.current, error)

    def on_form_typed(self, event: Form.Typed) -> None:
        row = self.form.current_row
        if row is not None:
            self._show_help(parse(row, event.text).error or "")

    def on_form_given(self, event: Form.Given) -> None:
        draft, row = self.draft, self.form.current_row
        if event.purpose == "filter":
            self.form.filter_by(event.text.strip())
        elif event.purpose == "name":
            self._write(event.text.strip())
        elif draft is not None and row is not None:
            draft.give(row, event.text)
            self._show_draft()

    # Writing

    def _write(self, name: str) -> None:
        draft = self.draft
        if draft is None or draft.profile is None or not name:
            return
        profile = self.shelf.named(name)
        if isinstance(profile, str):
            self.panel.say(profile, severity="warning")
            return
        mine = name == self.shelf.chosen and not self._copying
        self._work("write", partial(self._save, profile, overwrite=mine))

    async def _save(self, profile: Profile, *, overwrite: bool) -> None:
        try:
            path = await asyncio.to_thread(write_profile, profile, overwrite=overwrite)
        except SpecpanelError as error:
            self.panel.say(f"{error.message}. Choose another name.", severity="warning")
            return
        file = self.shelf.file
        given = () if file is None or file.own is None else file.laid_over.values()
        apart = f"; what {', '.join(sorted(given))} said is not in it" if given else ""
        self.shelf.forget(profile.name, self.shelf.chosen)
        self.shelf.chosen = profile.name
        self.panel.say(f"written: {path}{apart}")
        await self._catalogue()

    # Keys

    def _show_keys(self) -> None:
        editing = self.form.editing
        entries = (
            self.keymap.line_entries("launch", "panel") if editing is None else EDITOR_KEYS[editing]
        )
        self.key_line.show(entries, ())

    def action_move(self, step: int) -> None:
        if self.form.editing is not None:
            self.form.commit()
        if self.view == "profiles":
            self.action_profile(step)
        elif self.view == "side":
            self.command.shift(step)
        else:
            self.form.move(step)

    def action_profile(self, step: int) -> None:
        if self.form.editing is None:
            self.shelf.step(step)
            self._show_draft()

    def action_pane(self) -> None:
        if self.form.editing is not None:
            self.form.commit()
            self.form.move(1)
            return
        self.view = "form" if self.view == "profiles" else "profiles"
        self._arrange()

    def action_enter(self) -> None:
        entry, row = self.form.current, self.form.current_row
        if self.view == "profiles":
            self.view = "form"
            self._arrange()
        elif isinstance(entry, Heading):
            self.form.fold(entry.section)
        elif row is not None and row.kind == "toggle":
            self.action_switch()
        elif row is not None:
            self._to_form()
            self.form.edit_value(row)

    def action_switch(self) -> None:
        entry, row, draft = self.form.current, self.form.current_row, self.draft
        if isinstance(entry, Heading):
            self.form.fold(entry.section)
        elif row is not None and draft is not None and row.kind == "toggle":
            draft.toggle(row)
            self._show_draft()

    def action_reset(self) -> None:
        row, draft = self.form.current_row, self.draft
        if row is not None and draft is not None:
            draft.reset(row)
            self._show_draft()

    def action_undo(self) -> None:
        draft = self.draft
        if draft is not None and draft.undo():
            self._show_draft()
        else:
            self.panel.say("nothing to undo")

    def action_filter(self) -> None:
        self._to_form()
        self.form.ask("filter", self.form.words)

    def action_fold_all(self) -> None:
        self.form.fold_all()

    def action_cancel(self) -> None:
        if self.form.editing is not None:
            was = self.form.editing
            self.form.close()
            if was == "filter":
                self.form.filter_by("")
        elif self.form.words:
            self.form.filter_by("")
        elif self.view != "form":
            self._to_form()

    def action_side(self) -> None:
        if self._plan.wide:
            self.side_shown = not self.side_shown
        else:
            self.view = "form" if self.view == "side" else "side"
        self._arrange()

    def action_write(self, copy: bool) -> None:
        if self.form.editing is not None:
            self.form.commit()
            return
        if self.draft is None or self._went_to_error():
            return
        self._copying = copy
        self._to_form()
        self.form.ask("name", f"{self.shelf.chosen}-copy" if copy else self.shelf.chosen or "")

    def action_copy(self) -> None:
        outlook = self._current_outlook()
        if outlook is None or outlook.prepared is None:
            self.panel.say("there is no command to copy yet", severity="warning")
            return
        self.app.copy_to_clipboard(shell_text(outlook.prepared.command))
        self.panel.say("the command is in the clipboard")

    # Size and arrangement

    def fit_to(self, width: int, height: int) -> None:
        self._plan = plan_launch(width, height)
        self._arrange()

    def _to_form(self) -> None:
        if self.view != "form":
            self.view = "form"
            self._arrange()

    def _arrange(self) -> None:
        plan = self._plan
        for pane in (self.profiles, self.form.rows, self.command, self.findings, self.help_pane):
            pane.framed = plan.framed
        self.profiles.selected = self.view == "profiles"
        self.form.rows.selected = self.view != "profiles"
        self.profiles.display = plan.wide or self.view == "profiles"
        self.form.display = plan.wide or self.view == "form"
        self.side.display = self.side_shown if plan.wide else self.view == "side"
        self.profiles.styles.width = 24 if plan.wide else "1fr"
        self.side.styles.width = 42 if plan.wide else "1fr"
        self.help_pane.styles.height = plan.help_rows
        self.summary.styles.height = plan.summary_rows
        self.summary.display = plan.summary_rows > 0 and self.view != "side"
        for canvas in (*self.query(FormHelp), self.profiles, self.command, self.findings):
            canvas.redraw()
        self._show_legend()
