"""``specpanel breakeven``: from which acceptance on does speculation pay here?"""

from typing import TYPE_CHECKING, Annotated

import typer

from specpanel.app.cli import options
from specpanel.app.cli.experiments import MaxTokens, chosen_prompts, conducted
from specpanel.app.cli.report import guarded

if TYPE_CHECKING:
    from specpanel.core.lab.events import LabListener
    from specpanel.core.lab.experiment import Work

HELP = (
    "Measure from which acceptance length on speculation pays, by load and K, before any drafter is "
    "trained; and what the profile's own drafter costs and gains."
)


@guarded
def breakeven(
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
    ] = "1,2,4,8",
    ks: Annotated[str, typer.Option("--ks", help="Draft tokens a step, with commas.")] = "2,4,8",
    blocks: Annotated[
        int, typer.Option("--blocks", help="Blocks at each load; 5 give an interval.", min=2)
    ] = 10,
    rate: Annotated[
        float,
        typer.Option("--rate", help="Chance that a draft token is accepted.", min=0.0, max=1.0),
    ] = 0.7,
    no_drafter: Annotated[
        bool, typer.Option("--no-drafter", help="Price steps only; leave the drafter out.")
    ] = False,
    synthetic: Annotated[
        bool,
        typer.Option(
            "--synthetic",
            help="Price the profile's own drafter by vLLM's synthetic acceptance; needs a GPU.",
        ),
    ] = False,
    max_tokens: MaxTokens = None,
    prompts: options.Prompts = None,
    python: options.Python = None,
    port: options.Port = None,
    assignments: options.Assignments = None,
    as_json: options.Json = False,
) -> None:
    from specpanel.core.lab.breakeven import Breakeven
    from specpanel.core.lab.breakeven_plan import BreakevenPlan
    from specpanel.core.lab.synthetic import SyntheticBreakeven

    flags = {"--prompts": prompts, "--python": python, "--port": port}
    more = [] if max_tokens is None else [f"traffic.max_tokens={max_tokens}"]
    profile = options.resolved_profile(name, flags, [*(assignments or []), *more], ())
    plan = BreakevenPlan(
        profile=profile,
        prompts=chosen_prompts(profile),
        loads=whole_numbers("--loads", loads),
        ks=whole_numbers("--ks", ks),
        rate=rate,
        blocks=blocks,
        with_drafter=not no_drafter,
    )

    def make(tell: "LabListener") -> "Work":
        return SyntheticBreakeven(plan, tell) if synthetic else Breakeven(plan, tell)

    conducted(make, as_json=as_json)


def whole_numbers(flag: str, text: str) -> tuple[int, ...]:
    """The numbers of a list such as ``1,4,8``, ascending."""
    from specpanel.core.errors import ConfigurationError

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part) <= 4096 for part in parts):
        raise ConfigurationError(
            f"{flag} {text!r} is no list of whole numbers from 1 on", f"Write {flag} 1,4,8."
        )
    return tuple(sorted({int(part) for part in parts}))
