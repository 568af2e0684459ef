"""``specpanel parity``: does speculation change greedy answers?"""

from typing import TYPE_CHECKING, Annotated

import typer

from specpanel.app.cli import options
from specpanel.app.cli.experiments import MaxTokens, chosen_prompts, conducted
from specpanel.app.cli.report import guarded

if TYPE_CHECKING:
    from specpanel.core.lab.events import LabListener
    from specpanel.core.lab.experiment import Work

HELP = (
    "Check that greedy answers with the drafter are those without it. Ends with 1 where one differs by "
    "more than a numerical tie."
)


@guarded
def parity(
    name: Annotated[
        str,
        typer.Argument(
            metavar="PROFILE",
            help="Name of a profile, or a .toml file.",
            autocompletion=options._profile_names,
        ),
    ],
    requests: Annotated[
        int, typer.Option("--requests", "-n", help="Prompts to compare.", min=1)
    ] = 40,
    max_tokens: MaxTokens = None,
    chunked_prefill: Annotated[
        bool,
        typer.Option("--chunked-prefill", help="Also with prompts read in pieces: one more start."),
    ] = False,
    tie: Annotated[
        float | None,
        typer.Option(
            "--tie", help="Log probabilities this near are a tie, in nats; by dtype.", min=0
        ),
    ] = None,
    concurrency: options.Concurrency = None,
    prompts: options.Prompts = None,
    python: options.Python = None,
    port: options.Port = None,
    assignments: options.Assignments = None,
    as_json: options.Json = False,
) -> None:
    from specpanel.core.lab.parity import Parity, ParityPlan

    flags = {
        "--concurrency": concurrency,
        "--prompts": prompts,
        "--python": python,
        "--port": port,
    }
    more = [] if max_tokens is None else [f"traffic.max_tokens={max_tokens}"]
    profile = options.resolved_profile(name, flags, [*(assignments or []), *more], ())
    plan = ParityPlan(profile, chosen_prompts(profile)[:requests], chunked_prefill, tie)

    def make(tell: "LabListener") -> "Work":
        return Parity(plan, tell)

    ended = conducted(make, as_json=as_json)
    if ended.result is None or not ended.result["lossless"]:
        raise typer.Exit(1)
