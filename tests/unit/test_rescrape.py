"""Reading the metrics of one server again gives what reading them for the first time gives."""

import re
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from specpanel.core.engine.metrics import Exposition, ExpositionError, parse_exposition
from specpanel.core.engine.rescrape import ExpositionReader

DATA = Path(__file__).parents[1] / "data"
BODY = (DATA / "metrics_vllm_0_32_ngram.txt").read_text(encoding="utf-8")
LINES = BODY.splitlines(keepends=True)


def outcome(read: Callable[[str], Exposition], text: str) -> Exposition | str:
    try:
        return read(text)
    except ExpositionError as error:
        return str(error)


edit = st.tuples(
    st.sampled_from(range(len(LINES))),
    st.sampled_from(
        [
            *("", "x", "vllm:", "\n", '# HELP vllm:x "\n'),
            'vllm:num_preemptions_total{engine="0"} 7\n',
            *[line for line in LINES if "spec_decode" in line or "le=" in line][:40],
        ]
    ),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(edit, max_size=3), min_size=1, max_size=4), st.integers(0, 20))
def test_bodies_that_change_by_some_lines_are_read_as_if_each_were_the_first(
    bodies: list[list[tuple[int, str]]], cut: int
) -> None:
    reader = ExpositionReader()
    for number, edits in enumerate(bodies):
        lines = list(LINES)
        for place, text in edits:
            lines[place] = text
        body = "".join(lines)
        body = body[:-cut] if cut and number == 1 else body
        assert outcome(reader.read, body) == outcome(parse_exposition, body)


def test_counters_that_stand_still_are_the_same_object_whatever_else_moves() -> None:
    reader = ExpositionReader()
    first = reader.read(BODY)
    other = re.sub(r"(?m)^process_cpu_seconds_total .*$", "process_cpu_seconds_total 9e9", BODY)
    assert other != BODY
    assert reader.read(other) is first
    moved = BODY.replace("spec_decode_num_drafts_total{", "spec_decode_num_drafts_total{ ", 1)
    assert reader.read(moved) is not first


def test_a_body_that_is_not_vllms_is_told_and_forgotten() -> None:
    reader = ExpositionReader()
    first = reader.read(BODY)
    assert not reader.read("python_info 1\n").is_vllm
    assert reader.read(BODY) is first
