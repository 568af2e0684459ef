"""Devices on Live and their details: machines as their drivers tell them, through the real reader."""

import asyncio
import functools
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.devices.machine import this_is, watched
from pace import within
from textual.pilot import Pilot
from tui.synthetic import synthetic_frames
from tui.test_live_screen import hand, picture, text

from specpanel.app.tui.charts.glyphs import ASCII, BRAILLE, Glyphs
from specpanel.app.tui.device_lines import device_lines, rows_needed
from specpanel.app.tui.ink import text_of, width_of
from specpanel.app.tui.panel import Panel
from specpanel.app.tui.screens.devices import DevicesScreen
from specpanel.app.tui.screens.live import LiveScreen
from specpanel.core.devices.records import DeviceReading, DeviceSample
from specpanel.core.devices.watch import read_once
from specpanel.core.monitor.feed import Feed


@functools.cache
def machine(name: str) -> DeviceSample:
    """One sample through a real reader process, which is not hurried."""
    with tempfile.TemporaryDirectory() as folder, this_is(name, Path(folder)):
        return read_once()[0]


async def sample_of(name: str, *, serving: int = 0) -> DeviceSample:
    sample = await asyncio.to_thread(machine, name)
    return replace(sample, server_uuids=tuple(one.uuid for one in sample.devices[:serving]))


