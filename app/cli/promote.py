"""``specpanel promote``: put a better drafter into a running server, and only a better one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from specpanel.app.cli import options
from specpanel.app.cli.report import guarded, talk

if TYPE_CHECKING:
    from specpanel.core.training.audit import Promotion
    from specpanel.core.training.promotion_way import PromotionRun

HELP = (
    "Replace the drafter of a running server by a checkpoint, if held-out prompts show that it is better: in "
    "place, or by a new server that takes the old one's place. Ends with 1 where the old drafter stays."
)


@guarded
def promote(
    checkpoint: Annotated[
        Path | None,
        typer.Argument(metavar="CHECKPOINT", help="Folder of the drafter.", show_default=False),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            help="Name, pid, port or address of the server; the only one that runs where left out.",
            autocompletion=options._server_names,
        ),
    ] = None,
    prompts: options.Prompts = None,
    requests: Annotated[
        int | None, typer.Option("--requests", "-n", help="Most prompts to measure with.", min=5)
    ] = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", help="Longest answer, in tokens.", min=8)
    ] = 96,
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-c", help="Requests in flight.", min=1)
    ] = 4,
    margin: Annotated[
        float,
        typer.Option(
            "--margin",
            help="Acceptance length that the lower bound of the gain must be above.",
            min=0,
        ),
    ] = 0.02,
    way: Annotated[
        Literal["auto", "in-place", "restart"],
        typer.Option(
            "--way",
            help="in-place, restart (a new server beside the old one), or auto: in place where that works.",
        ),
    ] = "auto",
    only_measure: Annotated[
        bool,
        typer.Option(
            "--only-measure", help="Measure it, and bring the old drafter back after that."
        ),
    ] = False,
    listing: Annotated[
        bool, typer.Option("--list", help="List the promotions so far, and change nothing.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    from specpanel.core.errors import ConfigurationError

    if listing:
        _list(as_json=as_json)
        return
    if checkpoint is None:
        raise ConfigurationError(
            "no checkpoint was named",
            "Give the folder of a drafter, or --list to see what was promoted.",
        )
    running = _plan(
        *(checkpoint, server, prompts, requests, max_tokens, concurrency, margin),
        way=way,
        only_measure=only_measure,
    )
    promotion = _run(running)
    _print(promotion, as_json=as_json)
    if promotion.result == "interrupted":
        raise typer.Exit(130)
    if promotion.result not in ("promoted", "measured"):
        raise typer.Exit(1)


def _plan(
    checkpoint: Path,
    server: str | None,
    prompts: Path | None,
    requests: int | None,
    max_tokens: int,
    concurrency: int,
    margin: float,
    *,
    way: str,
    only_measure: bool,
) -> "PromotionRun":
    from specpanel.core.errors import ConfigurationError
    from specpanel.core.settings.profile import Traffic
    from specpanel.core.traffic.prompts import choose, read_prompts
    from specpanel.core.training.promote import PromotionPlan, heldout_prompts
    from specpanel.core.training.promotion_way import PromotionRun, find_server

    folder = Path(checkpoint).expanduser().absolute()
    if not (folder / "config.json").is_file():
        raise ConfigurationError(
            f"{folder} is no drafter: it holds no config.json",
            "Give the folder of a checkpoint; specpanel train says where it keeps its own.",
        )
    if prompts is not None:
        found, source = read_prompts(prompts), str(prompts)
    else:
        found, source = heldout_prompts(folder)
    chosen = choose(found, (), 0)[:requests]
    name, url, record = find_server(server)
    talk(f"measuring with {len(chosen)} prompts from {source}")
    traffic = Traffic(max_tokens=max_tokens, concurrency=concurrency)
    plan = PromotionPlan(name, url, None, folder, chosen, traffic, margin, only_measure)
    return PromotionRun(plan, record, way.replace("-", " "), talk)  # type: ignore[arg-type]


def _run(running: "PromotionRun") -> "Promotion":
    import asyncio
    import signal

    async def go() -> "Promotion":
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, running.interrupt)
        return await running.run()

    return asyncio.run(go())


def _list(*, as_json: bool) -> None:
    from specpanel.core.training.audit import read

    promotions = read()
    if not promotions and not as_json:
        talk("Nothing was promoted yet.")
    for promotion in promotions:
        _print(promotion, as_json=as_json, dated=True)


def _print(promotion: "Promotion", *, as_json: bool, dated: bool = False) -> None:
    import time

    from specpanel.core.training.audit import promotion_line
    from specpanel.core.training.judging import train_to_serve

    if as_json:
        typer.echo(promotion_line(promotion))
        return
    when = time.strftime("%Y-%m-%d %H:%M:%S  ", time.localtime(promotion.unix)) if dated else ""
    pause = "" if promotion.paused_s is None else f"  (paused {promotion.paused_s:.2f} s)"
    typer.echo(f"{when}{promotion.server}: {promotion.result}: {promotion.reason}{pause}")
    typer.echo(f"  {promotion.before or 'unknown'} → {promotion.candidate}")
    told = None if promotion.gain is None else train_to_serve(promotion.predicted, promotion.gain)
    if told is not None:
        typer.echo(f"  {told}")
