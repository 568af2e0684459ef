"""``specpanel tune``: how many draft tokens at which load."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from specpanel.app.cli import options
from specpanel.app.cli.breakeven import whole_numbers
from specpanel.app.cli.experiments import MaxTokens, chosen_prompts, conducted
from specpanel.app.cli.report import guarded, talk

if TYPE_CHECKING:
    from specpanel.core.lab.events import LabListener
    from specpanel.core.lab.experiment import Work
    from specpanel.core.lab.tuning import Tuned
    from specpanel.core.settings.profile import Profile

HELP = (
    "Find K by number of running requests from measured step times and acceptance, write it into a new "
    "profile, and compare that with one fixed K."
)


@guarded
def tune(
    name: Annotated[
        str,
        typer.Argument(
            metavar="PROFILE",
            help="Name of a profile, or a .toml file.",
            autocompletion=options._profile_names,
        ),
    ],
    loads: Annotated[
        str, typer.Option("--loads", help="Requests at a time, with commas between.")
    ] = "1,4,16",
    ks: Annotated[
        str, typer.Option("--ks", help="Draft tokens to try, with commas.")
    ] = "1,2,3,5,8",
    blocks: Annotated[int, typer.Option("--blocks", help="Blocks at each load.", min=5)] = 10,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="NAME", help="Use this break-even; measure none."),
    ] = None,
    verify: Annotated[
        str | None,
        typer.Option("--verify", help="Loads to compare at; the lowest and the highest if absent."),
    ] = None,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Write the schedule without comparing it.")
    ] = False,
    minutes: Annotated[
        float, typer.Option("--minutes", help="Time for each comparison.", min=0.1)
    ] = 10.0,
    write: Annotated[
        str | None,
        typer.Option("--write", metavar="NAME", help="Name of the new profile; PROFILE-tuned."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over that profile.")] = False,
    max_tokens: MaxTokens = None,
    prompts: options.Prompts = None,
    python: options.Python = None,
    port: options.Port = None,
    assignments: options.Assignments = None,
    as_json: options.Json = False,
) -> None:
    from dataclasses import asdict

    from specpanel.app.cli.plain_lab import tuned_text
    from specpanel.core.errors import ConfigurationError
    from specpanel.core.lab.tuning import tuned, with_schedule
    from specpanel.core.monitor.recording import line
    from specpanel.core.settings.files import require_free, write_profile

    flags = {"--prompts": prompts, "--python": python, "--port": port}
    more = [] if max_tokens is None else [f"traffic.max_tokens={max_tokens}"]
    given = [*(assignments or []), *more]
    profile: Profile = options.resolved_profile(name, flags, given, ())
    if profile.drafter.draft_tokens is None:
        raise ConfigurationError("tuning K needs a drafter with a K", "Name a profile with one.")
    at, tried = whole_numbers("--loads", loads), whole_numbers("--ks", ks)
    compared_at = () if no_verify else whole_numbers("--verify", verify or f"{at[0]},{at[-1]}")
    new_name = write or f"{profile.name.split('+')[0]}-tuned"[:64]
    own = _own(name, flags, given, profile)
    require_free(new_name, overwrite=force)
    experiment, result = _curve(profile, at, tried, blocks, source, as_json=as_json)
    found = tuned(experiment, result, profile)
    after = with_schedule(profile, found, new_name)
    path = write_profile(with_schedule(own, found, new_name), overwrite=force)
    table = {**asdict(found), "profile": str(path)}
    kept = _keep(profile, experiment, table)
    typer.echo(line("tuned", {**table, "id": kept}) if as_json else tuned_text(table))
    for load in compared_at:
        _verify(profile, found, after, load, minutes, as_json=as_json)
    if no_verify:
        talk("not compared with a fixed K: specpanel compare tells what the schedule gains")


def _own(name: str, flags: dict[str, Any], given: list[str], profile: "Profile") -> "Profile":
    """What of ``profile`` belongs into a file: not what the environment gave, but the pair that ran."""
    from specpanel.core.errors import ConfigurationError

    try:
        own: Profile = options.resolved_profile(name, flags, given, (), environment=False)
    except ConfigurationError:  # the environment gives what the file lacks
        return profile
    return own.model_copy(update={"target": profile.target, "drafter": profile.drafter})


def _curve(
    profile: "Profile",
    loads: tuple[int, ...],
    ks: tuple[int, ...],
    blocks: int,
    source: str | None,
    *,
    as_json: bool,
) -> tuple[str, Any]:
    """A break-even with this drafter: the one that is named, or a new one."""
    from specpanel.core.errors import ConfigurationError
    from specpanel.core.lab.breakeven import Breakeven
    from specpanel.core.lab.breakeven_plan import BreakevenPlan
    from specpanel.core.lab.store import Store
    from specpanel.core.lab.tuning import with_k

    if source is not None:
        with Store() as store:
            named = store.find(source)
        if named.kind != "breakeven" or named.result is None:
            raise ConfigurationError(f"{named.id} is no break-even with a result")
        return named.id, named.result
    # Acceptance of every position that is tried needs the drafter at the largest K.
    plan = BreakevenPlan(
        profile=with_k(profile, max(ks), profile.name),
        prompts=chosen_prompts(profile),
        loads=loads,
        ks=ks,
        blocks=blocks,
    )

    def make(tell: "LabListener") -> "Work":
        return Breakeven(plan, tell)

    ended = conducted(make, as_json=as_json)
    if ended.id is None or ended.result is None:
        raise typer.Exit(1)
    return ended.id, ended.result


def _keep(profile: "Profile", evidence: str, table: dict[str, Any]) -> str:
    """The schedule beside the break-even that it rests on, and measured where that was."""
    from specpanel.core.lab.store import DONE, Store

    with Store() as store:
        measured = store.find(evidence)
        settings = {"evidence": evidence}
        name = store.begin("tune", profile.name, settings, measured.environment, measured.seed)
        conclusion = f"{' '.join(table['words'])}; the best single K is {table['best_k']}"
        store.finish(name, DONE, conclusion, table)
    return name


def _verify(
    profile: "Profile",
    found: "Tuned",
    after: "Profile",
    load: int,
    minutes: float,
    *,
    as_json: bool,
) -> None:
    """The schedule against the profile's own K, and against the best single one, at one load."""
    from specpanel.core.lab.arms import arms_of
    from specpanel.core.lab.compare import ComparePlan, Comparison
    from specpanel.core.lab.tuning import with_k
    from specpanel.core.speculation.stopping import Stopping

    sides = [profile, after]
    if found.best_k != found.fixed_k:
        sides.append(with_k(profile, found.best_k, f"{profile.name.split('+')[0]}+k{found.best_k}"))
    traffic = profile.traffic.model_copy(update={"concurrency": load})
    plan = ComparePlan(
        arms=arms_of(sides, traffic),
        prompts=chosen_prompts(profile),
        stopping=Stopping(budget_s=minutes * 60),
    )

    def make(tell: "LabListener") -> "Work":
        return Comparison(plan, tell)

    conducted(make, as_json=as_json)
