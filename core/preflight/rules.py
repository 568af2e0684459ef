"""Will this launch work, and why not: every rule over a profile and its surroundings. Pure."""

from specpanel.core.preflight import (
    attention_rules,
    drafter_rules,
    engine_rules,
    exposure_rules,
    memory_rules,
    method_name_rules,
    method_rules,
    mla_rules,
    model_rules,
    scheduling_rules,
    splitting_rules,
    training_rules,
)
from specpanel.core.preflight.finding import SEVERITIES, Finding
from specpanel.core.preflight.rule import Rule
from specpanel.core.preflight.surroundings import Surroundings
from specpanel.core.settings.profile import Profile

# A group's title, and its rules in the order in which they are told.
GROUPS: tuple[tuple[str, tuple[Rule, ...]], ...] = (
    ("Engine", engine_rules.RULES),
    ("Models", (*model_rules.RULES, *splitting_rules.RULES)),
    (
        "Method and platform",
        (*method_name_rules.RULES, *method_rules.RULES, *scheduling_rules.RULES),
    ),
    ("Drafter and target", (*drafter_rules.RULES, *training_rules.RULES)),
    ("Attention and MLA", (*mla_rules.RULES, *attention_rules.RULES)),
    ("Memory", memory_rules.RULES),
    ("Exposure", exposure_rules.RULES),
)
RULES: tuple[Rule, ...] = tuple(rule for _, rules in GROUPS for rule in rules)


def check(profile: Profile, around: Surroundings) -> tuple[Finding, ...]:
    """Every finding, errors first, in the order of `RULES` within a severity."""
    found = [finding for rule in RULES for finding in rule.findings(profile, around)]
    return tuple(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity)))


def blocking(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The errors: what keeps a launch from being tried."""
    return tuple(finding for finding in findings if finding.severity == "error")
