"""``specpanel compare``: which of these is faster here, and by how much."""

from typing import TYPE_CHECKING, Annotated

import typer

from specpanel.app.cli import options
from specpanel.app.cli.experiments import MaxTokens, Minutes, chosen_prompts, conducted
from specpanel.app.cli.report import guarded

if TYPE_CHECKING:
    from specpanel.core.lab.events import LabListener
    from specpanel.core.lab.experiment import Work

HELP = (
    "Compare profiles on the same prompts: ratios with 95 % intervals, every other against the first. "
    "All get the first one's traffic."
)
DEFAULT_MINUTES = 10.0


@guarded
def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="A B [C…]",
            help="Profiles: names or .toml files; the same one twice shows the noise.",
            autocompletion=options._profile_names,
        ),
    ],
    precision: Annotated[
        float,
        typer.Option(
            "--precision", help="Stop when every ratio is known to this, in percent.", min=0.1
        ),
    ] = 5.0,
    minutes: Minutes = DEFAULT_MINUTES,
    requests: Annotated[
        int | None, typer.Option("--requests", "-n", help="Most requests to each side.", min=1)
    ] = None,
    concurrency: options.Concurrency = None,
    max_tokens: MaxTokens = None,
    block: Annotated[
        int | None, typer.Option("--block", help="Prompts that are sent together.", min=1)
    ] = None,
    rounds: Annotated[
        int, typer.Option("--rounds", help="Starts of each server: A B, then B A.", min=1)
    ] = 2,
    apart: Annotated[
        bool, typer.Option("--apart", help="One server at a time, even where memory would do.")
    ] = False,
    prompts: options.Prompts = None,
    python: options.Python = None,
    port: options.Port = None,
    assignments: options.Assignments = None,
    as_json: options.Json = False,
) -> None:
    from specpanel.core.lab.arms import arms_of
    from specpanel.core.lab.compare import ComparePlan, Comparison
    from specpanel.core.speculation.stopping import Stopping

    flags = {
        "--concurrency": concurrency,
        "--prompts": prompts,
        "--python": python,
        "--port": port,
    }
    more = [] if max_tokens is None else [f"traffic.max_tokens={max_tokens}"]
    settings = [*(assignments or []), *more]
    profiles = [options.resolved_profile(name, flags, settings, ()) for name in names]
    arms = arms_of(profiles)
    plan = ComparePlan(
        arms=arms,
        prompts=chosen_prompts(arms[0].profile),
        stopping=Stopping(
            precision=precision / 100,
            budget_s=None if minutes is None else minutes * 60,
            requests=requests,
        ),
        block_prompts=block,
        rounds=rounds,
        apart=apart,
    )

    def make(tell: "LabListener") -> "Work":
        return Comparison(plan, tell)

    conducted(make, as_json=as_json)
