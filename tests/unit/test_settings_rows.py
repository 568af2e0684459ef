"""One row a setting, read from the models: what a form shows and what may be typed into it."""

import pytest

from specpanel.core.settings.drafters import DRAFTERS, METHODS
from specpanel.core.settings.files import PRESETS, catalogue, read_profile
from specpanel.core.settings.nearest import setting_names
from specpanel.core.settings.profile import Profile
from specpanel.core.settings.rows import (
    SECTIONS,
    Row,
    parse,
    rows,
    table_of,
    text_of,
    validated,
    with_value,
)

TABLE = {"name": "x", "target": {"model": "m"}, "drafter": {"method": "ngram", "k": 4}}


def row(dotted: str, table: object = TABLE, saved: object = None) -> Row:
    return next(row for row in rows(table, saved) if row.dotted == dotted)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", METHODS)
def test_every_setting_has_one_row_with_a_help_and_the_drafters_follow_the_method(
    method: str,
) -> None:
    found = rows({"target": {"model": "m"}, "drafter": {"method": method}})
    names = [row.dotted for row in found]
    expected = {name for name in setting_names() if not name.startswith("drafter.")}
    expected |= {f"drafter.{name}" for name in DRAFTERS[method].model_fields}
    assert set(names) == expected
    assert len(names) == len(set(names))
    assert all(row.help for row in found), [row.dotted for row in found if not row.help]
    places = [SECTIONS.index(row.section) for row in found]
    assert places == sorted(places)


def test_a_row_says_what_its_model_declares() -> None:
    k = row("drafter.k")
    assert (k.title, k.kind, k.bounds, k.default) == ("draft tokens (K)", "integer", "1 … 128", 4)
    length = row("target.max_model_len")
    assert length.flag == "--max-model-len"
    assert length.bounds == "at least 1"
    assert length.help == "Longest prompt and answer together, in tokens."
    memory = row("engine.gpu_memory_utilization")
    assert (memory.kind, memory.bounds) == ("number", "above 0, at most 1")
    assert row("target.dtype").choices == ("auto", "bfloat16", "float16", "float32")
    assert row("drafter.method").choices == METHODS
    assert row("target.model").required
    assert row("traffic.duration_s").title == "duration (s)"


def test_the_declared_title_and_help_hold_for_an_optional_setting_too() -> None:
    k = row("drafter.k", {"drafter": {"method": "dspark"}})
    assert k.title == "draft tokens (K)"
    assert k.help
    assert k.optional


def test_the_source_of_a_value_is_told() -> None:
    edited = with_value(TABLE, "drafter.k", 6)
    assert row("drafter.k").source == "profile"
    assert row("engine.port").source == "default"
    assert row("drafter.k", edited, TABLE).source == "edited"
    taken_out = with_value(TABLE, "drafter.k", None)
    assert row("drafter.k", taken_out, TABLE).source == "edited"
    assert row("drafter.k", taken_out, TABLE).value is None


@pytest.mark.parametrize(
    ("dotted", "text", "value"),
    [
        ("drafter.k", "6", 6),
        ("drafter.k", " 6 ", 6),
        ("engine.gpu_memory_utilization", "0.5", 0.5),
        ("engine.enforce_eager", "yes", True),
        ("engine.enforce_eager", "no", False),
        ("target.dtype", "float32", "float32"),
        ("target.model", "[/foo] x", "[/foo] x"),
        ("engine.arguments", "--a '{\"b\": 1}'", ["--a", '{"b": 1}']),
        ("engine.environment", "A=1 B='x y'", {"A": "1", "B": "x y"}),
        ("traffic.prompts", "/some/file", "/some/file"),
    ],
)
def test_what_is_typed_becomes_the_value_and_back(dotted: str, text: str, value: object) -> None:
    setting = row(dotted)
    parsed = parse(setting, text)
    assert parsed.error is None
    assert parsed.value == value
    assert type(parsed.value) is type(value)
    assert parse(setting, text_of(setting, parsed.value)) == parsed
    assert isinstance(validated(with_value(TABLE, dotted, parsed.value)), Profile)


@pytest.mark.parametrize(
    ("dotted", "text", "error"),
    [
        ("drafter.k", "three", "not a whole number"),
        ("drafter.k", "2.5", "not a whole number"),
        ("drafter.k", "0", "must be above 0"),
        ("drafter.k", "129", "must be at most 128"),
        ("engine.port", "70000", "must be at most 65535"),
        ("engine.gpu_memory_utilization", "nan", "not a finite number"),
        ("target.model", "", "is needed"),
        ("target.dtype", "int9", "not one of"),
        ("engine.arguments", "--a 'b", "no closing quotation"),
        ("engine.arguments", "--port 1", "engine.port"),
        ("engine.environment", "A", "NAME=value"),
        ("engine.environment", "9A=1", "environment variable"),
        ("engine.enforce_eager", "perhaps", "yes or no"),
    ],
)
def test_what_is_no_value_is_refused_in_a_few_words_and_kept(
    dotted: str, text: str, error: str
) -> None:
    parsed = parse(row(dotted), text)
    assert parsed.error is not None
    assert error in parsed.error
    assert parsed.value == (text or None)
    found = validated(with_value(TABLE, dotted, parsed.value))
    assert isinstance(found, dict)
    assert list(found) == [dotted]


def test_an_empty_text_takes_an_optional_setting_out() -> None:
    assert parse(row("target.max_model_len"), " ").value is None
    assert parse(row("target.max_model_len"), " ").error is None


def test_a_rule_over_several_settings_is_told_at_the_first_that_it_names() -> None:
    found = validated(with_value(TABLE, "drafter.prompt_lookup_min", 9))
    assert isinstance(found, dict)
    assert list(found) == ["drafter.prompt_lookup_min"]


def test_every_error_is_told_at_once_by_its_name() -> None:
    wrong = with_value(with_value(TABLE, "drafter.k", "three"), "engine.port", 0)
    assert validated(wrong) == {
        "drafter.k": "not a whole number",
        "engine.port": "must be at least 1",
    }
    assert validated({"name": "x"}) == {"target.model": "is needed"}


def test_another_method_drops_the_settings_of_the_drafter_before() -> None:
    changed = with_value(TABLE, "drafter.method", "suffix")
    assert changed["drafter"] == {"method": "suffix"}
    assert TABLE["drafter"] == {"method": "ngram", "k": 4}


@pytest.mark.parametrize("file", [file.name for file in catalogue(PRESETS)])
def test_every_preset_survives_its_table(file: str) -> None:
    profile = read_profile(PRESETS / f"{file}.toml")
    assert validated(table_of(profile)) == profile


def test_a_filter_finds_by_name_flag_and_help() -> None:
    def found(words: str) -> set[str]:
        return {row.dotted for row in rows(TABLE) if row.matches(words)}

    assert "engine.tensor_parallel_size" in found("--tensor-par")
    assert "target.max_model_len" in found("LONGEST prompt")
    assert "drafter.k" in found("num_speculative")
    assert found("nothing-like-that") == set()


@pytest.mark.parametrize("method", METHODS)
def test_a_drafters_titles_fit_the_form(method: str) -> None:
    found = rows({"target": {"model": "m"}, "drafter": {"method": method}})
    titles = [row.title for row in found if row.section == "drafter"]
    assert max(map(len, titles)) <= 21, titles
    assert len(set(titles)) == len(titles)
