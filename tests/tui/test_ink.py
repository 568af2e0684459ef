"""Rows of inked text: nothing is parsed, nothing is wider than it should be."""

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from specpanel.app.tui.ink import cells_of, clean, fit, shorten, spread, text_of, width_of

words = st.text(alphabet="ab [/]日本…é🙂", max_size=12)
rows = st.lists(st.tuples(words, st.sampled_from(["text", "muted"])), max_size=4).map(tuple)


def test_clean_takes_escape_sequences_and_control_codes_and_leaves_brackets() -> None:
    assert clean("\x1b[0;36m(APIServer pid=77)\x1b[0;0m INFO [util.py:9] \r\n").strip() == (
        "(APIServer pid=77) INFO [util.py:9]"
    )
    assert clean("a\x1b]8;;http://x\x07link\x1b]8;;\x07b") == "alinkb"
    assert clean("left\u202eright\x00\x7f") == "leftright"
    assert clean("[@click=app.bell]x[/] \\[x]") == "[@click=app.bell]x[/] \\[x]"


@settings(deadline=None, max_examples=60)
@given(rows, st.integers(0, 40))
def test_fit_gives_exactly_the_width(row: tuple[tuple[str, str], ...], width: int) -> None:
    assert width_of(fit(row, width)) == width


@settings(deadline=None, max_examples=60)
@given(words, st.integers(0, 20))
def test_shorten_never_exceeds_and_never_cuts_without_need(text: str, width: int) -> None:
    short = shorten(text, width)
    assert width_of(((short, "text"),)) <= width
    if width_of(((text, "text"),)) <= width:
        assert short == text


@settings(deadline=None, max_examples=60)
@given(rows, rows, st.integers(0, 40))
def test_spread_gives_exactly_the_width(
    left: tuple[tuple[str, str], ...], right: tuple[tuple[str, str], ...], width: int
) -> None:
    assert width_of(spread(left, right, width)) == width


printable = st.text(alphabet=st.characters(exclude_categories=["Cc", "Cf", "Cs"]), max_size=12)


@settings(deadline=None, max_examples=60)
@given(st.one_of(words, printable, st.text(alphabet="⣿⠋─│█▏…–×·°", max_size=12)))
def test_a_text_takes_as_many_cells_as_a_terminal_gives_it(text: str) -> None:
    assert cells_of(text) == cell_len(text)


def test_text_of_joins_the_spans() -> None:
    assert text_of((("a", "text"), ("b", "muted"))) == "ab"
