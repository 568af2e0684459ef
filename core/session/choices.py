"""What a panel can change to: profiles, servers of ours that run, recent configurations, variants."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from specpanel.core.engine.process import running_servers
from specpanel.core.engine.registry import ServerRecord
from specpanel.core.errors import ConfigurationError, SpecpanelError
from specpanel.core.session.history import past_runs
from specpanel.core.session.switching import differences, variants
from specpanel.core.settings.files import catalogue
from specpanel.core.settings.overrides import Overrides, from_environment
from specpanel.core.settings.profile import Profile

ChoiceKind = Literal["variant", "running", "profile", "recent"]

_RECENT = 20


@dataclass(frozen=True, slots=True)
class Choice:
    """One thing to change to. ``record`` is a server to adopt; ``profile`` is to be started.

    Neither is there for a profile whose file is broken: ``error`` says how.
    """

    kind: ChoiceKind
    name: str
    about: str
    profile: Profile | None = None
    record: ServerRecord | None = None
    error: str | None = None


def choices(
    current: Profile | None, current_id: str | None = None, recordings: Path | None = None
) -> tuple[Choice, ...]:
    """Everything that can be changed to, variants of ``current`` first. Reads files and processes.

    Args:
        current_id: the current server's record, which is no choice.
        recordings: where recent configurations are found; None looks for none.
    """
    found = [] if current is None else [_variant(current, other) for other in variants(current)]
    found += [_running(record) for record in running_servers() if record.id != current_id]
    try:
        overrides = from_environment()
    except ConfigurationError as unreadable:
        found.append(Choice("profile", "the environment", "broken", error=str(unreadable)))
        overrides = Overrides({})
    listed = catalogue(overrides=overrides)
    for file in listed:
        if file.profile is None:
            error = None if file.error is None else str(file.error)
            found.append(Choice("profile", file.name, "broken", error=error))
        else:
            found.append(_started("profile", file.profile))
    known = [file.profile for file in listed if file.profile is not None]
    known += [choice.profile for choice in found if choice.profile is not None]
    known += [] if current is None else [current]
    found += [_started("recent", profile) for profile in _recent(recordings, known)]
    return tuple(found)


def drafter_words(profile: Profile) -> str:
    """The drafter and its K: "ngram K=4", or "no drafter"."""
    drafter = profile.drafter
    if drafter.method == "none":
        return "no drafter"
    return drafter.method + (f" K={drafter.draft_tokens}" if drafter.draft_tokens else "")


def _variant(current: Profile, other: Profile) -> Choice:
    return Choice("variant", other.name, drafter_words(other), other)


def _running(record: ServerRecord) -> Choice:
    drafter = record.drafter + (f" K={record.draft_tokens}" if record.draft_tokens else "")
    return Choice("running", record.name, f"{drafter}, {record.url}", record.settings, record)


def _started(kind: ChoiceKind, profile: Profile) -> Choice:
    model = Path(profile.target.model).name
    return Choice(kind, profile.name, f"{drafter_words(profile)}, {model}", profile)


def _recent(folder: Path | None, known: list[Profile]) -> list[Profile]:
    """Configurations of past runs, newest first, that no profile and no newer run has."""
    if folder is None:
        return []
    kept: list[Profile] = []
    with suppress(SpecpanelError):  # a folder that cannot be read only means that none is offered
        for run in past_runs(folder):
            settings = run.settings
            if settings is not None and all(differences(one, settings) for one in [*known, *kept]):
                kept.append(settings)
            if len(kept) == _RECENT:
                break
    return kept
