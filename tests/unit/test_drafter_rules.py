"""What a drafter's settings must agree on, and the names that a method goes by."""

import ast
import importlib.util
import runpy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from specpanel.core.engine.command import build_command
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.errors import ConfigurationError
from specpanel.core.session.switching import variants
from specpanel.core.settings.drafters import METHODS, canonical, name_note
from specpanel.core.settings.drafters.names import DEPRECATED_MTP, NO_DRAFTERS, OTHER_NAMES
from specpanel.core.settings.drafters.schedule import draft_tokens_at, ranges_of, schedule_words
from specpanel.core.settings.files import profile_text, read_profile
from specpanel.core.settings.profile import Profile
from specpanel.core.settings.rows import parse, rows, validated, with_value

FACTS = InterpreterFacts(
    python="/venv/bin/python",
    python_version="3.11.7",
    distribution="vllm",
    vllm_version="0.32.0",
    platform="cuda",
    launcher="serve",
    console_script="/venv/bin/vllm",
    packages=frozenset({"vllm"}),
)


def profile(**drafter: Any) -> Profile:
    return Profile.model_validate({"target": {"model": "/m"}, "drafter": drafter})


def refusal(**drafter: Any) -> str:
    with pytest.raises(ValidationError) as refused:
        profile(**drafter)
    return str(refused.value)


def vllm_source(*parts: str) -> Path:
    found = importlib.util.find_spec("vllm")  # looks for it, does not import it
    if found is None or found.origin is None:
        pytest.skip("vLLM is not installed here")
    return Path(found.origin).parent.joinpath(*parts)


# --- K by batch size --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "written",
    ["1-4:5 5-16:3 17-64:0", "1-4:5, 5-16:3, 17-64:0", ["17-64:0", "1-4:5", "5-16:3"],
     [[1, 4, 5], [5, 16, 3], [17, 64, 0]]],
)  # fmt: skip
def test_ranges_may_be_written_as_words_or_as_vllm_has_them(written: object) -> None:
    drafter = profile(method="eagle3", model="/d", k=5, k_by_batch_size=written).drafter
    found = drafter.speculative_config()
    assert found is not None
    assert found["num_speculative_tokens_per_batch_size"] == [[1, 4, 5], [5, 16, 3], [17, 64, 0]]


@pytest.mark.parametrize(
    ("ranges", "reason"),
    [
        ("2-4:5", "must begin at 1"),
        ("0-4:5", "below one request"),
        ("1-4:5 4-8:3", "overlaps"),
        ("4-1:5", "ends before it begins"),
        ("1-4:-1", "is no range"),
        ("1-4", "is no range"),
        ("all:3", "is no range"),
        ([[1, 4]], "FIRST-LAST:K"),
        ([[1, 4, 2.5]], "FIRST-LAST:K"),
        ("1-4:6", "above k"),
        ("1-4:999", "outside"),
    ],
)
def test_ranges_that_vllm_would_refuse_or_cap_are_refused_with_the_reason(
    ranges: object, reason: str
) -> None:
    assert reason in refusal(method="eagle3", model="/d", k=5, k_by_batch_size=ranges)


RANGE = st.tuples(st.integers(-1, 12), st.integers(-1, 12), st.integers(-1, 6)).map(list)


@given(ranges=st.lists(RANGE, min_size=1, max_size=4))
def test_the_ranges_taken_are_those_that_vllm_takes_and_mean_the_same(
    ranges: list[list[int]],
) -> None:
    """Held against vLLM's own functions, which need nothing but Python."""
    theirs = runpy.run_path(str(vllm_source("v1", "spec_decode", "dynamic", "utils.py")))
    try:
        lookup = theirs["build_dynamic_sd_schedule_lookup"](ranges, 16, 4)
    except ValueError:
        with pytest.raises(ValueError, match=r".+"):
            schedule_words(ranges)
        return
    words = schedule_words(ranges)
    assert isinstance(words, tuple)
    assert schedule_words(list(words)) == words
    assert [list(one) for one in ranges_of(words)] == sorted(ranges)
    assert [draft_tokens_at(words, size, 4) for size in range(1, 17)] == lookup[1:]


