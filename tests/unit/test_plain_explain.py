"""What vLLM chose and what is wrong with acceptance, as a person reads it on a terminal."""

from specpanel.app.cli.plain_explain import choice_lines, finding_line, finding_lines
from specpanel.core.engine.chosen import Choice
from specpanel.core.session.events import ChosenFound, PathologyFound, event_line
from specpanel.core.speculation.pathologies import pathology

CHOICES = (
    Choice("drafter", "ngram", "ngram", True, "drafter.method"),
    Choice("KV cache type", "fp8", "auto (float32)", False, "mla.kv_cache_dtype"),
    Choice("attention backend", "FLASHMLA", None, None, "mla.attention_backend"),
)
FOUND = pathology(
    "nothing-accepted", "error", "No draft token was accepted in 400 drafts", "0 of 1600"
)


def test_choices_stand_in_one_line_and_what_is_otherwise_in_one_of_its_own():
    assert list(choice_lines(CHOICES)) == [
        "vLLM chose: drafter ngram, KV cache type auto (float32)",
        "! KV cache type: wished fp8, vLLM took auto (float32) (mla.kv_cache_dtype)",
    ]


def test_nothing_said_is_no_line():
    assert list(choice_lines(())) == []
    assert list(choice_lines(CHOICES[2:])) == []


def test_a_finding_is_one_line_while_it_runs_with_its_likeliest_cause():
    line = finding_line(FOUND)
    assert line.startswith("✗ No draft token was accepted in 400 drafts — likely: The drafter was ")


def test_a_finding_in_the_summary_has_evidence_causes_and_how_to_tell():
    lines = list(finding_lines(FOUND))
    assert lines[1] == "  counted: 0 of 1600"
    assert lines[2].startswith("  1. The drafter was trained for another target")
    assert lines[2].endswith("[drafter.model]")
    assert lines[3].startswith("     Compare hidden size")


def test_both_events_are_lines_of_the_stream_with_their_fields_at_the_top():
    assert event_line(PathologyFound(12.5, FOUND)).startswith(
        '{"schema_version": 1, "kind": "pathology", "elapsed_s": 12.5, "code": "nothing-accepted"'
    )
    assert event_line(ChosenFound(CHOICES, ("words",))).startswith(
        '{"schema_version": 1, "kind": "chosen", "choices": [{"name": "drafter"'
    )
