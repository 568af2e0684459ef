"""What the commands of the lab share: run an experiment with signals in place, print, leave."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specpanel.app.cli.report import say, talk

if TYPE_CHECKING:
    from specpanel.core.lab.events import LabListener
    from specpanel.core.lab.experiment import Ended, Work

Profile = Annotated[
    str, typer.Argument(metavar="PROFILE", help="Name of a profile, or a .toml file.")
]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", help="Longest answer, in tokens.", min=1)
]
Minutes = Annotated[
    float | None, typer.Option("--minutes", help="Stop measuring after this long.", min=0.1)
]


def conducted(make: "Callable[[LabListener], Work]", *, as_json: bool) -> "Ended":
    """Do the experiment to its end, Ctrl-C included, and print what it found."""
    import asyncio

    from specpanel.app.cli.lab_progress import LabPrinter, print_json
    from specpanel.app.cli.plain_lab import result_text
    from specpanel.app.cli.signals import on_stop_signals
    from specpanel.core.lab.experiment import conduct
    from specpanel.core.lab.servers import Stop
    from specpanel.core.lab.store import Store

    tell: LabListener = print_json if as_json else LabPrinter()
    work = make(tell)

    async def whole() -> "Ended":
        stop = Stop.new()
        on_stop_signals(stop.ask)
        with Store() as store:
            return await conduct(work, store, tell, stop)

    ended = asyncio.run(whole())
    if not as_json and ended.id is not None:
        typer.echo(result_text(work.kind, ended.result, ended.conclusion))
        talk(f"kept: specpanel results show {ended.id}")
    if ended.error is not None:
        say(ended.error)
    if ended.exit_code:
        raise typer.Exit(int(ended.exit_code))
    return ended


def chosen_prompts(profile: Any) -> Any:
    """The prompts of the profile's traffic, in the order of its seed."""
    from specpanel.core.traffic.prompts import builtin_prompts, choose, read_prompts

    traffic = profile.traffic
    found = read_prompts(traffic.prompts) if traffic.prompts else builtin_prompts()
    return choose(found, traffic.kinds, traffic.seed)
