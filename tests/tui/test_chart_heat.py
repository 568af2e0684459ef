"""The heat map: position by time, row by row, and on the Live screen with its key."""

import random
from dataclasses import replace

import pytest
from rich.style import Style
from tui.synthetic import synthetic_frame, synthetic_frames
from tui.test_live_screen import shown, text

from specpanel.app.tui.charts.glyphs import ASCII, BRAILLE, Glyphs
from specpanel.app.tui.charts.heat_plot import HEAT_LEVELS, HeatPlot, heat_ink, heat_levels
from specpanel.app.tui.charts.subjects import draft_counts
from specpanel.app.tui.ink import Line, text_of, width_of
from specpanel.app.tui.theming import fallback_variables, ink_styles
from specpanel.app.tui.widgets.chart import PositionChart
from specpanel.core.monitor.frame import Interval, PositionRate, SpeculationSample

FRAME = synthetic_frame(0, random.Random(1))


def sample(*accepted: int, drafts: int = 100) -> SpeculationSample:
    positions = tuple(
        PositionRate(number, count, Interval(count / drafts, 0, 1), None)
        for number, count in enumerate(accepted, 1)
    )
    return SpeculationSample(
        10.0, drafts, drafts * len(accepted), sum(accepted), 1.0, 0.5, positions, drafts, 1.0
    )


def drawn(
    samples: dict[int, SpeculationSample | None],
    *,
    glyphs: Glyphs = ASCII,
    size: tuple[int, int] = (26, 6),
    window_s: float = 20,
) -> HeatPlot:
    plot = HeatPlot(glyphs=glyphs)
    plot.resize(*size, window_s)
    for second, found in samples.items():
        plot.add(float(second), draft_counts(replace(FRAME, speculation=found)))
    return plot


def texts(lines: list[Line]) -> list[str]:
    return [text_of(line) for line in lines]


def test_rates_fade_with_the_position_and_change_with_time() -> None:
    early, late = sample(100, 50), sample(50, 0)
    plot = drawn({second: early if second < 10 else late for second in range(20)}, size=(26, 5))
    assert texts(plot.draw()) == [
        "    1+@@@@@@@@@@++++++++++",
        "     |@@@@@@@@@@++++++++++",
        "    2+++++++++++..........",
        "     |++++++++++..........",
        "     +                 now",
    ]


def test_a_cell_has_two_pixels_with_an_ink_of_both_levels() -> None:
    plot = drawn(
        {second: sample(100, 0, 100) for second in range(20)}, glyphs=BRAILLE, size=(26, 4)
    )
    lines = plot.draw()
    top = HEAT_LEVELS - 1
    # Three rows of cells are six rows of pixels: two for each position.
    assert [line[1:] for line in lines[:3]] == [
        (("█" * 20, heat_ink(level)),) for level in (top, 0, top)
    ]
    odd = drawn({second: sample(100, 0) for second in range(20)}, glyphs=BRAILLE, size=(26, 4))
    assert odd.draw()[1][1] == ("▀" * 20, heat_ink(top, 0))


def test_given_that_the_one_before_was_accepted_the_rates_are_others() -> None:
    plot = drawn({second: sample(50, 50) for second in range(20)}, size=(26, 3))
    assert texts(plot.draw())[1].endswith("+" * 20)
    plot.conditional = True
    assert texts(plot.draw())[1].endswith("@" * 20)


def test_no_drafts_are_a_gap_and_a_missed_second_is_not() -> None:
    samples: dict[int, SpeculationSample | None] = {
        second: sample(100) for second in range(20) if second != 5
    }
    samples |= dict.fromkeys(range(10, 15))
    assert texts(drawn(samples, size=(26, 3)).draw())[0][6:] == "@" * 10 + " " * 5 + "@" * 5


def test_a_silence_of_many_seconds_is_a_gap() -> None:
    plot = drawn({0: sample(100), 19: sample(100)}, size=(26, 3))
    assert texts(plot.draw())[0][6:] == "@@@@" + " " * 15 + "@"


