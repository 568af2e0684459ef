"""The Launch screen says what of a launch was not judged, instead of that nothing stands in the way."""

from collections.abc import Sequence

from specpanel.app.tui.charts.glyphs import BRAILLE
from specpanel.app.tui.ink import Line, text_of
from specpanel.app.tui.widgets.command_preview import Findings, PreflightLine

UNJUDGED = ("weights of the target (the model's files are not here)",)


def test_what_was_not_judged_stands_in_the_place_of_all_clear() -> None:
    pane = Findings(glyphs=BRAILLE)
    pane.redraw = lambda: None  # type: ignore[method-assign, assignment]
    pane.show((), ())
    assert "nothing stands in the way" in _text(pane.compose_inside(60, 20))
    assert pane.legend()
    pane.show((), (), unjudged=UNJUDGED)
    told = _text(pane.compose_inside(60, 20))
    assert "not judged: weights of the target" in told
    assert "stands in the way of a start" not in told
    assert not pane.legend()


def test_the_narrow_line_says_it_too() -> None:
    line = PreflightLine(glyphs=BRAILLE)
    line.redraw = lambda: None  # type: ignore[method-assign, assignment]
    line.show((), (), unjudged=UNJUDGED)
    assert "not all was judged" in text_of(line.legend())
    assert "not judged: weights of the target" in _text(line.compose_inside(60, 2))
    line.show((), ())
    assert "nothing in the way" in text_of(line.legend())


def _text(rows: Sequence[Line]) -> str:
    return " ".join(" ".join(text_of(row).split()) for row in rows)