@asynccontextmanager
async def live(
    sample: DeviceSample | None, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[tuple[Panel, Pilot[None]]]:
    panel = Panel(Feed(), auto_tick=False, glyphs=BRAILLE)
    async with panel.run_test(size=size) as pilot:
        await hand(panel, pilot, [replace(one, devices=sample) for one in synthetic_frames(60)])
        yield panel, pilot


async def test_eight_devices_have_a_line_each_and_the_servers_are_marked() -> None:
    async with live(await sample_of("h200x8", serving=4)) as (panel, _):
        rows = [row for row in picture(panel) if "H200" in row]
        assert len(rows) == 8
        assert [("●" in row) for row in rows] == [True] * 4 + [False] * 4
        for figure in ("97 %", "126.0/140.4 GiB", "640/700 W", "58 °C", "power cap"):
            assert all(figure in row for row in rows), figure
        assert "Acceptance length" in text(panel)


async def test_a_small_terminal_sums_them_up_in_one_row() -> None:
    async with live(await sample_of("h200x8"), (80, 24)) as (panel, _):
        (row,) = [row for row in picture(panel) if "8 devices" in row]
        assert "97 %" in row
        assert "1008/1123 GiB" in row
        assert "Acceptance length" in text(panel)


async def test_sixty_four_devices_scroll() -> None:
    async with live(await sample_of("h200x64")) as (panel, pilot):
        assert "25 below" in text(panel)
        seen = set()
        for _ in range(12):
            seen |= {word for row in picture(panel) if "H200" in row for word in row.split()}
            await pilot.press("pagedown")
        assert {str(number) for number in range(64)} <= seen
        assert "0 below" in text(panel)
        for _ in range(12):
            await pilot.press("pageup")
        assert "25 below" in text(panel)


async def test_what_cannot_be_known_is_no_zero() -> None:
    async with live(await sample_of("h100_mig")) as (panel, _):
        (slice_row,) = [row for row in picture(panel) if " 0:0 " in row]
        assert "n/a" in slice_row
        assert " 0 %" not in slice_row
        assert "19.5/39.5 GiB" in slice_row


async def test_a_lost_card_keeps_its_row() -> None:
    async with live(await sample_of("a100_lost")) as (panel, _):
        rows = picture(panel)
        (lost,) = [row for row in rows if "LOST" in row]
        assert " 1 " in lost
        assert sum("A100-SXM4-80GB" in row and "88 %" in row for row in rows) == 3


async def test_a_silent_driver_leaves_old_figures_dim_and_says_their_age() -> None:
    sample = await sample_of("h200x8")
    stale = tuple(replace(one, state="stale", age_s=12.0) for one in sample.readings)
    reason = "the driver has not answered for 12 s"
    silent = replace(sample, state="stale", reason=reason, age_s=12.0, readings=stale)
    async with live(silent) as (panel, _):
        assert reason in text(panel)
        assert sum("stale 12 s" in row for row in picture(panel)) == 8
    lines = device_lines(silent, 116, 8, BRAILLE)
    assert {ink for text_, ink in lines[0] if "97 %" in text_} == {"muted"}


async def test_without_a_device_the_reason_stands_at_the_host() -> None:
    async with live(await sample_of("driver_mismatch")) as (panel, _):
        (row,) = [row for row in picture(panel) if "─ Host " in row]
        assert "no NVIDIA or AMD device found" in row
        assert "─ Devices " not in text(panel)


async def test_d_opens_all_that_is_known_and_d_closes_it() -> None:
    sample = await sample_of("mi300x_spx")
    async with live(sample) as (panel, pilot):
        await pilot.press("d")
        await pilot.pause()
        assert isinstance(panel.screen, DevicesScreen)
        shown = text(panel)
        assert sample.devices[0].uuid in shown
        assert "gfx_activity" in shown  # the vendor's own name
        await hand(
            panel, pilot, [replace(one, devices=sample) for one in synthetic_frames(2, start_s=61)]
        )
        first = picture(panel)
        await pilot.press("down")
        await pilot.pause()
        assert picture(panel) != first
        await pilot.press("up", "pagedown", "pageup")
        await pilot.pause()
        assert picture(panel) == first
        await pilot.press("d")
        await pilot.pause()
        assert isinstance(panel.screen, LiveScreen)


async def test_the_details_say_why_there_is_no_device() -> None:
    async with live(await sample_of("driver_mismatch")) as (panel, pilot):
        await pilot.press("d")
        await pilot.pause()
        assert "no NVIDIA or AMD device found" in text(panel)


async def test_hostile_names_are_shown_as_they_are_and_break_no_row() -> None:
    sample = await sample_of("h200x8")
    names = "[/bold] \x1b[31mred\x1b]0;t\x07", "显卡显卡显卡显卡", "a\nb", "[draft]"
    devices = tuple(
        replace(one, name=names[at % 4], uuid=one.uuid) for at, one in enumerate(sample.devices)
    )
    async with live(replace(sample, devices=devices)) as (panel, pilot):
        assert "[/bold] red" in text(panel)
        assert all(width_of(((row, ""),)) == 120 for row in picture(panel))
        await pilot.press("d")
        await pilot.pause()
        assert "[draft]" in text(panel)
        assert "\x1b" not in text(panel)


@pytest.mark.parametrize("glyphs", [BRAILLE, ASCII], ids=lambda glyphs: glyphs.name)
@pytest.mark.parametrize("name", ["h200x64", "mixed", "mi300x_cpx", "gb10"])
async def test_lines_keep_to_their_size(name: str, glyphs: Glyphs) -> None:
    sample = await sample_of(name)
    for width in (40, 58, 76, 118, 200):
        for height in (1, 2, 5, 40):
            lines = device_lines(sample, width, height, glyphs)
            assert len(lines) == min(height, rows_needed(sample, width))
            assert all(width_of(line) <= width for line in lines), [text_of(one) for one in lines]


async def test_a_device_without_a_reading_is_a_row_without_figures() -> None:
    sample = await sample_of("h200x8")
    bare = replace(sample, readings=(DeviceReading(uuid=sample.devices[0].uuid),))
    (row,) = device_lines(replace(bare, devices=sample.devices[:1]), 116, 1, BRAILLE)
    assert text_of(row).split()[:2] == ["0", "H200"]
    assert "0 %" not in text_of(row)


@pytest.mark.parametrize("name", ["call_blocks", "nvml_segfault", "amdsmi_init_hangs"])
async def test_a_reader_that_hangs_or_crashes_costs_no_key_and_no_frame(
    name: str, tmp_path: Path
) -> None:
    """Reader and panel share a loop, as in life: what blocks is the child's call, nothing here."""
    frames = list(synthetic_frames(40))
    took: list[float] = []
    async with watched(name, tmp_path) as watch, live(None) as (panel, pilot):
        for number, frame in enumerate(frames):
            panel.feed.publish(replace(frame, elapsed_s=60.0 + number, devices=watch.sample()))
            panel.tick()
            began = time.monotonic()
            await pilot.press("c")
            took.append(time.monotonic() - began)
        assert panel.timeline.count == 100
    assert sorted(took)[len(took) // 2] < within(0.15)
