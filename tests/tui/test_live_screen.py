"""The Live screen, driven by keys, over Frames that are handed in one by one."""

import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from textual.pilot import Pilot
from tui.synthetic import (
    BARE,
    exited_frame,
    scrape_failing_frame,
    starting_frame,
    synthetic_frame,
    synthetic_frames,
)

from specpanel.app.tui.charts.glyphs import ASCII, Glyphs
from specpanel.app.tui.keys import SCOPE_TITLES, Scope, keys_of
from specpanel.app.tui.panel import Panel
from specpanel.app.tui.screens.dialogs import HelpScreen
from specpanel.app.tui.screens.layout import plan_live, too_small
from specpanel.app.tui.screens.live import LiveScreen
from specpanel.app.tui.widgets.canvas import Canvas
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Frame

SIZES = [(120, 40), (80, 24), (60, 15)]


@asynccontextmanager
async def shown(
    frames: Iterable[Frame] = (), size: tuple[int, int] = (120, 40), *, glyphs: Glyphs | None = None
) -> AsyncIterator[tuple[Panel, LiveScreen, Pilot[None]]]:
    """The app with these Frames on its screen."""
    panel = Panel(Feed(), auto_tick=False, glyphs=glyphs)
    async with panel.run_test(size=size) as pilot:
        await hand(panel, pilot, frames)
        live = panel.screen
        assert isinstance(live, LiveScreen)
        yield panel, live, pilot


async def hand(panel: Panel, pilot: Pilot[None], frames: Iterable[Frame]) -> None:
    for frame in frames:
        panel.feed.publish(frame)
    await pilot.pause()
    panel.tick()
    await pilot.pause()


def picture(panel: Panel) -> list[str]:
    """The whole screen as text."""
    return [strip.text for strip in panel.screen._compositor.render_strips()]


def text(panel: Panel) -> str:
    return "\n".join(picture(panel))


@pytest.mark.parametrize("size", SIZES)
async def test_the_numbers_of_the_newest_frame_are_on_the_screen(size: tuple[int, int]) -> None:
    frames = list(synthetic_frames(90))
    async with shown(frames, size) as (panel, _, _):
        rows = picture(panel)
        sample, latency = frames[-1].speculation, frames[-1].latency
        assert sample is not None
        assert latency is not None
        assert latency.tpot is not None
        for value in (
            f"{sample.acceptance_length:.2f}",
            f"{sample.lifetime_acceptance_length:.2f}",
            f"{latency.tpot.p50.value_ms:.1f}",
            "serving",
        ):
            assert value in "\n".join(rows), value
        assert len(rows) == size[1]
        assert {len(row) for row in rows} == {size[0]}


@pytest.mark.parametrize("size", SIZES)
async def test_the_ascii_set_reaches_every_corner_of_the_screen(size: tuple[int, int]) -> None:
    async with shown(synthetic_frames(90, mark_at=60), size, glyphs=ASCII) as (panel, _, _):
        assert text(panel).isascii()


async def test_without_a_server_the_screen_says_how_to_begin() -> None:
    async with shown() as (panel, live, _):
        assert "No server is being watched" in text(panel)
        assert "specpanel watch URL" in text(panel)
        assert live.kpi.text_rows()[1].split() == ["n/a"] * 7
        assert "no server" in live.kpi.text_rows()[2]


async def test_a_start_shows_its_phases_with_seconds_and_the_last_log_line() -> None:
    frames = [
        starting_frame(1, "imports", 1.0, None),
        starting_frame(12, "imports", 11.0, None),
        starting_frame(15, "weights", 3.0, "INFO [loader.py:3] shards: 50% [draft]"),
    ]
    async with shown(frames, (80, 24)) as (panel, _, _):
        screen = text(panel)
        assert "✓ imports     11 s" in screen
        assert "◌ weights      3 s" in screen
        assert "INFO [loader.py:3] shards: 50% [draft]" in screen


async def test_a_server_that_ended_shows_its_code_and_reason() -> None:
    async with shown([exited_frame(3, 1, "CUDA out of memory [gpu 0]")]) as (panel, _, _):
        assert "The server ended with code 1: CUDA out of memory [gpu 0]" in text(panel)
        assert "✗ exited 1" in picture(panel)[0]
        assert "1 profiles   6 the log   ? the keys   q leave" in text(panel)


async def test_the_clock_says_what_it_counts() -> None:
    frame = synthetic_frame(41, random.Random(1))
    up = replace(frame, server=replace(frame.server, up_s=3725.0))
    async with shown([frame]) as (panel, _, pilot):
        assert "watched 00:00:41" in picture(panel)[0]
        await hand(panel, pilot, [up])
        assert "up 01:02:05" in picture(panel)[0]
        await hand(panel, pilot, [exited_frame(3, 1, "gone")])
        assert "up " not in picture(panel)[0]


