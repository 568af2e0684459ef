"""The dialog of reasons: no finding is no praise where there is nothing to judge by."""

from dataclasses import replace

import pytest
from textual.content import Content
from tui.synthetic import synthetic_frames

from specpanel.app.tui.screens.why import WhyScreen
from specpanel.core.monitor.frame import Frame
from specpanel.core.monitor.reasons import NO_DRAFTER

(FRAME,) = synthetic_frames(1, start_s=60)
assert FRAME.speculation is not None


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (None, "no server is watched"),
        (replace(FRAME, totals=None), "no figures to judge by"),
        (replace(FRAME, speculation=None), "metrics do not answer at the moment"),
        (
            replace(FRAME, speculation=None, server=replace(FRAME.server, state="exited")),
            "The server has ended",
        ),
        (replace(FRAME, speculation=replace(FRAME.speculation, absent=NO_DRAFTER)), "no drafter"),
        (
            replace(FRAME, speculation=replace(FRAME.speculation, lifetime_drafts=7)),
            "Only 7 drafts",
        ),
        (FRAME, "Nothing is wrong"),
    ],
)
def test_without_a_finding_it_says_what_is_known(frame: Frame | None, said: str) -> None:
    first = WhyScreen((), None, frame).body()[0]
    assert isinstance(first, Content)
    assert said in first.plain
