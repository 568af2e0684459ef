"""The pure parts of the Launch screen: what belongs to a row, how a command is wrapped, drafts, sizes."""

from pathlib import Path

import pytest
from rich.cells import cell_len

from specpanel.app.tui.screens.launch_draft import Draft
from specpanel.app.tui.screens.launch_layout import plan_launch
from specpanel.app.tui.screens.launch_shelf import Shelf
from specpanel.app.tui.widgets.command_preview import part_of_row, parts_of, wrapped
from specpanel.app.tui.widgets.form_entries import Heading, entries, facts_of, key_of, value_text
from specpanel.core.engine.command import build_command, shell_text
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.settings.files import catalogue
from specpanel.core.settings.profile import Profile
from specpanel.core.settings.rows import Row, rows, table_of

PROFILE = Profile.model_validate(
    {
        "name": "p",
        "target": {"model": "/m", "served_name": "it's a 'name'"},
        "engine": {"arguments": ["--seed", "3"], "environment": {"A": "1", "B": "2"}},
        "mla": {"force_sparse_mqa": True},
        "drafter": {"method": "eagle3", "model": "/d", "k": 5},
    }
)


def facts(console_script: str | None) -> InterpreterFacts:
    return InterpreterFacts(
        python="/python",
        python_version="3.12.0",
        distribution="vllm",
        packages=frozenset(),
        platform="cuda",
        vllm_version="0.32.0",
        launcher="serve" if console_script else "module",
        console_script=console_script,
    )


def row(dotted: str) -> Row:
    return next(row for row in rows(table_of(PROFILE)) if row.dotted == dotted)


@pytest.mark.parametrize(
    ("dotted", "served", "by_module"),
    [
        ("target.model", "/vllm serve /m", "--model /m"),
        ("engine.python", "/vllm serve /m", "/python -m vllm.entrypoints.openai.api_server"),
        ("engine.port", "--port 8000", "--port 8000"),
        ("drafter.k", '"num_speculative_tokens": 5', '"num_speculative_tokens": 5'),
        ("drafter.model", '"model": "/d"', '"model": "/d"'),
        ("drafter.method", '"method": "eagle3"', '"method": "eagle3"'),
        ("engine.environment", "A=1", "A=1"),
        ("engine.arguments", "--seed 3", "--seed 3"),
        ("traffic.concurrency", None, None),
        ("target.quantization", None, None),
    ],
)
def test_the_part_of_a_command_that_belongs_to_a_setting(
    dotted: str, served: str | None, by_module: str | None
) -> None:
    for script, expected in (("/vllm", served), (None, by_module)):
        parts = parts_of(shell_text(build_command(PROFILE, facts(script))))
        place = part_of_row(parts, row(dotted))
        found = None if place is None else parts[place[0]][slice(*place[1])]
        assert found == expected
    assert part_of_row([], row(dotted)) is None


@pytest.mark.parametrize("width", [8, 20, 36, 200])
def test_a_wrapped_part_loses_no_character_and_fits(width: int) -> None:
    command = shell_text(build_command(PROFILE, facts("/vllm")))
    for part in (*parts_of(command), "名前 " * 9, "x" * 90, ""):
        ranges = wrapped(part, width)
        assert "".join(part[slice(*found)] for found in ranges) == part
        for begin, end in ranges:
            assert cell_len(part[begin:end].rstrip()) <= width


def test_a_form_lists_what_is_set_what_is_wrong_and_what_matches() -> None:
    every = rows(table_of(PROFILE))
    names = [key_of(entry) for entry in entries(every, {})]
    assert "traffic.seed" not in names
    assert "engine.port" in names  # always
    assert "traffic.seed" in [key_of(e) for e in entries(every, {"traffic.seed": "bad"})]
    assert "traffic.seed" in [key_of(e) for e in entries(every, {}, unfolded={"traffic"})]
    found = entries(every, {}, words="temperature; 0")
    assert [key_of(entry) for entry in found] == ["traffic", "traffic.temperature"]
    heads = [entry for entry in entries(every, {}) if isinstance(entry, Heading)]
    assert sum(head.set_count + head.default_count for head in heads) == len(every)


def test_a_row_tells_where_its_value_comes_from() -> None:
    assert facts_of(row("drafter.k"))[-2:] == ["from the profile (default 3)", "del resets"]
    assert "--port" in facts_of(row("engine.port"))
    assert value_text(row("engine.environment")) == "A=1 B=2"
    assert value_text(row("target.max_model_len")) == "vLLM decides"


def test_edits_are_undone_one_by_one_and_a_method_finds_its_settings_again() -> None:
    draft = Draft(PROFILE)
    method, k = row("drafter.method"), row("drafter.k")
    draft.give(k, "three")
    assert draft.first_error() == ("drafter.k", "not a whole number")
    assert draft.profile is None
    draft.give(method, "ngram")
    assert draft.profile is not None
    assert draft.profile.drafter.method == "ngram"
    draft.give(method, "eagle3")
    assert not draft.edited
    assert draft.undo()
    assert draft.undo()
    assert draft.errors == {"drafter.k": "not a whole number"}
    assert draft.undo()
    assert draft.profile == PROFILE
    assert not draft.undo()


def test_the_reason_of_what_was_typed_stays_with_it() -> None:
    draft = Draft(PROFILE)
    draft.give(row("engine.environment"), "no equals sign")
    assert draft.first_error() == ("engine.environment", "write NAME=value, with blanks between")
    draft.reset(row("engine.environment"))
    assert draft.errors == {}


def test_what_is_chosen_first_and_after_the_last(tmp_path: Path) -> None:
    shelf = Shelf()
    shelf.fill(catalogue(tmp_path), None)
    assert shelf.chosen == "demo-ngram"
    shelf.chosen = shelf.names[-1]
    shelf.step(1)
    assert shelf.chosen == shelf.names[0]
    shelf.step(-1)
    assert shelf.chosen == shelf.names[-1]
    running = Shelf()
    running.fill(catalogue(tmp_path), "demo-plain")
    assert running.chosen == "demo-plain"


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (99, 31), (100, 32), (120, 40), (300, 100)])
def test_the_form_keeps_most_of_the_rows(size: tuple[int, int]) -> None:
    plan = plan_launch(*size)
    assert plan.wide is (size[0] >= 100)
    assert size[1] - 2 - plan.help_rows - plan.summary_rows >= size[1] * 0.6