async def test_an_end_after_a_run_keeps_the_charts_and_says_why_above_them() -> None:
    frames = [*synthetic_frames(60), exited_frame(61, -9, "killed")]
    async with shown(frames) as (panel, live, _):
        assert live.grid.display
        assert "The server ended with code -9: killed" in text(panel)


async def test_c08_failing_metrics_while_the_server_is_up_are_a_state_of_their_own() -> None:
    frames = [*synthetic_frames(60), scrape_failing_frame(61, "timed out")]
    async with shown(frames) as (panel, _, pilot):
        screen = text(panel)
        assert "metrics failing" in picture(panel)[0]
        assert "The server is up, but its metrics cannot be read for 12 s: timed out" in screen
        await hand(panel, pilot, synthetic_frames(1, start_s=62))
        assert "cannot be read" not in text(panel)


async def test_no_drafts_are_absent_with_the_reason_and_never_zero() -> None:
    frames = list(synthetic_frames(90, idle=range(60, 90)))
    async with shown(frames) as (panel, live, _):
        rows = live.kpi.text_rows()
        assert rows[1].split()[0] == "n/a"
        assert rows[2].split("  ")[0] == " no drafts in 10 s"
        assert "…" not in rows[2]
        assert "n/a: no drafts in the last 10 s" in text(panel)


async def test_a_server_that_reports_nothing_of_speculation_shows_reasons() -> None:
    frame = replace(synthetic_frame(1, random.Random(1)), speculation=None, latency=None, host=None)
    async with shown([frame]) as (panel, live, _):
        assert live.kpi.text_rows()[1].split()[:2] == ["n/a", "n/a"]
        assert "host n/a" in text(panel)


async def test_plus_and_minus_change_the_window_and_stop_at_the_ends() -> None:
    async with shown(synthetic_frames(90)) as (panel, live, pilot):
        for key, minutes in (("plus", 15), ("plus", 60), ("plus", 60), ("minus", 15)):
            await pilot.press(key)
            assert live.window_minutes == minutes
            await pilot.pause()
            assert f"{minutes} min" in picture(panel)[-1]
        assert "-15 min" in text(panel)
        for _ in range(4):
            await pilot.press("minus")
        assert live.window_minutes == 1


async def test_space_freezes_the_picture_and_catches_up_afterwards() -> None:
    async with shown(synthetic_frames(60)) as (panel, live, pilot):
        before = picture(panel)[:-1]
        await pilot.press("space")
        await hand(panel, pilot, synthetic_frames(42, start_s=60))
        assert picture(panel)[:-1] == before
        assert "frozen, 00:42 behind" in picture(panel)[-1]
        await pilot.press("space")
        await hand(panel, pilot, [])
        assert len(live.timeline) == 102
        assert picture(panel)[:-1] != before


async def test_z_zooms_the_chosen_chart_and_the_cursor_reads_values() -> None:
    async with shown(synthetic_frames(200)) as (panel, live, pilot):
        await pilot.press("right_square_bracket", "right_square_bracket", "z")
        assert [chart.id for chart in live.charts if chart.display] == ["latency"]
        await pilot.press("left", "left", "left")
        assert "ago" in live.charts[2].text_rows()[0]
        await pilot.press("escape")
        assert all(chart.display for chart in live.charts)
        assert "ago" not in text(panel)


async def test_brackets_choose_the_chart_of_a_small_terminal() -> None:
    async with shown(synthetic_frames(90), (60, 15)) as (_, live, pilot):
        seen = []
        for _ in range(5):
            seen.append([chart.id for chart in live.charts if chart.display])
            await pilot.press("right_square_bracket")
        names = ["acceptance", "positions", "latency", "throughput", "acceptance"]
        assert seen == [[name] for name in names]
        await pilot.press("left_square_bracket", "left_square_bracket")
        assert live.charts[3].display


async def test_c17_c_shows_conditional_rates() -> None:
    async with shown(synthetic_frames(90)) as (_, live, pilot):
        unconditional = live.charts[1].text_rows()
        await pilot.press("c")
        assert "given previous" in live.charts[1].text_rows()[0]
        assert live.charts[1].text_rows() != unconditional
        await pilot.press("c")
        assert live.charts[1].text_rows() == unconditional


async def test_a_restart_and_a_mark_are_drawn() -> None:
    async with shown(synthetic_frames(120, epoch_at=40, mark_at=90)) as (panel, _, _):
        assert "restart" in text(panel)
        assert "┊more" in text(panel)


async def test_a_second_monitor_that_starts_at_zero_goes_on_where_the_first_ended() -> None:
    async with shown([*synthetic_frames(60), *synthetic_frames(30)]) as (_, live, _):
        times = [moment.time_s for moment in live.timeline.moments("acceptance")]
        assert times == sorted(times)
        assert times[-1] == pytest.approx(89)