def test_drafters_whose_code_holds_k_fixed_have_no_schedule() -> None:
    for method in ("suffix", "medusa", "ngram_gpu"):
        assert "k_by_batch_size" in refusal(method=method, model="/d", k_by_batch_size="1-4:1")


# --- verification -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "either synthetic_acceptance_length or"),
        (
            {"synthetic_acceptance_length": 2, "synthetic_acceptance_rates": [0.5, 0.5, 0.5]},
            "one of them only",
        ),
        ({"synthetic_acceptance_rates": [0.5, 0.4]}, "has 2 values, and k is 3"),
        ({"synthetic_acceptance_rates": [0.5, 0.6, 0.1]}, "never rise"),
        ({"synthetic_acceptance_rates": [1.5, 0.6, 0.1]}, "between 0 and 1"),
        ({"synthetic_acceptance_rates": [float("nan"), 0.6, 0.1]}, "between 0 and 1"),
        ({"synthetic_acceptance_length": 4.5}, "above K+1 (4)"),
        ({"synthetic_acceptance_length": 0.5}, "greater than or equal to 1"),
    ],
)
def test_forced_acceptance_must_be_one_schedule_that_k_allows(
    settings: dict[str, Any], reason: str
) -> None:
    forced = {"method": "ngram", "k": 3, "rejection_sample_method": "synthetic", **settings}
    assert reason in refusal(**forced)


@pytest.mark.parametrize("method", [None, "standard", "block"])
def test_forced_acceptance_is_refused_beside_honest_verification(method: str | None) -> None:
    settings = {} if method is None else {"rejection_sample_method": method}
    reason = refusal(method="ngram", synthetic_acceptance_length=2, **settings)
    assert "needs rejection_sample_method to be synthetic" in reason


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {
                "method": "eagle3",
                "enable_adaptive_verification": True,
                "use_local_argmax_reduction": True,
            },
            "never makes",
        ),
        (
            {
                "method": "eagle",
                "draft_sample_method": "probabilistic",
                "use_local_argmax_reduction": True,
            },
            "must be greedy",
        ),
        (
            {
                "method": "draft_model",
                "use_heterogeneous_vocab": True,
                "draft_sample_method": "probabilistic",
            },
            "needs draft_sample_method to be greedy",
        ),
        (
            {
                "method": "draft_model",
                "use_heterogeneous_vocab": True,
                "enable_adaptive_verification": True,
            },
            "needs V2",
        ),
        (
            {"method": "dspark", "dspark_draft_topk": 4, "draft_tensor_parallel_size": 2},
            "draft_tensor_parallel_size to be 1",
        ),
    ],
)
def test_settings_that_exclude_each_other_are_refused(
    settings: dict[str, Any], reason: str
) -> None:
    assert reason in refusal(model="/d", **settings)


def test_dspark_may_estimate_without_logits_since_its_head_tells_confidence() -> None:
    profile(
        method="dspark", model="/d", enable_adaptive_verification=True,
        use_local_argmax_reduction=True,
    )  # fmt: skip


def test_dspark_in_the_targets_checkpoint_needs_k() -> None:
    assert "k is needed" in refusal(method="dspark")
    assert profile(method="dspark", k=5).drafter.draft_tokens == 5


@pytest.mark.parametrize("text", ["Proposer", "a/b.Class", "a..b", ".a.b", "a.b-c", ""])
def test_a_class_of_your_own_is_named_with_its_module(text: str) -> None:
    refusal(method="custom", proposer=text)


