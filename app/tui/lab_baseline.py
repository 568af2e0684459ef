"""The key that measures the running configuration against plain decoding: its cost is told, then asked."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from specpanel.app.tui.lab_jobs import specpanel_command
from specpanel.core.errors import NotRunningError, SpecpanelError

if TYPE_CHECKING:
    from specpanel.app.tui.panel import Panel
    from specpanel.core.session.desk import Desk
    from specpanel.core.settings.profile import Profile

MINUTES = 10.0
PRECISION_PERCENT = 5.0
_STOP_S = 60.0


def ask_for_baseline(panel: "Panel", load: int | None) -> None:
    """Ask whether to measure what the desk serves, ``load`` requests at a time."""
    panel.ask(partial(_ask, panel, load))


def _ask(panel: "Panel", load: int | None, desk: "Desk") -> None:
    served = desk.current
    if served is None:
        raise NotRunningError("there is no configuration to measure: start one first")
    if served.profile is None:
        raise NotRunningError("the server was not started from a profile, so it cannot be repeated")
    if served.profile.drafter.method == "none":
        raise NotRunningError("this is plain decoding: there is nothing to compare it with")
    if panel.lab.running:
        raise NotRunningError("an experiment is on its way: the Lab shows it")
    panel.run_worker(_confirm(panel, desk, served.profile, load), group="baseline", exclusive=True)


async def _confirm(panel: "Panel", desk: "Desk", profile: "Profile", load: int | None) -> None:
    from specpanel.app.tui.screens.lab_new import TRAFFIC_ENDS
    from specpanel.app.tui.screens.sessions_dialogs import ConfirmScreen

    on_cpu = await asyncio.to_thread(_on_cpu, profile)
    at = load or profile.traffic.concurrency
    sentences = [
        f"Two servers get the same prompts, block by block, {at} at a time: this configuration and the "
        "same without its drafter.",
        f"It ends once the ratio is known to ±{PRECISION_PERCENT:g} %, after {MINUTES:g} minutes and two "
        "starts at the latest. What is measured until a stop is kept.",
    ]
    if not on_cpu and desk.owns_server:
        sentences.append("The server that runs now is stopped first: its memory is needed.")
    elif desk.sending:
        sentences.append(TRAFFIC_ENDS)
    question = ConfirmScreen("Measure whether speculation pays here?", sentences, "measure it")

    def answered(yes: bool | None) -> None:
        if yes:
            panel.run_worker(_measure(panel, desk, profile, at, on_cpu), group="baseline")

    panel.push_screen(question, answered)


def _on_cpu(profile: "Profile") -> bool:
    from specpanel.core.engine.command import platform_of
    from specpanel.core.engine.interpreter import probe_interpreter, resolve_python

    try:
        facts = probe_interpreter(resolve_python(profile.engine.python))
    except SpecpanelError:
        return False  # the command will say what is wrong
    return platform_of(profile, facts) == "cpu"


async def _measure(
    panel: "Panel", desk: "Desk", profile: "Profile", load: int, on_cpu: bool
) -> None:
    if not on_cpu and desk.owns_server:
        if not await _stopped(desk):
            panel.say("the server did not end, so nothing is measured", severity="error")
            return
    elif desk.sending:
        desk.set_traffic(False)
    try:
        job = panel.lab.start(await asyncio.to_thread(compare_command, profile, load))
    except SpecpanelError as error:
        panel.say(str(error), severity="error")
        return
    panel.say(f"measuring {profile.name} against plain decoding")
    await panel.lab.until_ended(job, panel.say)


async def _stopped(desk: "Desk") -> bool:
    desk.stop()
    deadline_s = asyncio.get_running_loop().time() + _STOP_S
    while asyncio.get_running_loop().time() < deadline_s:
        await asyncio.sleep(0.2)
        if desk.busy is None:
            break
    return not desk.owns_server


def compare_command(profile: "Profile", load: int) -> list[str]:
    """The comparison as a command; its profiles lie in files of their own, edits of a form included.

    Raises:
        SpecpanelError: they cannot be written.
    """
    from specpanel.core.lab.jobs import profile_file

    plain = profile.without_drafter()
    if plain.name == profile.name:
        plain = plain.model_copy(update={"name": f"{profile.name[:58]}+none"})
    sides = [str(profile_file(one)) for one in (plain, profile)]
    return specpanel_command(
        *("compare", *sides, "--json", "--concurrency", str(load)),
        *("--minutes", f"{MINUTES:g}", "--precision", f"{PRECISION_PERCENT:g}"),
    )