async def test_help_lists_every_key_and_closes() -> None:
    async with shown(size=(120, 50)) as (panel, _, pilot):
        await pilot.press("question_mark")
        assert isinstance(panel.screen, HelpScreen)
        screen = text(panel)
        scopes: tuple[Scope, ...] = ("live", "zoom", "panel")
        for key in keys_of(*scopes):
            assert key.help in screen, key.id
        assert all(SCOPE_TITLES[scope] in screen for scope in scopes)
        await pilot.press("escape")
        assert isinstance(panel.screen, LiveScreen)


@pytest.mark.parametrize("size", [(59, 15), (60, 14), (20, 5), (1, 1)])
async def test_f17_a_terminal_that_is_too_small_is_told_what_is_needed(
    size: tuple[int, int],
) -> None:
    async with shown(synthetic_frames(30), size) as (panel, _, pilot):
        message = f"needs 60x15, has {size[0]}x{size[1]}"
        shown_text = " ".join(text(panel).split())
        assert message.startswith(shown_text.rstrip("…")) if size[0] < 25 else shown_text == message
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert "acc length" in text(panel)


async def test_f17_a_storm_of_resizes_ends_in_a_whole_picture() -> None:
    async with shown(synthetic_frames(90)) as (panel, _, pilot):
        for width, height in (
            (80, 24),
            (30, 8),
            (200, 60),
            (61, 15),
            (100, 32),
            (99, 31),
            (80, 24),
        ):
            await pilot.resize_terminal(width, height)
        await pilot.pause()
        rows = picture(panel)
        assert len(rows) == 24
        assert "Acceptance length" in text(panel)
        assert "╭" not in text(panel)


async def test_a_tick_without_a_new_frame_refreshes_nothing() -> None:
    async with shown(synthetic_frames(300)) as (panel, live, pilot):
        before = refreshed(live)
        for _ in range(10):
            panel.tick()
            await pilot.pause()
        assert refreshed(live) == before


async def test_a_frame_that_fills_no_new_cell_refreshes_few_regions() -> None:
    """In an hour's window a cell lasts half a minute: most Frames change numbers, not pictures."""
    async with shown(synthetic_frames(3000)) as (panel, live, pilot):
        for _ in range(2):
            await pilot.press("plus")
        await hand(panel, pilot, synthetic_frames(1, start_s=3000))
        counts = []
        for second in range(3001, 3021):
            before = refreshed(live)
            await hand(panel, pilot, synthetic_frames(1, start_s=second))
            counts.append(refreshed(live) - before)
        assert sorted(counts)[len(counts) // 2] <= 30


def refreshed(live: LiveScreen) -> int:
    return sum(canvas.refreshed_regions for canvas in live.query(Canvas))


async def test_a_hidden_screen_is_not_drawn_and_catches_up() -> None:
    async with shown(synthetic_frames(60)) as (panel, live, pilot):
        await pilot.press("question_mark")
        before = refreshed(live)
        await hand(panel, pilot, synthetic_frames(30, start_s=60))
        assert refreshed(live) == before
        await pilot.press("escape")
        await hand(panel, pilot, [])
        assert len(live.timeline) == 90


@pytest.mark.parametrize(
    ("size", "charts"),
    [((120, 40), 4), ((120, 24), 4), ((80, 24), 2), ((60, 15), 1), ((100, 15), 2), ((80, 40), 4)],
)
def test_as_many_charts_are_shown_as_fit(size: tuple[int, int], charts: int) -> None:
    assert plan_live(*size).charts == charts
    assert too_small(*size) is None


async def test_no_colour_leaves_patterns_and_glyphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with shown(synthetic_frames(90)) as (panel, _, _):
        assert panel.patterns
        assert "╍╍" in text(panel)
        for strip in panel.screen._compositor.render_strips():
            for segment in strip.apply_filter(
                panel._filters[-1], panel.screen.background_colors[1]
            ):
                color = segment.style.color if segment.style else None
                if color is not None and color.triplet is not None:
                    assert len({color.triplet.red, color.triplet.green, color.triplet.blue}) == 1


def test_frames_without_anything_are_still_frames() -> None:
    assert set(BARE) <= set(Frame.__dataclass_fields__)


async def test_charts_over_a_resting_server_are_drawn_at_times_and_miss_nothing() -> None:
    frames = list(synthetic_frames(60))
    last = frames[-1]
    resting = [replace(last, elapsed_s=last.elapsed_s + n) for n in range(1, 12)]
    moving = replace(list(synthetic_frames(61))[-1], elapsed_s=last.elapsed_s + 12)
    async with shown(frames) as (panel, live, pilot):
        drawn = [0]
        for frame in resting:
            await hand(panel, pilot, [frame])
            drawn.append(sum(chart.refreshed_regions for chart in live.charts))
        assert 1 <= len(set(drawn[1:])) <= 3
        await hand(panel, pilot, [moving])
        rows = [chart.text_rows() for chart in live.charts]
    async with shown([*frames, *resting, moving]) as (_, live, _):
        assert rows == [chart.text_rows() for chart in live.charts]
