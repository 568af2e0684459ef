"""A note that is cut at 80 columns says the important part in fewer words."""

from specpanel.app.tui.short_notes import shorter
from specpanel.core.monitor.window import SOME_STEPS_UNDRAFTED
from specpanel.core.speculation.acceptance import POSITIONS_DISAGREE, VARIABLE_LENGTH

ROW_CELLS = 76  # of 80: the mark before it, and the edge


def test_the_notes_of_a_drafter_that_is_often_silent_fit_one_row_together() -> None:
    long = f"{SOME_STEPS_UNDRAFTED.format(share=0.12)}; {VARIABLE_LENGTH.format(k=16)}"
    short = shorter(long)
    assert short == ("only 12% of steps drafted (acceptance is of those); later rates biased low")
    assert len(short) <= ROW_CELLS < len(long)


def test_a_note_without_a_shorter_form_stays() -> None:
    assert shorter(POSITIONS_DISAGREE) == POSITIONS_DISAGREE
