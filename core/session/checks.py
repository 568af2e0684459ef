"""Preflight as a step of a session: gather, judge, tell, and refuse what cannot work."""

import time
from collections.abc import Callable

from specpanel.core.engine.command import platform_of
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.errors import ConfigurationError, LaunchError, SpecpanelError
from specpanel.core.preflight.finding import Finding
from specpanel.core.preflight.gather import gather
from specpanel.core.preflight.rules import blocking, check
from specpanel.core.preflight.visible import visible_now
from specpanel.core.session.events import FindingMade, Forced
from specpanel.core.settings.profile import Profile

MEMORY_RETURNS_S = 5.0
# Findings about the machine as it is now: the profile is fine, so they are no usage errors.
_OF_THE_MOMENT = frozenset(
    {
        "port-taken",
        "cannot-listen",
        "vllm-missing",
        "suffix-package-missing",
        "device-driver",
        "device-busy",
    }
)


def refuse_what_cannot_work(
    profile: Profile,
    facts: InterpreterFacts,
    tell: Callable[[FindingMade | Forced], None],
    *,
    force: bool = False,
) -> tuple[str, ...]:
    """Check the launch and tell every finding; the codes of the errors that were overridden.

    Args:
        force: start in spite of errors. They are told, and that they were overridden.

    Raises:
        ConfigurationError: the profile asks for something that cannot be.
        LaunchError: the machine is not ready for it: a taken port, a missing package.
    """
    findings = _found(profile, facts)
    errors = blocking(findings)
    for finding in findings:
        if force or finding not in errors[:1]:
            tell(as_event(finding))
    if errors and not force:
        raise as_error(errors[0])
    codes = tuple(dict.fromkeys(finding.code for finding in errors))
    if codes:
        tell(Forced(codes))
    return codes


def _found(profile: Profile, facts: InterpreterFacts) -> tuple[Finding, ...]:
    """What preflight finds now; memory of a server that has just stopped gets some seconds to come back."""
    deadline_s = time.monotonic() + MEMORY_RETURNS_S
    while True:
        devices, broken = visible_now(profile, platform_of(profile, facts), fresh=True)
        around = gather(profile, facts, devices=devices, device_problem=broken)
        findings = check(profile, around)
        busy = any(finding.code == "device-busy" for finding in findings)
        if not busy or time.monotonic() > deadline_s:
            return findings
        time.sleep(0.5)


def as_event(finding: Finding) -> FindingMade:
    """The finding as it is told, printed and recorded."""
    return FindingMade(
        finding.code,
        finding.severity,
        finding.text,
        finding.fix,
        finding.field,
        finding.evidence,
    )


def as_error(finding: Finding) -> SpecpanelError:
    """The finding as the error that a refused launch raises."""
    kind = LaunchError if finding.code in _OF_THE_MOMENT else ConfigurationError
    return kind(finding.text, finding.fix)