def test_a_rule_over_several_settings_is_told_at_one_of_them_in_the_form() -> None:
    table = {"target": {"model": "m"}, "drafter": {"method": "ngram", "k": 3}}
    wrong = with_value(table, "drafter.rejection_sample_method", "synthetic")
    assert list(validated(wrong)) == ["drafter.rejection_sample_method"]  # type: ignore[arg-type]
    wrong = with_value(table, "drafter.k_by_batch_size", ["1-4:9"])
    assert list(validated(wrong)) == ["drafter.k_by_batch_size"]  # type: ignore[arg-type]
    wrong = {"target": {"model": "m"}, "drafter": {"method": "dspark"}}
    assert list(validated(wrong)) == ["drafter.k"]  # type: ignore[arg-type]


def test_a_schedule_and_rates_can_be_typed_into_the_form() -> None:
    table = {"target": {"model": "m"}, "drafter": {"method": "ngram", "k": 3}}
    found = {row.name: row for row in rows(table) if row.section == "drafter"}
    assert parse(found["k_by_batch_size"], "1-4:3 5-9:1").error is None
    assert "is no range" in str(parse(found["k_by_batch_size"], "1-4").error)
    assert parse(found["synthetic_acceptance_rates"], "0.9 0.5 0.1").error is None
    assert parse(found["synthetic_acceptance_rates"], "0.9 half").error is not None
    for dotted, text in (
        ("k_by_batch_size", "1-4:3 5-9:1"),
        ("rejection_sample_method", "synthetic"),
        ("synthetic_acceptance_rates", "0.9 0.5 0.1"),
    ):
        value = parse(found[dotted], text).value
        table = with_value(table, f"drafter.{dotted}", value)
    typed = validated(table)
    assert isinstance(typed, Profile)
    config = typed.drafter.speculative_config()
    assert config is not None
    assert config["synthetic_acceptance_rates"] == [0.9, 0.5, 0.1]


# --- names ------------------------------------------------------------------------------------------


def test_the_deprecated_names_are_vllms() -> None:
    tree = ast.parse(vllm_source("config", "speculative.py").read_text(encoding="utf-8"))
    (declared,) = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MTPModelTypes"
    ]
    assert isinstance(declared, ast.Subscript)
    assert set(ast.literal_eval(declared.slice)) - {"mtp"} == DEPRECATED_MTP


@pytest.mark.parametrize("written", sorted(DEPRECATED_MTP) + sorted(OTHER_NAMES))
def test_another_name_is_read_as_the_methods_own_and_noted(written: str) -> None:
    method = canonical(written)
    assert method in METHODS
    extra = {"model": "/d"} if method in ("p_eagle", "eagle", "eagle3", "dflash2") else {}
    if method == "custom":
        extra = {"proposer": "a.B"}
    read = profile(method=written, **extra)
    assert read.drafter.method == method
    assert read.drafter.written_as == written
    note = name_note(written)
    assert note is not None
    assert note in build_command(read, FACTS).notes
    own = profile(method=method, **extra)
    assert read.drafter.speculative_config() == own.drafter.speculative_config()
    assert build_command(own, FACTS).notes == ()


@pytest.mark.parametrize("written", sorted(NO_DRAFTERS))
def test_a_word_that_launches_no_drafter_is_refused_with_the_reason(
    written: str, tmp_path: Path
) -> None:
    file = tmp_path / "p.toml"
    file.write_text(f'[target]\nmodel = "/m"\n[drafter]\nmethod = "{written}"\n')
    with pytest.raises(ConfigurationError) as refused:
        read_profile(file)
    assert NO_DRAFTERS[written] in refused.value.message
    assert "line 3" in refused.value.message


def test_the_form_shows_the_settings_of_a_method_under_another_name() -> None:
    table = {"target": {"model": "m"}, "drafter": {"method": "deepseek_mtp"}}
    assert "drafter.index_share_for_mtp_iteration" in {row.dotted for row in rows(table)}


