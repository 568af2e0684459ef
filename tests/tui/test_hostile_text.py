"""Text from outside is shown as it is, wherever it appears; nothing parses it as markup."""

import random
from dataclasses import replace

from tui.synthetic import exited_frame, scrape_failing_frame, starting_frame, synthetic_frame

from specpanel.app.tui.panel import Panel
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Frame

HOSTILE = [
    "[/foo]",
    "[/",
    "[/]",
    "[//]",
    "[00] x",
    "[b + 3",
    '["a", 1]',
    "[draft] kept?",
    "[@click=app.bell]x[/]",
    "[#ff0000]red",
    "\\[x]",
    "[link=https://example.org]y",
    "loading [/usr/share/x] : [#1] done [bold",
    "$primary {not-css}",
    "名前 [日本語]",
]


def frames_with(text: str) -> dict[str, Frame]:
    whole = synthetic_frame(2, random.Random(1))
    speculation = whole.speculation
    assert speculation is not None
    server = replace(whole.server, drafter=text, name=text, model=text)
    return {
        "top bar": replace(whole, server=server),
        "start": starting_frame(1, text, 3.0, text),
        "end": exited_frame(1, 1, text),
        "scrape": scrape_failing_frame(2, text),
        "absent": replace(
            whole,
            speculation=replace(
                speculation,
                acceptance_length=None,
                draft_acceptance_rate=None,
                positions=(),
                absent=text,
            ),
        ),
        "note": replace(whole, speculation=replace(speculation, note=text)),
        "mark": replace(whole, mark=text),
    }


async def test_f01_f02_s09_hostile_text_is_shown_character_for_character_in_every_place_of_live() -> (
    None
):
    panel = Panel(Feed(), auto_tick=False)
    first = synthetic_frame(1, random.Random(1))
    async with panel.run_test(size=(200, 40), notifications=True) as pilot:
        text = "".join(HOSTILE[:9])
        for place, frame in frames_with(text).items():
            panel.feed.publish(replace(first, elapsed_s=1.0))
            panel.feed.publish(frame)
            panel.tick()
            await pilot.pause()
            screen = "\n".join(strip.text for strip in panel.screen._compositor.render_strips())
            # A mark's note is cut by the lines beside it; that it does not crash counts.
            assert text in screen or place == "mark", place
