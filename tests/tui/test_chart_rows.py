"""Charts as rows of text: golden pictures, and what must hold for all of them."""

import math
import random

import pytest

from specpanel.app.tui.charts.bar_plot import bar_lines
from specpanel.app.tui.charts.cells import LABEL_CELLS, time_ticks
from specpanel.app.tui.charts.glyphs import ASCII, BLOCK, BRAILLE, Glyphs, choose_glyphs
from specpanel.app.tui.charts.line_plot import LinePlot, Series
from specpanel.app.tui.ink import Line, text_of, width_of
from specpanel.core.errors import ConfigurationError
from specpanel.core.monitor.frame import Interval, PositionRate

SETS = [BRAILLE, BLOCK, ASCII]


def ramp(glyphs: Glyphs = BRAILLE, *, patterns: bool = False) -> LinePlot:
    """A saw tooth of one a minute with twenty seconds missing, over a flat line, with a mark."""
    plot = LinePlot(
        [Series("flat", "faint", 1), Series("saw", "series-1", 0)],
        glyphs=glyphs,
        low=0.0,
        high=60.0,
        patterns=patterns,
    )
    plot.resize(46, 8, 120)
    for second in range(120):
        value = None if 40 <= second < 60 else float(second % 60)
        plot.add(float(second), (30.0, value))
        if second == 80:
            plot.mark(80.0, "[draft] on")
    return plot


def texts(lines: list[Line]) -> list[str]:
    return [text_of(line) for line in lines]


GOLDEN = {
    "braille": """\
  100┤┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┊[draft] on┈┈┈
     │                          ┊
     │                          ┊            ⣀
   50┤┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┊┈┈┈┈┈┈┈⣀⣠⠤⠖⠋⠁
     │⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣠⠤⠖⠃⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣠⠤⠖⠋⠁⣀⣀⣀⣀⣀
     │    ⣀⣠⠤⠖⠋⠁              ⣀⣠⠤⠖⠋⠁
    0┤⣠⠤⠖⠋⠁┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈⣠⠤⠖⠋⠁┈┊┈┈┈┈┈┈┈┈┈┈┈┈┈
     └-2 min           -1 min              now""",
    "block": """\
  100┤··························│[draft] on···
     │                          │
     │                          │            ▄
   50┤··························│·······▄▄▟▀▀▘
     │▄▄▄▄▄▄▄▄▄▄▄▟▀▘▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▟▀▀▘▄▄▄▄▄
     │    ▄▄▟▀▀▘              ▄▄▟▀▀▘
    0┤▄▛▀▀▘···············▄▛▀▀▘·│·············
     └-2 min           -1 min              now""",
    "ascii": """\
  100+                          |[draft] on
     |                          |
     |                          |            .
   50+                          |       ..:'''
     |...........:''.................:'''.....
     |    ..:'''              ..:'''
    0+.:'''               .:''' |
     +-2 min           -1 min              now""",
}


@pytest.mark.parametrize("glyphs", SETS, ids=lambda glyphs: glyphs.name)
def test_a_saw_tooth_with_a_gap_and_a_mark_looks_like_this(glyphs: Glyphs) -> None:
    assert "\n".join(row.rstrip() for row in texts(ramp(glyphs).draw())) == GOLDEN[glyphs.name]


def test_the_ascii_set_draws_ascii_only() -> None:
    assert "\n".join(texts(ramp(ASCII).draw())).isascii()


@pytest.mark.parametrize("glyphs", SETS, ids=lambda glyphs: glyphs.name)
def test_every_row_has_the_width_of_the_chart(glyphs: Glyphs) -> None:
    for width in (14, 15, 37, 90):
        for height in (3, 4, 9):
            plot = LinePlot([Series("a", "series-1")], glyphs=glyphs, log=True)
            plot.resize(width, height, 60)
            dice = random.Random(width * height)
            for second in range(90):
                plot.add(float(second), (dice.lognormvariate(3, 2),))
            lines = plot.draw()
            assert len(lines) == height
            assert {width_of(line) for line in lines} == {width}


