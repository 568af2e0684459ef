"""From a profile to a command that may be run: the steps before any launch, headless or in the panel."""

import os
from dataclasses import dataclass

from specpanel.core.demo.model import damage, demo_model_folder
from specpanel.core.engine.command import Command, build_command, platform_of
from specpanel.core.engine.interpreter import probe_interpreter, resolve_python
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.preflight.attention_kind import kind_of
from specpanel.core.preflight.finding import Finding
from specpanel.core.preflight.gather import gather
from specpanel.core.preflight.memory_estimate import MemoryEstimate, estimate
from specpanel.core.preflight.rules import check
from specpanel.core.preflight.visible import visible_now
from specpanel.core.session.mla_tiers import tier_sentences
from specpanel.core.session.targets import (
    DEMO_PREFIX,
    drafter_model,
    uses_demo_model,
    with_model_paths,
)
from specpanel.core.settings.mla import Subject
from specpanel.core.settings.profile import Profile


@dataclass(frozen=True, slots=True)
class Prepared:
    """A launch that was thought through. ``profile`` has its models as folders or hub ids.

    ``memory`` is an estimate; ``subject`` is what its attention settings are about. ``explanations`` are
    sentences to show below the findings: what the launch will do, where that takes words.
    """

    profile: Profile
    facts: InterpreterFacts
    command: Command
    findings: tuple[Finding, ...]
    memory: MemoryEstimate
    subject: Subject
    explanations: tuple[str, ...] = ()


def look_ahead(profile: Profile) -> Prepared:
    """What a launch of ``profile`` would be, without making or starting anything. Takes about 0.2 s.

    Raises:
        ConfigurationError: there is no such interpreter or demonstration model.
    """
    python = resolve_python(profile.engine.python)
    facts = probe_interpreter(python)
    placed = with_model_paths(profile, python, None)
    command = build_command(placed, facts, os.environ)
    devices, broken = visible_now(placed, platform_of(placed, facts))
    around = gather(placed, facts, devices=devices, device_problem=broken)
    findings = _with_models_to_come(profile, check(placed, around))
    subject = Subject(kind_of(around.target.config, placed, around), around.platform)
    return Prepared(
        placed,
        facts,
        command,
        findings,
        estimate(placed, around),
        subject,
        tier_sentences(placed, around),
    )


def _with_models_to_come(profile: Profile, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """A demonstration model that is not there yet is no fault: a start makes it."""
    if not uses_demo_model(profile) or damage(demo_model_folder()) is None:
        return findings
    coming = {"target.model": profile.target.model, "drafter.model": drafter_model(profile)}
    left = [
        finding
        for finding in findings
        if not (coming.get(finding.field or "") or "").startswith(DEMO_PREFIX)
        or not finding.code.endswith("-unusable")
    ]
    note = Finding(
        "demo-model-to-come",
        "note",
        "the demonstration model is made before the first start, in some seconds",
        "",
        "target.model",
    )
    return (*left, note)
