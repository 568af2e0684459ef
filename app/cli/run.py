"""``specpanel run``: the headless twin of the panel."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specpanel.app.cli import options, sweep
from specpanel.app.cli.report import guarded, say, talk

if TYPE_CHECKING:
    from specpanel.core.engine.interpreter_facts import InterpreterFacts
    from specpanel.core.session.plan import Outcome, Plan
    from specpanel.core.session.summary import Leg
    from specpanel.core.settings.profile import Profile
    from specpanel.core.speculation.verdict import Verdict

HELP = (
    "Launch vLLM with a drafter, send traffic, and say what speculation did. "
    "Arguments after -- go to vLLM untouched."
)
_REQUESTS_WITHOUT_TTY = 24


def _senders(incomplete: str) -> list[str]:
    return [name for name in sweep.SENDERS if name.startswith(incomplete)]


@guarded
def run(
    context: typer.Context,
    name: options.ProfileName = None,
    model: options.Model = None,
    drafter: options.DrafterMethod = None,
    draft_model: options.DraftModelOption = None,
    k: options.DraftTokens = None,
    port: options.Port = None,
    python: options.Python = None,
    duration: options.Duration = None,
    requests: options.Requests = None,
    concurrency: options.Concurrency = None,
    rate: options.Rate = None,
    prompts: options.Prompts = None,
    capture: options.Capture = None,
    assignments: options.Assignments = None,
    baseline: Annotated[
        bool, typer.Option("--baseline", help="Measure the same prompts without a drafter first.")
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option("--record", help="Record to this file (NDJSON), not to the folder of runs."),
    ] = None,
    no_record: Annotated[
        bool, typer.Option("--no-record", help="Leave no recording (specpanel runs lists them).")
    ] = False,
    as_json: options.Json = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Start in spite of what preflight calls an error; recorded."),
    ] = False,
    keep_running: Annotated[
        bool, typer.Option("--keep-running", help="Leave the server running at the end.")
    ] = False,
    attach: Annotated[
        str | None,
        typer.Option("--attach", metavar="URL", help="Measure a running server; start none."),
    ] = None,
    sender: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="guidellm",
            help="Let guidellm send the traffic, at each of --loads, -n requests each (24).",
            autocompletion=_senders,
        ),
    ] = None,
    loads: Annotated[
        str | None,
        typer.Option("--loads", help="With guidellm: requests at a time, with commas (1,4,8)."),
    ] = None,
    guidellm: Annotated[
        str | None,
        typer.Option(
            "--guidellm",
            metavar="PATH",
            envvar="SPECPANEL_GUIDELLM",
            help="Where guidellm is: the program, or the folder or Python of its environment.",
        ),
    ] = None,
) -> None:
    flags = {
        "--model": model if attach is None else model or "attached",
        "--drafter": drafter,
        "--draft-model": draft_model,
        "--k": k,
        "--port": port,
        "--python": python,
        "--duration": duration,
        "--requests": requests,
        "--concurrency": concurrency,
        "--rate": rate,
        "--prompts": prompts,
        "--capture": capture,
    }
    profile = options.resolved_profile(name, flags, assignments, context.obj or ())
    if sender is not None or loads is not None:
        refused = {
            **{flag: flags[flag] for flag in ("--duration", "--rate", "--capture")},
            "--baseline": baseline,
            "--record": record,
            "--no-record": no_record,
            "--force": force,
            "--keep-running": keep_running,
        }
        sweep.sweep(
            sweep.Asked(profile, sender, loads, requests, concurrency, attach, model, guidellm),
            refused,
            as_json=as_json,
        )
        return
    said = context.get_parameter_source("guidellm")
    if guidellm is not None and (said is None or said.name == "COMMANDLINE"):
        from specpanel.core.errors import ConfigurationError

        raise ConfigurationError("--guidellm needs --with guidellm", "Say both, or leave it out.")
    plan = replace(_plan(profile, baseline, attach, model, keep_running), force=force)
    fly(_recorded(plan, record, no_record), as_json=as_json)


def _plan(
    profile: "Profile",
    baseline: bool,
    attach: str | None,
    model: str | None,
    keep_running: bool,
) -> "Plan":
    from specpanel.core.errors import ConfigurationError
    from specpanel.core.session.plan import Plan

    if attach is not None and baseline:
        raise ConfigurationError(
            "--baseline needs a server of its own, --attach uses another's",
            "Leave one of them out.",
        )
    if attach is not None:
        # The name to ask for is the server's own unless one was given.
        target = profile.target.model_copy(update={"served_name": model})
        profile = profile.model_copy(update={"target": target})
    if baseline and profile.drafter.method == "none":
        raise ConfigurationError(
            "--baseline compares with plain decoding, and this profile has no drafter",
            "Choose one with --drafter.",
        )
    traffic = profile.traffic
    endless = traffic.requests is None and traffic.duration_s is None
    if endless and (baseline or not sys.stdout.isatty()):
        traffic = traffic.model_copy(update={"requests": _REQUESTS_WITHOUT_TTY})
        profile = profile.model_copy(update={"traffic": traffic})
    return Plan(profile, baseline, attach, keep_running)


def _recorded(plan: "Plan", record: Path | None, no_record: bool) -> "Plan":
    """The plan with the file that it is recorded to: every run is, unless that is refused."""
    from specpanel.core.errors import ConfigurationError
    from specpanel.core.session.history import recording_path

    if record is not None and no_record:
        raise ConfigurationError("--record and --no-record contradict each other", "Keep one.")
    if no_record:
        return plan
    if record is not None:
        return replace(plan, record=record)
    return replace(plan, record=recording_path(plan.profile.name), record_by_itself=True)


def fly(plan: "Plan", *, as_json: bool) -> None:
    """Run the plan with signals in place, and end with its exit status."""
    import asyncio

    from specpanel.app.cli.progress import JsonPrinter, PlainPrinter
    from specpanel.app.cli.signals import on_stop_signals
    from specpanel.core.session.plan import Outcome
    from specpanel.core.session.session import Session

    async def whole() -> Outcome:
        printer = JsonPrinter() if as_json else PlainPrinter()
        session = Session(plan, printer, judge=_judged_by_experiments)
        on_stop_signals(session.interrupt)
        return await session.run()

    outcome = asyncio.run(whole())
    if plan.record_by_itself and plan.record is not None and plan.record.exists() and not as_json:
        talk(f"recorded: specpanel runs show {plan.record.stem}")
    if plan.attach is None:
        _keep(plan, outcome, as_json=as_json)
    if outcome.error is not None:
        say(outcome.error)
    if outcome.exit_code:
        raise typer.Exit(int(outcome.exit_code))


def _judged_by_experiments(
    profile: "Profile", leg: "Leg", facts: "InterpreterFacts"
) -> "Verdict | None":
    """Whether it pays by earlier experiments; a store that cannot be read says nothing."""
    from specpanel.core.errors import RecordingError
    from specpanel.core.lab.runs import verdict_from_store

    try:
        return verdict_from_store(profile, leg, facts)
    except RecordingError as error:
        talk(f"{error} The verdict does without earlier experiments.")
        return None


def _keep(plan: "Plan", outcome: "Outcome", *, as_json: bool) -> None:
    """Put the run beside the experiments; it has ended well even where that cannot be done."""
    from specpanel.core.errors import RecordingError
    from specpanel.core.lab.runs import keep_run
    from specpanel.core.lab.store import Store

    try:
        with Store() as store:
            name = keep_run(store, plan, outcome)
    except RecordingError as error:
        talk(f"the run is not among the results: {error}")
        return
    if name is not None and not as_json:
        talk(f"kept: specpanel results show {name}")
