"""Starting what the form says: go to what is wrong, mend it, or start in spite of it."""

from functools import partial
from typing import TYPE_CHECKING

from specpanel.app.tui.ink import clean
from specpanel.app.tui.screens.base import PanelScreen
from specpanel.app.tui.screens.launch_draft import Draft
from specpanel.app.tui.screens.launch_outlook import Outlook, in_the_way, to_mend
from specpanel.app.tui.screens.launch_shelf import Shelf
from specpanel.app.tui.widgets.form import Form
from specpanel.core.settings.profile import Profile

if TYPE_CHECKING:
    from specpanel.core.session.desk import Desk


class StartingScreen(PanelScreen):
    """A screen with a draft of a profile in a form, which it can start."""

    shelf: Shelf
    form: Form
    outlook: Outlook | None

    def _show_draft(self) -> None:
        """Draw the draft anew."""
        raise NotImplementedError

    def _to_form(self) -> None:
        """Make the form what the keys work on."""
        raise NotImplementedError

    @property
    def draft(self) -> Draft | None:
        return self.shelf.draft

    def _in_use(self) -> str | None:
        """The name of the profile that runs."""
        served = None if self.desk is None else self.desk.current
        if served is None or not served.is_up or served.profile is None:
            return None
        return served.profile.name

    def _current_outlook(self) -> Outlook | None:
        """What is known of exactly what the form says; None while that is being found out."""
        outlook, draft = self.outlook, self.draft
        if outlook is None or draft is None or outlook.profile != draft.profile:
            return None
        return outlook

    async def action_start(self) -> None:
        """Starts what the form says; something wrong is shown instead."""
        if self.form.editing is not None:
            row, draft, text = self.form.current_row, self.draft, self.form.input.value
            purpose = self.form.editing
            self.form.close()
            if (
                purpose == "value"
                and row is not None
                and draft is not None
                and row.kind != "choice"
            ):
                draft.give(row, text)
                self._show_draft()
        if self.draft is None:
            self.panel.say("this profile cannot be started: it is broken", severity="warning")
        elif not self._went_to_error() and not self._went_to_finding() and self.draft.profile:
            self.panel.ask(partial(self._start, self.draft.profile))

    def action_force(self) -> None:
        """Starts in spite of preflight's errors; settings that are wrong cannot be forced."""
        if self.draft is not None and not self._went_to_error() and self.draft.profile:
            self.panel.ask(partial(self._start, self.draft.profile, force=True))

    def action_fix(self) -> None:
        """Applies what ends a finding: that of the current setting, or else the first one."""
        row, draft = self.form.current_row, self.draft
        finding = to_mend(self._current_outlook(), None if row is None else row.dotted)
        if draft is None or finding is None:
            self.panel.say("there is nothing that a setting could mend")
            return
        draft.mend(finding.mend)
        self._show_draft()
        self.form.go_to(finding.mend[0][0])
        self.panel.say(f"set: {', '.join(name for name, _ in finding.mend)}")

    def _start(self, profile: Profile, desk: "Desk", *, force: bool = False) -> None:
        if desk.busy is not None:
            self.panel.say(f"busy: {desk.busy}; stop that first", severity="warning")
            return
        self.panel.replace_server(desk, partial(self._start_now, profile, desk, force=force))

    def _start_now(self, profile: Profile, desk: "Desk", *, force: bool) -> None:
        desk.start(profile, force=force)
        self.app.switch_mode("live")

    def _went_to_error(self) -> bool:
        """Whether the settings are wrong; the first one that is becomes current."""
        wrong = None if self.draft is None else self.draft.first_error()
        if wrong is None:
            return False
        dotted, error = wrong
        self._to_form()
        self.form.go_to(dotted)
        self.panel.say(f"{dotted}: {error}", severity="warning")
        return True

    def _went_to_finding(self) -> bool:
        """Whether preflight knows what keeps this from starting; the setting it is about becomes current."""
        outlook = self._current_outlook()
        finding = in_the_way(outlook, own_server=self._in_use() is not None)
        if finding is None:
            return False
        self._to_form()
        if finding.field is not None:
            self.form.go_to(finding.field)
        mends = f" {self.keymap.shown('launch.fix')} mends it." if finding.mend else ""
        self.panel.say(clean(f"{finding.text}. {finding.fix}{mends}"), severity="warning")
        return True
