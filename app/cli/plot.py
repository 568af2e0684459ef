"""``specpanel plot``: a chart of a recording as text, without the panel."""

from enum import StrEnum
from typing import Annotated

import typer

from specpanel.app.cli import options
from specpanel.app.cli.report import guarded

HELP = "Draw a chart of a recording as text, or print its numbers with --json."


class Chart(StrEnum):
    """The charts of the Live screen."""

    ACCEPTANCE = "acceptance"
    POSITIONS = "positions"
    LATENCY = "latency"
    TOKENS = "tokens"
    HEAT = "heat"
    TTFT = "ttft"
    TPOT = "tpot"


@guarded
def plot(
    recording: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A recording: a file, a run's name, or last.",
            autocompletion=options.recording_names,
        ),
    ],
    chart: Annotated[
        Chart, typer.Option("--chart", help="What to draw.", case_sensitive=False)
    ] = Chart.ACCEPTANCE,
    width: Annotated[
        int | None, typer.Option("--width", min=20, max=1000, help="Columns; the terminal's.")
    ] = None,
    height: Annotated[int, typer.Option("--height", min=5, max=500, help="Rows.")] = 20,
    window: Annotated[
        float | None,
        typer.Option("--window", min=0.1, help="Minutes, counted from the end; all of it."),
    ] = None,
    ascii_only: Annotated[
        bool, typer.Option("--ascii", help="Draw with ASCII characters only.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    import shutil

    from specpanel.app.tui.charts.glyphs import ASCII, choose_glyphs
    from specpanel.app.tui.charts.replayed import ChartName, chart_rows, chart_series, stretch_of
    from specpanel.core.errors import RecordingError
    from specpanel.core.monitor.recording import line, read_recording

    file = options.recording_called(recording)
    name: ChartName = chart.value
    frames = list(read_recording(file))
    if not frames:
        from specpanel.core.session.endings import without_frames

        raise without_frames(file)
    stretch = stretch_of(frames, None if window is None else window * 60)
    series = chart_series(name, stretch)
    if as_json:
        typer.echo(line("plot", series))
        return
    if absent := series.get("absent"):
        from specpanel.core.session.endings import how_it_ended
        from specpanel.core.session.history import read_run

        run = read_run(file)
        ending = how_it_ended(run)
        if ending is None and run.ended == "interrupted":
            ending = "the run was interrupted"
        raise RecordingError(
            f"there is no {name} to draw in {file.stem} ({absent.removeprefix('n/a: ')})"
            + ("" if ending is None else f"; {ending}")
        )
    glyphs = ASCII if ascii_only else choose_glyphs()
    columns = width or shutil.get_terminal_size((100, 24)).columns
    rows = chart_rows(name, stretch, columns, height, glyphs)
    typer.echo("\n".join(rows))
