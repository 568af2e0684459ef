"""Runs of ``specpanel run`` beside the experiments: kept in the store, and judged by what stands there."""

from dataclasses import asdict

from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.engine.registry import table_without_secrets
from specpanel.core.lab.arms import launch_fingerprint
from specpanel.core.lab.environment import read_environment
from specpanel.core.lab.standing import judged, stored_evidence
from specpanel.core.lab.store import DONE, FAILED, INTERRUPTED, Store
from specpanel.core.session.plan import Outcome, Plan
from specpanel.core.session.summary import Leg
from specpanel.core.settings.profile import Profile
from specpanel.core.speculation.verdict import Verdict

RUN = "run"


def verdict_from_store(profile: Profile, leg: Leg, facts: InterpreterFacts) -> Verdict | None:
    """What earlier experiments say of a leg with a drafter; None where they say nothing.

    Raises:
        RecordingError: the store cannot be read.
    """
    found = stored_evidence(profile, read_environment(profile, facts).table())
    traffic, acceptance = profile.traffic, leg.acceptance
    share = None if acceptance is None else acceptance.drafted_share
    standing = judged(
        found,
        tokens_a_step=None if acceptance is None else acceptance.tokens_a_step,
        # Requests that arrive at a rate run together in numbers that nobody chose.
        concurrency=traffic.concurrency if traffic.rate_per_s is None else None,
        drafted_share=1.0 if share is None else share,
    )
    return None if standing.source == "none" else standing.as_verdict()


def keep_run(store: Store, plan: Plan, outcome: Outcome) -> str | None:
    """Put a run that launched a server into the store; its name, None where nothing was measured.

    Raises:
        RecordingError: the store cannot be written.
    """
    summary, facts = outcome.summary, outcome.interpreter
    if facts is None or not summary.legs:
        return None
    profile = plan.profile
    settings = {"baseline": plan.baseline, "traffic": profile.traffic.model_dump(mode="json")}
    around = read_environment(profile, facts).table()
    name = store.begin(RUN, profile.name, settings, around, profile.traffic.seed)
    records = dict(outcome.records)
    for leg in summary.legs:
        launched = profile.without_drafter() if leg.leg == "baseline" else profile
        number = store.add_run(
            *(name, leg.leg, leg.drafter, leg.draft_tokens, launch_fingerprint(launched)),
            *(table_without_secrets(launched), leg.ready_s),
        )
        measured = [record for record in records.get(leg.leg, ()) if not record.warmup]
        store.add_measurements(number, 0, {"concurrency": summary.concurrency}, measured)
    state = DONE if outcome.error is None else FAILED
    state = INTERRUPTED if summary.interrupted else state
    conclusion = summary.failure or summary.verdict.sentence
    store.finish(name, state, conclusion, asdict(summary))
    return name
