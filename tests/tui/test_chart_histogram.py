"""The histogram of a latency, row by row, and where it is shown."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tui.synthetic import synthetic_frames
from typer.testing import CliRunner

from specpanel.app.cli.root import app
from specpanel.app.tui.charts.glyphs import ASCII, BRAILLE
from specpanel.app.tui.charts.histogram_plot import histogram_lines, merged
from specpanel.app.tui.ink import text_of, width_of
from specpanel.app.tui.panel import Panel
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Quantile, Quantiles
from specpanel.core.monitor.recording import frame_line
from specpanel.core.speculation.buckets import Buckets
from specpanel.core.speculation.quantiles import bucket_counts

TTFT_BUCKETS = ((80.0, 100.0, 4), (100.0, 250.0, 21), (250.0, 500.0, 0), (500.0, 750.0, 6))
INFINITY = float("inf")
QUANTILES = Quantiles(31, Quantile(180.0), Quantile(700.0), Quantile(744.0))


def test_buckets_between_the_first_and_the_last_observation_are_kept_in_ms() -> None:
    buckets = Buckets((0.001, 0.01, 0.02, 0.04, 0.08, INFINITY), (0, 0, 3, 3, 7, 7))
    assert bucket_counts(buckets) == ((10.0, 20.0, 3), (20.0, 40.0, 0), (40.0, 80.0, 4))
    assert bucket_counts(Buckets((0.5, INFINITY), (2, 3))) == ((0.0, 500.0, 2), (500.0, None, 1))
    assert bucket_counts(Buckets((0.5, INFINITY), (0, 0))) == ()
    assert bucket_counts(None) == ()


def test_a_row_has_its_bounds_its_bar_its_share_and_the_quantiles_that_lie_in_it() -> None:
    rows = [text_of(line) for line in histogram_lines(TTFT_BUCKETS, QUANTILES, 48, 4)]
    assert rows == [
        "  80 – 100 ████▍··················  13 %        ",
        " 100 – 250 ███████████████████████  68 % p50    ",
        " 250 – 500 ·······················   0 %        ",
        " 500 – 750 ██████▋················  19 % p99    ",
    ]


def test_what_lies_above_the_last_bound_is_said_to() -> None:
    beyond = Quantiles(3, Quantile(400.0), Quantile(500.0, True), Quantile(500.0, True))
    rows = histogram_lines(((0.0, 500.0, 2), (500.0, None, 1)), beyond, 40, 2, glyphs=ASCII)
    assert text_of(rows[0]).startswith(" 0 - 500 #")
    assert text_of(rows[1]).startswith("   > 500 #")
    assert text_of(rows[1]).rstrip().endswith("33 % p99")


def test_more_buckets_than_rows_share_them_and_no_observation_is_lost() -> None:
    many = tuple((float(n), float(n + 1), n % 4) for n in range(37))
    for rows in range(1, 40):
        few = merged(many, rows)
        assert len(few) <= rows
        assert sum(count for *_, count in few) == sum(count for *_, count in many)
        assert (few[0][0], few[-1][1]) == (0.0, 37.0)


@pytest.mark.parametrize("width", [0, 10, 24, 48, 120])
@pytest.mark.parametrize("height", [0, 1, 3, 9])
def test_it_keeps_to_its_size(width: int, height: int) -> None:
    lines = histogram_lines(TTFT_BUCKETS, QUANTILES, width, height, glyphs=BRAILLE)
    assert [width_of(line) for line in lines] == [width] * height


@pytest.mark.parametrize(("key", "title"), [("H", "Latency spread ms"), ("h", "By position")])
async def test_a_key_for_a_chart_that_is_not_seen_brings_it_up(key: str, title: str) -> None:
    panel = Panel(Feed(), auto_tick=False)
    async with panel.run_test(size=(60, 15)) as pilot:
        for frame in synthetic_frames(60):
            panel.feed.publish(frame)
        panel.tick()
        await pilot.pause()
        assert title not in _text(panel)
        await pilot.press(key)
        await pilot.pause()
        assert title in _text(panel)


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 15)])
async def test_a_key_turns_latency_into_its_spread_and_back(size: tuple[int, int]) -> None:
    panel = Panel(Feed(), auto_tick=False)
    async with panel.run_test(size=size) as pilot:
        for frame in synthetic_frames(60):
            panel.feed.publish(frame)
        panel.tick()
        await pilot.press("right_square_bracket", "right_square_bracket", "H")
        await pilot.pause()
        shown = _text(panel)
        assert "Latency spread ms" in shown
        assert "31 in 10 s" in shown
        assert "77 % p50" in shown
        await pilot.press("H")
        await pilot.pause()
        assert "Latency spread" not in _text(panel)


def _text(panel: Panel) -> str:
    return "\n".join(strip.text for strip in panel.screen._compositor.render_strips())


def test_the_headless_command_draws_it_and_says_why_it_cannot(tmp_path: Path) -> None:
    *_, frame = synthetic_frames(3)
    assert frame.latency is not None
    old = replace(frame, latency=replace(frame.latency, tpot_buckets=()))
    recording = tmp_path / "run.ndjson"
    recording.write_text(frame_line(old) + "\n")
    run = CliRunner().invoke(app, ["plot", str(recording), "--chart", "ttft", "--width", "60"])
    assert run.exit_code == 0, run.output
    assert run.output.startswith("Time to first token, ms: 31 in 10 s\n")
    assert " 100 – 250 ██" in run.output
    told = CliRunner().invoke(app, ["plot", str(recording), "--chart", "ttft", "--json"])
    found = json.loads(told.output)
    assert found["buckets"][1] == {"from_ms": 100.0, "to_ms": 250.0, "count": 24}
    none = CliRunner().invoke(app, ["plot", str(recording), "--chart", "tpot"])
    assert none.exit_code == 1
    assert "there is no tpot to draw in run (this recording holds no buckets" in none.stderr