@pytest.mark.parametrize("size", [(0, 0), (1, 1), (5, 20), (13, 8), (80, 2)])
def test_f17_a_size_without_room_gives_blank_rows_and_no_error(size: tuple[int, int]) -> None:
    plot = LinePlot([Series("a", "series-1")])
    plot.resize(*size, 60)
    plot.add(1.0, (1.0,))
    assert all(text.strip() == "" for text in texts(plot.draw()))


def test_the_picture_moves_by_whole_cells_and_never_redraws_what_is_past() -> None:
    """Each draw is the one before shifted left by nothing or by one cell, apart from the newest cells."""
    plot = LinePlot([Series("a", "series-1")], low=0.0, high=10.0)
    plot.resize(46, 6, 120)
    dice = random.Random(3)
    cells = 46 - LABEL_CELLS - 1
    before: list[str] = []
    for second in range(400):
        plot.add(float(second), (dice.uniform(0, 10),))
        now = [text[LABEL_CELLS + 1 :] for text in texts(plot.draw())[:-1]]
        if second > 150:
            still = all(
                old[: cells - 3] == new[: cells - 3] for old, new in zip(before, now, strict=True)
            )
            moved = all(
                old[2 : cells - 3] == new[1 : cells - 4]
                for old, new in zip(before, now, strict=True)
            )
            assert still or moved, second
        before = now


def test_drawing_what_is_new_gives_the_same_picture_as_drawing_all() -> None:
    """Only the newest cells are drawn again: the result equals a chart drawn once from the start."""

    def value(second: int) -> float | None:
        return None if second % 50 > 43 else 5 + 4 * math.sin(second / 9)

    bit_by_bit = LinePlot([Series("a", "series-1")], low=0.0, high=10.0)
    bit_by_bit.resize(60, 9, 300)
    for second in range(400):
        bit_by_bit.add(float(second), (value(second),))
        drawn = bit_by_bit.draw()
    at_once = LinePlot([Series("a", "series-1")], low=0.0, high=10.0)
    at_once.resize(60, 9, 300)
    for second in range(400):
        at_once.add(float(second), (value(second),))
    assert drawn == at_once.draw()


def test_a_spike_of_one_second_is_still_seen_in_an_hour() -> None:
    plot = LinePlot([Series("a", "series-1")], low=0.0, high=100.0)
    plot.resize(66, 8, 3600)
    for second in range(3600):
        plot.add(float(second), (100.0 if second == 1700 else 1.0,))
    top = texts(plot.draw())[0][LABEL_CELLS + 1 :]
    assert any(0x2800 < ord(char) <= 0x28FF for char in top)


def test_a_restart_leaves_a_gap() -> None:
    def columns(*, broken: bool) -> int:
        plot = LinePlot([Series("a", "series-1")], low=0.0, high=10.0)
        plot.resize(66, 6, 60)
        for second in range(60):
            if second == 30 and broken:
                plot.break_lines()
            plot.add(float(second), (5.0,))
        row = "".join(texts(plot.draw())[:-1])
        return sum(
            bin(ord(char) - 0x2800).count("1") for char in row if 0x2800 <= ord(char) <= 0x28FF
        )

    assert columns(broken=True) < columns(broken=False)


def test_dash_patterns_tell_lines_apart_without_colour() -> None:
    solid, dashed = (texts(ramp(patterns=patterns).draw()) for patterns in (False, True))
    assert solid != dashed


def test_the_value_cursor_reads_the_series() -> None:
    plot = ramp()
    assert plot.reading() is None
    plot.move_cursor(-1)
    for _ in range(10):
        plot.move_cursor(-1)
    reading = plot.reading()
    assert reading is not None
    ago_s, (flat, saw) = reading
    assert flat == 30.0
    assert saw == pytest.approx(59 - ago_s, abs=4)


def test_an_empty_chart_says_why() -> None:
    plot = LinePlot([Series("a", "series-1")])
    plot.resize(60, 8, 60)
    plot.empty_reason = "no drafts yet"
    assert any("no drafts yet" in text for text in texts(plot.draw()))