def test_a_column_pools_the_frames_that_fall_into_it() -> None:
    samples = {second: sample(100 * (second % 2)) for second in range(40)}
    plot = drawn(samples, window_s=40, size=(26, 3))
    assert set(texts(plot.draw())[0][6:]) == {"+"}


def test_marks_stand_above_the_map_and_hide_none_of_it() -> None:
    plot = drawn({second: sample(100) for second in range(20)}, size=(26, 7))
    before = texts(plot.draw())
    plot.mark(10.0, "[draft] on")
    after = texts(plot.draw())
    assert after[0] == "     |          |[draft]~ "
    assert [row[6:] for row in after[1:]] == [row[6:] for row in before[1:]]


def test_more_positions_than_pixels_show_the_first_ones() -> None:
    plot = drawn({second: sample(*range(90, 0, -5)) for second in range(20)}, size=(26, 5))
    labels = [row[:5].strip() for row in texts(plot.draw())]
    assert labels == ["1", "2", "3", "4", ""]


def test_an_empty_map_says_why() -> None:
    plot = drawn({0: None}, size=(40, 6))
    plot.empty_reason = "no drafts yet"
    assert any("no drafts yet" in row for row in texts(plot.draw()))


@pytest.mark.parametrize("glyphs", [BRAILLE, ASCII])
@pytest.mark.parametrize("size", [(0, 0), (1, 1), (13, 8), (14, 3), (80, 2), (60, 30)])
def test_every_size_gives_rows_of_that_size(glyphs: Glyphs, size: tuple[int, int]) -> None:
    plot = drawn({second: sample(90, 50, 20) for second in range(20)}, glyphs=glyphs, size=size)
    plot.mark(15.0, "更多 traffic")
    plot.move_cursor(-1)
    lines = plot.draw()
    assert len(lines) == size[1]
    assert {width_of(line) for line in lines} <= {size[0]}


def test_inks_of_the_map_come_from_the_theme_when_they_are_asked_for() -> None:
    variables = {**fallback_variables(dark=True), **dict.fromkeys(BASIC, "#123456")}
    styles = ink_styles(variables, Style())
    style = styles[heat_ink(0, HEAT_LEVELS - 1)]
    assert style.color is not None
    assert style.bgcolor is not None
    assert style.color.name == variables["heat-0"]
    assert style.bgcolor.name == variables[f"heat-{HEAT_LEVELS - 1}"]
    assert heat_levels(heat_ink(None, 3)) == (None, 3)
    with pytest.raises(KeyError):
        styles["heat"]


BASIC = ("foreground", "background", "primary", "accent", "success", "warning", "error")


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_h_turns_the_bars_into_a_map_and_back(size: tuple[int, int]) -> None:
    async with shown(synthetic_frames(90), size) as (panel, live, pilot):
        chart = live.charts[1]
        assert isinstance(chart, PositionChart)
        if not chart.display:
            await pilot.press("]")
        bars = chart.text_rows()
        await pilot.press("h")
        assert any("now" in row for row in chart.text_rows())
        assert "100 %" in chart.text_rows()[0]
        assert "of all drafts" in chart.text_rows()[0]
        await pilot.press("h")
        assert chart.text_rows() == bars
        assert "Acceptance by position" in text(panel)


async def test_the_map_goes_on_with_what_comes_and_reads_its_rates_under_the_cursor() -> None:
    async with shown(synthetic_frames(90)) as (panel, live, pilot):
        await pilot.press("]", "z", "h")
        chart = live.charts[1]
        before = chart.text_rows()
        dice = random.Random(1)
        frame = synthetic_frame(90, dice)
        for second in range(90, 120):
            panel.feed.publish(replace(frame, elapsed_s=float(second)))
        panel.tick()
        await pilot.pause()
        assert chart.text_rows() != before
        await pilot.press("left")
        assert frame.speculation is not None
        rate = frame.speculation.positions[0].rate.estimate
        assert f"1 {rate * 100:.0f} %" in chart.text_rows()[0]
        assert "ago" in chart.text_rows()[0]
