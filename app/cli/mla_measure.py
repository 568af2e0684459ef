"""``specpanel mla bench`` and ``calibrate``: the measuring process, its progress, and what came out."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specpanel.app.cli import options
from specpanel.app.cli.report import guarded, talk
from specpanel.core.errors import ConfigurationError, ExitCode, SpecpanelError

if TYPE_CHECKING:
    from specpanel.kernels.calibrate import Calibration
    from specpanel.kernels.request import Report, Request

BENCH = "Time the three paths of sparse MLA on this device, beside torch's own attention on a CPU."
CALIBRATE = (
    "Find where the paths of sparse MLA cross on this device, and write the thresholds down. "
    "On a CPU it calibrates the portable paths, with a smaller top-k so that they cross at all."
)
ModelOption = Annotated[
    str, typer.Option("--model", help="A known model, a checkpoint's folder or a config.json.")
]
Heads = Annotated[
    str | None, typer.Option("--heads", help="Heads a rank, with commas; as TP1 to TP8 have them.")
]
Queries = Annotated[
    str | None, typer.Option("--query", help="New tokens of a step, with commas between them.")
]
Contexts = Annotated[
    str | None, typer.Option("--context", help="Cached tokens, with commas between them.")
]
TopK = Annotated[int | None, typer.Option("--topk", min=1, help="Instead of the model's top-k.")]
Engine = Annotated[str, typer.Option("--engine", help="auto, portable or triton.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda (NVIDIA and ROCm).")]
Dtype = Annotated[str, typer.Option("--dtype", help="auto, float32, float16 or bfloat16.")]
Pattern = Annotated[
    str, typer.Option("--pattern", help="How tokens are selected: random, recency, clustered.")
]
Budget = Annotated[
    float, typer.Option("--budget", min=1, help="Begin nothing after so many seconds.")
]


@guarded
def bench(
    model: ModelOption = "deepseek-v3.2",
    heads: Heads = None,
    query: Queries = None,
    context: Contexts = "0",
    topk: TopK = None,
    engine: Engine = "auto",
    device: Device = "auto",
    dtype: Dtype = "auto",
    pattern: Pattern = "random",
    budget: Budget = 120,
    sdpa: Annotated[
        bool,
        typer.Option("--sdpa/--no-sdpa", help="Compare with torch's attention (CPU)."),
    ] = True,
    python: options.Python = None,
    as_json: options.Json = False,
) -> None:
    request = _request(
        model, heads, query, context, topk, (engine, device, dtype, pattern), budget, sdpa=sdpa
    )
    reports = _measure(request, python)
    _show(reports, as_json=as_json, plot=False)


@guarded
def calibrate(
    model: ModelOption = "deepseek-v3.2",
    heads: Heads = None,
    query: Queries = None,
    context: Contexts = None,
    topk: TopK = None,
    engine: Engine = "auto",
    device: Device = "auto",
    dtype: Dtype = "auto",
    pattern: Pattern = "random",
    budget: Budget = 300,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the calibration to this file (JSON).")
    ] = None,
    python: options.Python = None,
    as_json: options.Json = False,
) -> None:
    if out is not None and out.exists():
        raise ConfigurationError(f"{out} is there already", "Name another file, or remove it.")
    request = _request(
        model, heads, query, context, topk, (engine, device, dtype, pattern), budget, refine=True
    )
    reports = _measure(request, python)
    found = _show(reports, as_json=as_json, plot=True)
    if out is not None:
        from specpanel.kernels.calibrate import dump

        try:
            out.write_text(dump(found) + "\n", encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(
                f"{out} cannot be written: {error.strerror}", "Name another file with --out."
            ) from None
        talk(f"Written to {out}.")
    if not found.rows:
        raise SpecpanelError(
            "no thresholds came of it: "
            + ("; ".join(found.refused.values()) or "nothing was measured"),
            "Let the machine rest and measure again, with a larger --budget.",
        )


def _request(
    model: str,
    heads: str | None,
    query: str | None,
    context: str | None,
    topk: int | None,
    kind: tuple[str, str, str, str],
    budget: float,
    *,
    refine: bool = False,
    sdpa: bool = False,
) -> "Request":
    from dataclasses import replace

    from specpanel.app.cli.mla import geometry, numbers
    from specpanel.kernels.calibrate import Grid
    from specpanel.kernels.measuring import gpu_is_loaded
    from specpanel.kernels.request import ENGINES, Request, usual_grid, usual_topk

    engine, device, dtype, pattern = kind
    choices = (
        ("--engine", engine, ENGINES),
        ("--device", device, ("auto", "cpu", "cuda")),
        ("--dtype", dtype, ("auto", "float32", "float16", "bfloat16")),
        ("--pattern", pattern, ("random", "recency", "clustered")),
    )
    for flag, value, known in choices:
        if value not in known:
            raise ConfigurationError(
                f"{flag} {value[:40]!r} is unknown", f"One of: {', '.join(known)}."
            )
    dims = geometry(model)
    slow = device == "cpu" or (device == "auto" and not gpu_is_loaded())
    usual = usual_grid(dims, slow=slow)
    wanted = topk or usual_topk(dims, slow=slow)
    grid = Grid(
        heads=tuple(numbers(heads, "--heads", what="a number of heads")) if heads else usual.heads,
        queries=tuple(numbers(query, "--query")) if query else usual.queries,
        contexts=tuple(numbers(context, "--context", least=0)) if context else usual.contexts,
    )
    if wanted is None:
        raise ConfigurationError(
            "the model has no indexer", "Give a top-k to measure with: --topk."
        )
    return Request(
        replace(dims, topk=wanted), grid, refine, engine, device, dtype, pattern, budget, sdpa
    )


def _measure(request: "Request", python: str | None) -> "list[Report]":
    """Run the measuring process to its end; what it does is told on standard error as it goes."""
    from specpanel.kernels.errors import MLAError
    from specpanel.kernels.measuring import Measurement

    interpreter = python or sys.executable
    try:
        return Measurement(interpreter).run(request, _progress)
    except OSError as error:
        raise ConfigurationError(
            f"{interpreter} cannot be started: {error.strerror}", "Name a Python with --python."
        ) from None
    except MLAError as error:
        raise SpecpanelError(error.message, error.fix, exit_code=ExitCode.FAILED) from None


def _progress(report: "Report") -> None:
    content = report.content
    if report.kind == "stage":
        place = f"[{content['done']}/{content['of']}] " if content["of"] else ""
        talk(f"{place}{content['text']}")
    elif report.kind == "device":
        talk(
            f"Measuring {content['engine']} paths in {content['dtype']} on {content['device']} "
            f"({content['compute_units']} units), top-k {content['topk']}."
        )
    elif report.kind == "cell":
        times = ", ".join(
            f"{tier} {timing['median_ms']:.2f} ms" for tier, timing in content["timings"].items()
        )
        talk(f"    {times}")


def _show(reports: "list[Report]", *, as_json: bool, plot: bool) -> "Calibration":
    import json

    from specpanel.app.cli.mla_plot import calibration_text, ceilings_text, sdpa_text
    from specpanel.core.monitor.recording import line
    from specpanel.kernels.calibrate import load

    found = load(reports[-1].content["text"])
    extra = {report.kind: report.content for report in reports}
    compared, best = extra.get("sdpa"), extra.get("ceilings")
    if as_json:
        for kind in ("ceilings", "sdpa"):
            if kind in extra:
                typer.echo(line(f"mla_{kind}", extra[kind]))
        data = json.loads(reports[-1].content["text"])
        typer.echo(line(data.pop("kind"), {k: v for k, v in data.items() if k != "schema_version"}))
        return found
    typer.echo(calibration_text(found, plot=plot))
    if best is not None:
        typer.echo("\n" + ceilings_text(best))
    if compared is not None:
        typer.echo(sdpa_text(compared))
    return found