@pytest.mark.parametrize(
    ("drafter", "taken"),
    [
        ({"method": "draft_model", "model": "/runs/EAGLE3-try/draft"}, "eagle3"),
        ({"method": "pard", "model": "/runs/dflash/x"}, "dflash"),
        ({"method": "medusa", "model": "/runs/eagle-old/medusa"}, "eagle"),
        ({"method": "mtp", "model": "/runs/dspark"}, "dspark"),
        ({"method": "draft_model", "model": "/runs/draft"}, None),
        ({"method": "eagle", "model": "/runs/eagle3"}, None),
        ({"method": "p_eagle", "model": "/runs/dflash"}, None),
        ({"method": "ngram"}, None),
        ({"method": "custom", "proposer": "eagle3.Mine"}, None),
    ],
)
def test_a_word_in_a_path_that_replaces_the_method_is_told(
    drafter: dict[str, Any], taken: str | None
) -> None:
    notes = build_command(profile(**drafter), FACTS).notes
    assert notes == () if taken is None else f"finds {taken} in the path" in notes[0]


def test_vllm_still_reads_methods_from_paths() -> None:
    """The branch that replaces a given method; where it is gone, the note can go."""
    source = vllm_source("config", "speculative.py").read_text(encoding="utf-8")
    assert 'if self.method in ("eagle", "eagle3", "dflash", "dspark"):' in source
    for word in ("eagle-", "eagle3", "dflash", "dspark"):
        assert f'"{word}" in self.draft_model_config.model.lower()' in source


# --- files and variants -----------------------------------------------------------------------------


OLD_FILE = """schema_version = 1
[target]
model = "/m"
[drafter]
"""


@pytest.mark.parametrize(
    "old",
    [
        'method = "ngram"\nk = 4\nprompt_lookup_min = 2\nprompt_lookup_max = 4\n',
        'method = "suffix"\nk = 8\nsuffix_decoding_min_token_prob = 0.2\n',
        'method = "draft_model"\nmodel = "/d"\nk = 3\ndraft_tensor_parallel_size = 1\n',
        'method = "eagle3"\nmodel = "/d"\nk = 3\ndraft_tensor_parallel_size = 1\n',
        'method = "p_eagle"\nmodel = "/d"\nk = 3\n',
        'method = "dflash"\nmodel = "/d"\nk = 15\n',
        'method = "dspark"\nk = 7\n',
        'method = "mtp"\nk = 1\n',
        'method = "none"\n',
    ],
)
def test_a_profile_written_before_these_settings_reads_as_it_did(old: str, tmp_path: Path) -> None:
    file = tmp_path / "old.toml"
    file.write_text(OLD_FILE + old)
    read = read_profile(file)
    settings = read.drafter.model_dump(exclude_unset=True)
    assert "".join(f"{name} = " for name in settings) == "".join(
        f"{line.split(' = ')[0]} = " for line in old.splitlines()
    )


def test_everything_that_can_be_set_survives_a_file(tmp_path: Path) -> None:
    before = profile(
        method="eagle3",
        model="/d",
        k=3,
        k_by_batch_size="1-4:3 5-9:1",
        rejection_sample_method="synthetic",
        synthetic_acceptance_rates=[0.9, 0.5, 0.1],
        kv_cache_dtype="fp8",
        disable_eagle_block_drop=True,
    )
    file = tmp_path / "unnamed.toml"
    file.write_text(profile_text(before))
    assert read_profile(file) == before


def test_no_variant_of_a_launch_breaks_a_rule() -> None:
    """Another K leaves no rates for K positions and no schedule above it behind."""
    start = profile(
        method="ngram",
        k=4,
        rejection_sample_method="synthetic",
        synthetic_acceptance_rates=[0.9, 0.5, 0.1, 0.1],
        k_by_batch_size="1-4:4 5-9:1",
    )
    found = variants(start)
    assert found
    for variant in found:
        assert Profile.model_validate(variant.model_dump()) == variant
    plain = {variant.name: variant for variant in variants(profile(method="ngram", k=4))}
    assert {"unnamed+k2", "unnamed+k3", "unnamed+k5", "unnamed+k8"} <= set(plain)
