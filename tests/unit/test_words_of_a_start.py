"""The top bar counts a whole start, says when one is broken off, and the host's row names warm-ups."""

from dataclasses import replace

from tui.synthetic import synthetic_frames

from specpanel.app.cli.plain import frame_text
from specpanel.app.tui.charts.glyphs import BRAILLE
from specpanel.app.tui.figures import server_state, traffic_line
from specpanel.app.tui.ink import text_of
from specpanel.app.tui.widgets.bars import coming_words
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Frame, TrafficSample
from specpanel.core.session.desk import Desk

FRAME = next(iter(synthetic_frames(1)))


def starting(**changes: object) -> Frame:
    server = replace(FRAME.server, state="starting", phase="loading weights", **changes)
    return replace(FRAME, server=server)


def test_a_start_counts_from_its_beginning_and_names_its_phase() -> None:
    frame = starting(phase_s=3.0, up_s=48.0)
    assert "starting 48 s, loading weights" in text_of(server_state(frame, BRAILLE, wide=True))
    narrow = text_of(server_state(frame, BRAILLE, wide=False))
    assert "starting 48 s" in narrow
    assert "loading" not in narrow
    unknown = text_of(server_state(starting(phase_s=3.0, up_s=None), BRAILLE, wide=False))
    assert "starting 3 s" in unknown


async def test_a_start_that_is_broken_off_is_said_to_be_stopping() -> None:
    desk = Desk(Feed())
    desk.watch("http://127.0.0.1:1")
    assert "looking at" in text_of(coming_words(desk, BRAILLE, wide=True))
    desk.stop()
    assert text_of(coming_words(desk, BRAILLE, wide=True)).endswith("stopping")
    await desk.close(leave=True)


def test_warm_ups_are_named_as_long_as_nothing_else_is_done() -> None:
    warming = TrafficSample(0, 0, 0, 1, 8, warmups_done=1, warmups_planned=4)
    assert text_of(traffic_line(warming, BRAILLE, 6)).startswith("traffic 1/4 warm-ups done")
    begun = TrafficSample(2, 0, 0, 2, None, warmups_done=4, warmups_planned=4)
    assert "0 done" in text_of(traffic_line(begun, BRAILLE, 6))
    assert text_of(traffic_line(begun, BRAILLE, 6)).endswith("after 4 warm-ups")
    on_its_way = TrafficSample(3, 1, 0, 2, None, warmups_done=4, warmups_planned=4)
    assert "warm-up" not in text_of(traffic_line(on_its_way, BRAILLE, 6))
    assert "1/4 warm-ups done" in frame_text(replace(FRAME, traffic=warming))
