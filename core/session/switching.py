"""What changing from one configuration to another means: the difference, the cost, the way."""

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from specpanel.core.engine.registry import ServerRecord
from specpanel.core.preflight.finding import ENDS_WITH_OUR_SERVER, Finding
from specpanel.core.preflight.gather import port_state
from specpanel.core.preflight.rules import blocking
from specpanel.core.session.preparing import look_ahead
from specpanel.core.settings.profile import Profile

_ABSENT: tuple[object, ...] = (None, "", [], {})
_NONE = "–"  # what a side that lacks a setting shows
_NO_RESTART = ("traffic.", "description", "name")


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that differs; ``before`` and ``after`` as a person reads them."""

    setting: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class SwitchPlan:
    """``cost`` is a sentence. ``side_by_side`` starts the new server before the old one ends."""

    changes: tuple[Change, ...]
    cost: str
    side_by_side: bool
    errors: tuple[Finding, ...]  # what keeps it from working


def plan_switch(before: Profile | None, after: Profile, *, running: bool = True) -> SwitchPlan:
    """What changing to ``after`` means. Looks at the machine, starts nothing.

    ``running`` says whether a server of ours has to make way.

    Raises:
        ConfigurationError: ``after`` names an interpreter or a model that does not exist.
    """
    changes = differences(before, after)
    prepared = look_ahead(after)
    on_cpu = prepared.facts.platform == "cpu"
    roomy = not any(finding.code == "memory-low" for finding in prepared.findings)
    side_by_side = running and before is not None and on_cpu and roomy
    # Beside the old server another port is taken; its own is free once it has stopped.
    old_port = before is not None and before.engine.port == after.engine.port
    passing = ENDS_WITH_OUR_SERVER if running else frozenset()
    if not (side_by_side or (running and old_port)):
        passing -= {"port-taken"}
    errors = tuple(
        finding for finding in blocking(prepared.findings) if finding.code not in passing
    )
    if not running:
        cost = "a start: no server of ours has to make way"
    elif side_by_side:
        cost = "a restart beside the old server, which goes on serving until the new one is ready"
    else:
        cost = "a restart: the old server stops first, since memory for both is not certain"
    return SwitchPlan(changes, cost, side_by_side, errors)


def plan_adoption(before: Profile | None, record: ServerRecord) -> SwitchPlan:
    """What changing to a running server means."""
    after = record.settings
    changes = () if after is None else differences(before, after)
    cost = "none: it runs already, and the server before it goes on"
    return SwitchPlan(changes, cost, side_by_side=True, errors=())


def differences(before: Profile | None, after: Profile) -> tuple[Change, ...]:
    """Settings that differ, in the order of the profile.

    An empty text, list or table is an absent one, and so is a switch that is off where the other side has
    no such switch: drafters differ in what can be set of them.
    """
    old = {} if before is None else _flat(before)
    new = _flat(after)
    names = [*new, *(name for name in old if name not in new)]
    found = (Change(name, old.get(name, _NONE), new.get(name, _NONE)) for name in names)
    return tuple(
        change
        for change in found
        if change.before != change.after and {change.before, change.after} != {_NONE, "no"}
    )


def _flat(profile: Profile) -> dict[str, str]:
    table: dict[str, Any] = profile.model_dump(mode="json")
    flat: dict[str, str] = {}
    for section, values in table.items():
        if isinstance(values, dict):
            flat.update(
                {
                    f"{section}.{key}": _text(value)
                    for key, value in values.items()
                    if value not in _ABSENT
                }
            )
    return flat


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(map(str, value))
    return str(value)


def variants(profile: Profile) -> tuple[Profile, ...]:
    """The same launch with one field changed: no drafter, other K, other model-free drafters."""
    found: list[Profile] = []
    drafter = profile.drafter
    k = drafter.draft_tokens
    if drafter.method != "none":
        found.append(_named(profile.without_drafter(), "none"))
    if k is not None:
        for other in sorted({max(1, k // 2), k - 1, k + 1, k * 2} - {k, 0}):
            changed = _with_drafter(profile, {**drafter.model_dump(exclude_unset=True), "k": other})
            if changed is not None:
                found.append(_named(changed, f"k{other}"))
    for method in ("ngram", "suffix"):
        if method != drafter.method:
            changed = _with_drafter(profile, {"method": method})
            if changed is not None:
                found.append(_named(changed, method))
    return tuple(found)


def _with_drafter(profile: Profile, drafter: dict[str, Any]) -> Profile | None:
    """``profile`` with another drafter; None where its settings do not agree, such as rates for K."""
    table = {**profile.model_dump(exclude_unset=True), "drafter": drafter}
    table["drafter"].setdefault("method", profile.drafter.method)
    try:
        return Profile.model_validate(table)
    except ValidationError:
        return None


def _named(profile: Profile, suffix: str) -> Profile:
    stem = profile.name.split("+")[0]
    return profile.model_copy(update={"name": f"{stem}+{suffix}"[:64]})


def port_beside(profile: Profile, taken_url: str) -> Profile:
    """``profile`` on the next free port, where its own is taken."""
    state = port_state(profile.engine.host, profile.engine.port)
    if state.free or state.next_free is None:
        return profile
    engine = profile.engine.model_copy(update={"port": state.next_free})
    return profile.model_copy(update={"engine": engine})
