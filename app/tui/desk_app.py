"""What the app does with a desk: its notices and failures, and the keys that work on every screen."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from textual.app import App

from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.ink import clean
from specpanel.app.tui.keymap import Keymap
from specpanel.app.tui.owner_words import owner_sentence
from specpanel.app.tui.screens.dialogs import ErrorScreen, MarkScreen, StopScreen
from specpanel.core.errors import NotRunningError, SpecpanelError
from specpanel.core.session.notices import Notices

if TYPE_CHECKING:  # the desk brings the whole of core; the first picture does not wait for it
    from specpanel.core.session.desk import Desk
    from specpanel.core.session.events import Event

NO_DESK = "This is a recording: there is no server to start, switch or stop"
REPLAYING = "This is a recording; esc goes back to the servers"


class DeskApp(App[None]):
    """An app over a desk; ``desk`` is None over a recording."""

    desk: "Desk | None"
    glyphs: Glyphs
    notices: Notices
    keymap: Keymap
    _shown_failure: SpecpanelError | None = None
    setting_to_mend: str | None = None  # of a failure: Launch goes there when it is shown next
    desk_is_coming = False
    _asked_early: "list[Callable[[Desk], None]]"
    _marks = 0

    def say(
        self, text: str, *, severity: Literal["information", "warning", "error"] = "information"
    ) -> None:
        """Shows a notice for some seconds; the text is literal."""
        self.notices.add(text, severity)
        self.notify(clean(text), severity=severity, markup=False)

    # What the desk tells

    def hear(self, event: "Event") -> None:
        """What the desk tells becomes a notice, where a person wants to know it at once."""
        from specpanel.core.session.events import (
            ChosenFound,
            FindingMade,
            Note,
            PathologyFound,
            Ready,
            Stopped,
        )

        match event:
            case Note(text) if self.desk is None or text != str(self.desk.failure):
                self.say(text)
            case FindingMade(severity=severity, text=text, fix=fix):
                self.say(
                    f"{text}. {fix}" if fix else text,
                    severity="information" if severity == "note" else "warning",
                )
            case Ready(url, took_s):
                self.say(f"ready at {url} after {took_s:.0f} s")
            case PathologyFound(_, found) if found.severity != "note":
                self.say(found.sentence, severity="warning")
            case ChosenFound(choices, _):
                for choice in choices:
                    if choice.agrees is False:
                        self.say(
                            f"{choice.name}: wished {choice.wished}, vLLM took {choice.chosen}",
                            severity="warning",
                        )
            case Stopped(name, killed, took_s, survivors):
                left = f"; still there: {', '.join(map(str, survivors))}" if survivors else ""
                self.say(f"{'killed' if killed else 'stopped'} {name} in {took_s:.1f} s{left}")

    def show_failure(self) -> None:
        """A failure of what was asked for is a dialog, once."""
        desk = self.desk
        failure = None if desk is None else desk.failure
        if desk is not None and failure is not None and failure is not self._shown_failure:
            named = desk.last_log is not None and str(desk.last_log) in str(failure)
            self.setting_to_mend = setting_of(failure)
            self.push_screen(ErrorScreen(failure, has_log=named), self._failure_seen)
        self._shown_failure = failure

    def _failure_seen(self, wants_log: bool | None) -> None:
        if wants_log:
            self.action_show("logs")

    def action_show(self, mode: str) -> None:
        self.switch_mode(mode)

    # Keys

    def ask(self, what: "Callable[[Desk], None]") -> None:
        """Asks something of the desk; what it refuses is a notice.

        A desk that is still on its way (the first picture does not wait for it) is asked when it is there.
        """
        if self.desk is None and self.desk_is_coming:
            self._asked_early.append(what)
            return
        if self.desk is None:
            self.say(NO_DESK)
            return
        try:
            what(self.desk)
        except NotRunningError as error:
            self.say(str(error), severity="warning")

    def action_switcher(self) -> None:
        self.ask(self._open_switcher)

    def _open_switcher(self, desk: "Desk") -> None:
        from specpanel.app.tui.screens.switcher import SwitcherScreen

        self.push_screen(SwitcherScreen(desk, self.say, glyphs=self.glyphs))

    def _ask_here(self, what: "Callable[[Desk], None]") -> None:
        """Asks unless a recording is on the screen, whose server is not the desk's."""
        if getattr(self.screen, "over_recording", False):
            self.say(REPLAYING)
        else:
            self.ask(what)

    def action_switch_back(self) -> None:
        self._ask_here(self._switch_back)

    def _switch_back(self, desk: "Desk") -> None:
        if desk.previous is None or desk.busy is not None:
            desk.switch_back()  # which says why not
        else:
            self.replace_server(desk, lambda: self.ask(lambda desk: desk.switch_back()))

    def replace_server(self, desk: "Desk", replace: "Callable[[], None]") -> None:
        """Does what ends the current server; asks before, where somebody else needs that one."""
        from specpanel.app.tui.screens.sessions_dialogs import ConfirmScreen

        served = desk.current
        needed = owner_sentence(served.record if served is not None and served.is_up else None)
        if not needed:
            replace()
            return
        question = ConfirmScreen("Replace the server that runs?", (needed,), "replace it")
        self.push_screen(question, lambda yes: replace() if yes else None)

    def action_traffic(self) -> None:
        self._ask_here(self._toggle_traffic)

    def _toggle_traffic(self, desk: "Desk") -> None:
        on = not desk.sending
        desk.set_traffic(on)
        self.say("traffic begins" if on else "traffic ends")

    def action_stop_server(self) -> None:
        self._ask_here(self._ask_to_stop)

    def _ask_to_stop(self, desk: "Desk") -> None:
        served = desk.starting or desk.current
        if desk.busy is None and not desk.owns_server:
            raise NotRunningError("there is no server of ours to stop")

        def answered(stop: bool | None) -> None:
            if stop:
                desk.stop()

        name = "" if served is None else f"{served.name} at {served.facts.url}"
        needed = "" if served is None or desk.busy is not None else owner_sentence(served.record)
        self.push_screen(StopScreen(desk.busy, name, needed), answered)

    def action_mark(self) -> None:
        self._ask_here(self._ask_for_mark)

    def _ask_for_mark(self, desk: "Desk") -> None:
        desk.require_watch()
        default = f"mark {self._marks + 1}"

        def answered(text: str | None) -> None:
            if text is not None:
                self._marks += 1
                self.ask(lambda desk: desk.mark(text or default))

        self.push_screen(MarkScreen(default), answered)


def setting_of(error: SpecpanelError) -> str | None:
    """The profile's setting that a failure points at, dotted; None where it names none."""
    from specpanel.core.session.launch import VllmEndedError

    return error.failure.setting if isinstance(error, VllmEndedError) else None
