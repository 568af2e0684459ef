"""What is known of the launch that the form describes: its command, what preflight found, or why neither."""

from dataclasses import dataclass

from specpanel.app.memory_words import memory_sentences, not_judged
from specpanel.app.tui.screens.launch_draft import Draft
from specpanel.core.engine.command import shell_text
from specpanel.core.errors import SpecpanelError
from specpanel.core.preflight.finding import ENDS_WITH_OUR_SERVER, Finding, first_mendable
from specpanel.core.session.preparing import Prepared, look_ahead
from specpanel.core.settings.profile import Profile


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the look ahead at ``profile`` gave: the launch thought through, or why there is none."""

    profile: Profile
    prepared: Prepared | None
    error: SpecpanelError | None


def look_at(profile: Profile) -> Outlook:
    """Looks ahead. Asks an interpreter and the machine, so it belongs in a thread."""
    try:
        return Outlook(profile, look_ahead(profile), None)
    except SpecpanelError as error:
        return Outlook(profile, None, error)


def in_the_way(outlook: Outlook | None, *, own_server: bool) -> Finding | None:
    """The first finding that keeps this from being started.

    ``own_server``: a server of ours is up, and holds port and memory until it makes room: the desk sees
    to that.
    """
    prepared = None if outlook is None else outlook.prepared
    for finding in () if prepared is None else prepared.findings:
        passes = own_server and finding.code in ENDS_WITH_OUR_SERVER
        if finding.severity == "error" and not passes:
            return finding
    return None


def to_mend(outlook: Outlook | None, dotted: str | None) -> Finding | None:
    """The finding that settings can end: the one about the setting ``dotted``, or else the first."""
    prepared = None if outlook is None else outlook.prepared
    findings = () if prepared is None else prepared.findings
    here = (finding for finding in findings if dotted is not None and finding.field == dotted)
    return first_mendable(here) or first_mendable(findings)


@dataclass(frozen=True, slots=True)
class Prospect:
    """What the side of the form shows.

    ``stale``: the command is of settings from before the last edit. ``note`` says why something is
    missing. ``findings`` is None while they are not known; ``unjudged`` could not be looked at, each with
    why.
    """

    command: str | None
    stale: bool
    note: str
    errors: tuple[str, ...]
    findings: tuple[Finding, ...] | None
    facts: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()


def prospect(draft: Draft | None, outlook: Outlook | None) -> Prospect:
    """What to show of a draft, given the newest look ahead, which may be of something else. Pure."""
    if draft is None:
        return Prospect(None, True, "a profile that can be read gives a command", (), None)
    titles = {row.dotted: row.title for row in draft.rows}
    wrong = tuple(f"{titles.get(name, name)}: {why}" for name, why in draft.errors.items())
    if outlook is None or outlook.profile.name != draft.name:
        outlook = None
    current = outlook if outlook is not None and outlook.profile == draft.profile else None
    if current is not None and current.error is not None:
        note = f"{current.error.message}. {current.error.fix}".strip()
        return Prospect(None, False, note, (note,), None)
    if current is not None and current.prepared is not None:
        found = current.prepared
        facts = (
            f"vLLM {found.facts.vllm_version or 'of an unknown version'}, {found.facts.platform}",
            *found.command.notes,
            *memory_sentences(found.memory),
            *found.explanations,
        )
        unjudged = not_judged(found.memory)
        command = shell_text(found.command)
        return Prospect(command, False, "", wrong, found.findings, facts, unjudged)
    before = None if outlook is None or outlook.prepared is None else outlook.prepared.command
    note = "the command follows once the settings are valid" if wrong else "looking at the machine"
    return Prospect(None if before is None else shell_text(before), True, note, wrong, None)