def test_time_ticks_end_now_and_fit() -> None:
    assert time_ticks(60, 60) == [
        (60.0, "-60 s"),
        (45.0, "-45 s"),
        (30.0, "-30 s"),
        (15.0, "-15 s"),
        (0.0, "now"),
    ]
    assert [text for _, text in time_ticks(3600, 40)] == ["-60 min", "-40 min", "-20 min", "now"]


def rate(number: int, estimate: float, *, conditional: float | None = 0.8) -> PositionRate:
    given = (
        None if conditional is None else Interval(conditional, conditional - 0.1, conditional + 0.1)
    )
    return PositionRate(number, 10, Interval(estimate, estimate - 0.05, estimate + 0.05), given)


def test_bars_look_like_this() -> None:
    rows = texts(bar_lines([rate(1, 0.9), rate(2, 0.5), rate(3, 0.1)], 50, 3))
    assert rows == [
        "  1 ████████████████████├▋┤·  90.0 %  85.0 – 95.0 ",
        "  2 ██████████├─┤···········  50.0 %  45.0 – 55.0 ",
        "  3 █├▍┤····················  10.0 %   5.0 – 15.0 ",
    ]


def test_bars_in_ascii_are_ascii() -> None:
    assert "".join(texts(bar_lines([rate(1, 0.9)], 60, 5, glyphs=ASCII))).isascii()


def test_a_conditional_rate_that_does_not_exist_is_said_to_be_absent() -> None:
    rows = texts(bar_lines([rate(2, 0.0, conditional=None)], 60, 1, conditional=True))
    assert "n/a" in rows[0]


@pytest.mark.parametrize("estimate", [0.0, 0.003, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("width", [0, 5, 16, 24, 44, 120])
def test_bars_keep_to_their_width(width: int, estimate: float) -> None:
    lines = bar_lines([rate(number, estimate) for number in range(1, 9)], width, 6)
    assert [width_of(line) for line in lines] == [width] * 6


def test_positions_without_room_are_counted() -> None:
    rows = texts(bar_lines([rate(number, 0.5) for number in range(1, 9)], 60, 5))
    assert "4 more positions" in rows[-1]


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({}, "braille"),
        ({"LANG": "en_US.UTF-8", "TERM": "xterm"}, "braille"),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, "ascii"),
        ({"LC_ALL": "de_DE.ISO-8859-1"}, "ascii"),
        ({"LC_ALL": "C.UTF-8", "LANG": "C"}, "braille"),
        ({"TERM": "dumb"}, "ascii"),
        ({"TERM": "linux"}, "block"),
        ({"TERM": "dumb", "SPECPANEL_CHARTS": "block"}, "block"),
    ],
)
def test_the_terminal_decides_on_the_characters(environment: dict[str, str], name: str) -> None:
    assert choose_glyphs(environment).name == name


def test_symbols_that_do_not_exist_are_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="SPECPANEL_CHARTS=nonsense"):
        choose_glyphs({"SPECPANEL_CHARTS": "nonsense"})


@pytest.mark.parametrize("glyphs", [BRAILLE, ASCII], ids=lambda glyphs: glyphs.name)
@pytest.mark.parametrize("patterns", [False, True], ids=["colours", "patterns"])
def test_a_picture_that_moved_is_the_picture_drawn_anew(glyphs: Glyphs, patterns: bool) -> None:
    """Drawing only what is new must not be seen: gaps, spikes, crossings and marks included."""
    dice = random.Random(5)
    series = (Series("one", "series-1"), Series("two", "series-2", 1))

    def plot() -> LinePlot:
        made = LinePlot(series, glyphs=glyphs, low=0, high=10, patterns=patterns)
        made.resize(40, 9, 60)
        return made

    moving, samples = plot(), []
    for second in range(400):
        values = [None if dice.random() < 0.1 else dice.uniform(0, 10) for _ in series]
        samples.append((float(second), values, "mark" if second % 90 == 50 else None))
        moving.take(samples[-1][0], values, note=samples[-1][2])
        picture = moving.draw()
        if second % 7 == 0:
            anew = plot()
            for time_s, sample, note in samples:
                anew.take(time_s, sample, note=note)
            assert anew.draw() == picture, second
