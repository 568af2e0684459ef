"""Live says what is wrong with the acceptance: in a line, in the empty middle, and behind a key."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from textual.pilot import Pilot
from tui.synthetic import synthetic_frames

from specpanel.app.tui.charts.glyphs import ASCII
from specpanel.app.tui.panel import Panel
from specpanel.app.tui.screens.why import WhyScreen
from specpanel.core.engine.chosen import Chosen, against
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Frame, Totals
from specpanel.core.session.explaining import Explanation
from specpanel.core.settings.profile import Profile
from specpanel.core.speculation.pathologies import pathology
from specpanel.core.speculation.pathology_causes import PATHOLOGY_CAUSES

SIZES = [(120, 40), (80, 24)]
HOSTILE = "[/foo] [bold]x[/] \x1b[31mred"


@asynccontextmanager
async def shown(
    frames: Iterable[Frame], size: tuple[int, int] = (120, 40)
) -> AsyncIterator[tuple[Panel, Pilot[None]]]:
    panel = Panel(Feed(), auto_tick=False)
    async with panel.run_test(size=size) as pilot:
        for frame in frames:
            panel.feed.publish(frame)
        await pilot.pause()
        panel.tick()
        await pilot.pause()
        yield panel, pilot


def text(panel: Panel) -> str:
    return "\n".join(strip.text for strip in panel.screen._compositor.render_strips())


def counting(accepted_share: float, *, drafts_a_frame: int = 40, k: int = 3) -> list[Frame]:
    """Thirty seconds of a server whose drafts are accepted that often."""
    found = []
    for number, frame in enumerate(synthetic_frames(30)):
        drafts = number * drafts_a_frame
        positions = tuple(int(drafts * accepted_share ** (place + 1)) for place in range(k))
        found.append(
            replace(
                frame,
                epoch=0,
                server=replace(frame.server, drafter="eagle3", draft_tokens=k),
                totals=Totals(
                    drafts, drafts * k, sum(positions), positions, 0, drafts + sum(positions)
                ),
            )
        )
    return found


def without_drafts() -> list[Frame]:
    """Tokens are made, and none is drafted."""
    found = []
    for number, frame in enumerate(counting(0.5)):
        sample = frame.speculation
        assert sample is not None
        assert frame.engine is not None
        silent = replace(
            sample,
            drafts=0,
            acceptance_length=None,
            draft_acceptance_rate=None,
            positions=(),
            absent="no drafts yet",
        )
        found.append(
            replace(
                frame,
                engine=replace(frame.engine, running=1, requests_finished=2),
                speculation=silent,
                totals=Totals(0, 0, 0, (0, 0, 0), 0, number * 20),
            )
        )
    return found


@pytest.mark.parametrize("size", SIZES)
async def test_a_drafter_that_is_never_right_is_said_above_the_charts(
    size: tuple[int, int],
) -> None:
    async with shown(counting(0.0), size) as (panel, _):
        assert "No draft token was accepted in" in text(panel)
        assert "w: why" in text(panel)


async def test_a_healthy_drafter_has_no_such_line_and_the_dialog_says_so() -> None:
    async with shown(counting(0.7)) as (panel, pilot):
        assert "w: why" not in text(panel)
        await pilot.press("w")
        await pilot.pause()
        assert isinstance(panel.screen, WhyScreen)
        assert "inter_token_latency" in text(panel) or "Nothing is wrong" in text(panel)


async def test_the_empty_middle_says_why_there_are_no_drafts() -> None:
    async with shown(without_drafts()) as (panel, _):
        screen = text(panel)
        assert "Tokens are made and none is drafted" in screen
        assert "Requests opt out" in screen


async def test_the_key_opens_evidence_causes_and_how_to_tell() -> None:
    async with shown(counting(0.0)) as (panel, pilot):
        await pilot.press("w")
        await pilot.pause()
        screen = text(panel)
        assert "0 accepted of" in screen
        assert "1. The drafter was trained for another target" in screen
        assert "drafter.model" in screen
        await pilot.press("escape")
        await pilot.pause()
        assert not isinstance(panel.screen, WhyScreen)


async def test_what_vllm_took_instead_is_marked_beside_the_wish_and_hostile_text_stays_text() -> (
    None
):
    wished = Profile.model_validate({"target": {"model": "/m"}, "mla": {"kv_cache_dtype": "fp8"}})
    chosen = Chosen(kv_cache_dtype="auto", dtype="float32", remarks=(HOSTILE,))
    async with shown([]) as (panel, pilot):
        panel.push_screen(WhyScreen((), Explanation(against(wished, chosen), chosen.remarks)))
        await pilot.pause()
        screen = text(panel)
        assert "KV cache type" in screen
        assert "fp8  otherwise" in screen
        assert "left to vLLM" in screen
        assert "[/foo] [bold]x[/] red" in screen


async def test_d19_what_was_drafted_and_rejected_is_shown_a_second() -> None:
    async with shown(counting(0.7)) as (panel, pilot):
        sample = panel.feed.latest.speculation if panel.feed.latest else None
        assert sample is not None
        rejected = (sample.draft_tokens - sample.accepted_tokens) / sample.window_s
        await pilot.press("w")
        await pilot.pause()
        assert f"{rejected:.1f} draft tokens a second" in text(panel)


async def test_the_dialog_is_ascii_where_the_terminal_is() -> None:
    panel = Panel(Feed(), auto_tick=False, glyphs=ASCII)
    async with panel.run_test(size=(120, 40)) as pilot:
        found = tuple(pathology(code, "error", "x", "y") for code in PATHOLOGY_CAUSES)
        wished = Profile.model_validate({"target": {"model": "/m", "dtype": "bfloat16"}})
        explanation = Explanation(against(wished, Chosen(dtype="float32")))
        panel.push_screen(WhyScreen(found, explanation))
        await pilot.pause()
        assert text(panel).isascii()
