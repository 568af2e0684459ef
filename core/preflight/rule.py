"""A rule: one question to a launch, with an id, a severity and what it says.

A rule is a generator over (profile, surroundings) that yields a `Remark` for each thing that is wrong; the
decorator gives it its id and severity. A rule that lacks a fact stays silent.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from specpanel.core.preflight.finding import Finding, Mend, Severity
from specpanel.core.preflight.surroundings import Surroundings
from specpanel.core.settings.profile import Profile


@dataclass(frozen=True, slots=True)
class Remark:
    """What a rule has to say; fields as of a `Finding`. ``severity``: where it is not the usual."""

    text: str
    fix: str = ""
    field: str | None = None
    evidence: tuple[str, ...] = ()
    mend: tuple[Mend, ...] = ()
    severity: Severity | None = None


Question = Callable[[Profile, Surroundings], Iterator[Remark]]


@dataclass(frozen=True, slots=True)
class Rule:
    """``severity`` is the usual one, ``also`` those it can have beside it. ``says`` and ``fix`` are for
    the list of rules: what it means in general, and what ends it."""

    id: str
    severity: Severity
    says: str
    fix: str
    ask: Question
    also: tuple[Severity, ...] = ()

    def findings(self, profile: Profile, around: Surroundings) -> Iterator[Finding]:
        """What it finds wrong with this launch."""
        for remark in self.ask(profile, around):
            yield Finding(
                code=self.id,
                severity=remark.severity or self.severity,
                text=remark.text,
                fix=remark.fix,
                field=remark.field,
                evidence=remark.evidence,
                mend=remark.mend,
            )


def rule(
    identity: str,
    severity: Severity,
    says: str,
    fix: str,
    *,
    also: tuple[Severity, ...] = (),
) -> Callable[[Question], Rule]:
    """Make a generator function a rule."""

    def made(ask: Question) -> Rule:
        return Rule(identity, severity, says, fix, ask, also)

    return made
