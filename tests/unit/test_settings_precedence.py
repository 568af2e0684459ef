"""Flag before SPECPANEL_ variable before file before default, for everything that can be set."""

from pathlib import Path
from typing import Any

import pytest
import tomli_w

from specpanel.app.cli.options import FLAGS, resolved_profile
from specpanel.core.errors import ConfigurationError
from specpanel.core.settings.nearest import setting_names
from specpanel.core.settings.overrides import (
    SHORT_NAMES,
    Overrides,
    from_assignments,
    from_environment,
    overlaid,
)
from specpanel.core.settings.profile import Profile
from specpanel.core.settings.resolve import resolve

DRAFT_MODEL = {"method": "draft_model", "model": "/default"}
# Short name → the drafter of the file, then the default and what file, variable and flag say.
VALUES: dict[str, tuple[dict[str, Any], Any, Any, str, Any]] = {
    "MODEL": ({"method": "none"}, None, "/file", "/variable", "/flag"),
    "DRAFTER": ({}, "none", "ngram", "suffix", "ngram_gpu"),
    "DRAFT_MODEL": ({"method": "draft_model"}, None, "/file", "/variable", "/flag"),
    "K": (DRAFT_MODEL, 3, 5, "6", 7),
    "HOST": ({"method": "none"}, "127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"),
    "PORT": ({"method": "none"}, 8000, 8291, "8292", 8293),
    "PYTHON": ({"method": "none"}, None, "/file", "/variable", "/flag"),
    "CONCURRENCY": ({"method": "none"}, 1, 2, "3", 4),
    "REQUESTS": ({"method": "none"}, None, 2, "3", 4),
    "DURATION": ({"method": "none"}, None, 2.5, "3.5", 4.5),
    "RATE": ({"method": "none"}, None, 2.5, "3.5", 4.5),
}
FLAG_OF = {dotted: flag for flag, dotted in FLAGS.items()}


def write(folder: Path, table: dict[str, Any]) -> str:
    path = folder / "mine.toml"
    path.write_text(tomli_w.dumps(table), encoding="utf-8")
    return str(path)


def value(profile: Profile, dotted: str) -> object:
    section, name = dotted.split(".")
    return getattr(getattr(profile, section), name)


def table_with(drafter: dict[str, Any], dotted: str, setting: object) -> dict[str, Any]:
    table: dict[str, Any] = {"target": {"model": "/default"}, "drafter": dict(drafter)}
    section, name = dotted.split(".")
    table.setdefault(section, {})[name] = setting
    return table


def test_every_short_name_is_tried_here() -> None:
    assert set(VALUES) == set(SHORT_NAMES)


@pytest.mark.parametrize("short", VALUES)
def test_flag_beats_variable_beats_file(
    short: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter, _, in_file, in_variable, in_flag = VALUES[short]
    dotted = SHORT_NAMES[short]
    name = write(tmp_path, table_with(drafter, dotted, in_file))
    assert value(resolved_profile(name, {}, [], ()), dotted) == in_file

    monkeypatch.setenv(f"SPECPANEL_{short}", in_variable)
    assert value(resolved_profile(name, {}, [], ()), dotted) == type(in_file)(in_variable)

    if dotted in FLAG_OF:
        flags, assignments = {FLAG_OF[dotted]: in_flag}, [f"{dotted}={in_variable}"]
    else:
        flags, assignments = {}, [f"{dotted}={in_flag}"]
    assert value(resolved_profile(name, flags, assignments, ()), dotted) == in_flag


@pytest.mark.parametrize("short", [short for short in VALUES if VALUES[short][1] is not None])
def test_what_nobody_says_is_default(short: str, tmp_path: Path) -> None:
    drafter, default, *_ = VALUES[short]
    table: dict[str, Any] = {"target": {"model": "/default"}}
    name = write(tmp_path, table | ({"drafter": drafter} if drafter else {}))
    assert value(resolved_profile(name, {}, [], ()), SHORT_NAMES[short]) == default


def test_a_nested_variable_beats_the_file_and_loses_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = write(tmp_path, {"target": {"model": "/m"}, "mla": {"block_size": 16}})
    monkeypatch.setenv("SPECPANEL_MLA__BLOCK_SIZE", "32")
    assert resolved_profile(name, {}, [], ()).mla.block_size == 32
    assert resolved_profile(name, {}, ["mla.block_size=64"], ()).mla.block_size == 64


def test_an_empty_variable_counts_as_unset() -> None:
    assert from_environment({"SPECPANEL_PORT": "", "SPECPANEL_K": "3"}).values == {"drafter.k": "3"}


def test_variables_of_others_and_those_that_are_no_settings_are_passed_over() -> None:
    others = {"PORT": "1", "SPECPANEL_SERVER_ID": "x", "XSPECPANEL_PORT": "1"}
    look = {"SPECPANEL_THEME": "paper", "SPECPANEL_CHARTS": "ascii"}
    assert from_environment(others | look) == Overrides()


def test_a_misspelt_variable_is_refused_with_the_right_one() -> None:
    with pytest.raises(ConfigurationError, match="SPECPANEL_PROT is no setting") as caught:
        from_environment({"SPECPANEL_PROT": "8000"})
    assert "Did you mean SPECPANEL_PORT?" in caught.value.fix


@pytest.mark.parametrize(
    ("assignment", "reason", "fix"),
    [
        ("engine.port", "there is no = in it", "--set engine.port=8001"),
        ("engine.prt=1", "there is no such setting", "Did you mean engine.port?"),
        ("target=x", "there is no such setting", "target.model"),
        ("drafter.num_speculative_tokens=3", "there is no such setting", "Did you mean drafter.k?"),
        ("engine.tp=2", "there is no such setting", "engine.tensor_parallel_size"),
        (
            "engine.max_model_len=9",
            "there is no such setting",
            "Did you mean target.max_model_len?",
        ),
        ("=x", "there is no such setting", "Write it like --set engine.port=8001"),
        ("engine.nothing=1", "there is no such setting", "Known in engine: python, "),
    ],
)
def test_an_assignment_that_says_nothing_is_refused(assignment: str, reason: str, fix: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as caught:
        from_assignments([assignment])
    assert fix in caught.value.fix


def test_an_assignment_keeps_further_equals_signs() -> None:
    assert from_assignments(["target.model=a=b"]).values == {"target.model": "a=b"}


def test_every_setting_of_the_profile_can_be_named() -> None:
    names = setting_names()
    assert len(names) == len(set(names))
    assert {"target.model", "engine.arguments", "drafter.prompt_lookup_min"} <= set(names)
    assert {"mla.force_sparse_mqa", "traffic.kinds"} <= set(names)


def test_lists_are_split_as_in_a_shell(tmp_path: Path) -> None:
    name = write(tmp_path, {"target": {"model": "/m"}})
    profile = resolved_profile(
        name, {}, ["traffic.kinds=chat code", "engine.arguments=--a 'b c' \"d\""], ()
    )
    assert profile.traffic.kinds == ("chat", "code")
    assert profile.engine.arguments == ("--a", "b c", "d")


def test_what_follows_two_dashes_goes_behind_the_profiles_own_arguments(tmp_path: Path) -> None:
    engine = {"arguments": ["--seed", "1"]}
    name = write(tmp_path, {"target": {"model": "/m"}, "engine": engine})
    profile = resolved_profile(name, {}, [], ("--seed", "2"))
    assert profile.engine.arguments == ("--seed", "1", "--seed", "2")


def test_another_drafter_drops_the_settings_of_the_files_own() -> None:
    file = {"drafter": {"method": "ngram", "k": 4, "prompt_lookup_min": 3}}
    other = overlaid(file, {"drafter.method": "mtp"})
    same = overlaid(file, {"drafter.method": "ngram", "drafter.k": 2})
    assert other["drafter"] == {"method": "mtp"}
    assert same["drafter"] == {"method": "ngram", "k": 2, "prompt_lookup_min": 3}
    assert file["drafter"] == {"method": "ngram", "k": 4, "prompt_lookup_min": 3}


def test_the_same_drafter_under_an_old_name_keeps_its_settings() -> None:
    file = {"drafter": {"method": "deepseek_mtp", "k": 2}}
    assert overlaid(file, {"drafter.method": "mtp"})["drafter"] == {"method": "mtp", "k": 2}


def test_later_layers_keep_what_the_upper_one_leaves_unsaid() -> None:
    upper = Overrides({"engine.port": 1}, {"engine.port": "--port"})
    lower = Overrides({"engine.port": 2, "drafter.k": 3}, {"engine.port": "V", "drafter.k": "W"})
    assert upper.over(lower) == Overrides(
        {"engine.port": 1, "drafter.k": 3}, {"engine.port": "--port", "drafter.k": "W"}
    )


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Qwen/Qwen3-8B", "Qwen3-8B"),
        ("/models/été", "t"),
        ("demo:smollm2", "demo-smollm2"),
        ("/", "model"),
        ("_private", "private"),
        ("x" * 90, "x" * 64),
        ("模型", "model"),
    ],
)
def test_a_model_alone_is_a_profile_with_a_name_of_its_own(model: str, name: str) -> None:
    profile = resolve(None, Overrides({"target.model": model}, {"target.model": "--model"}))
    assert (profile.name, profile.target.model) == (name, model)
    assert profile.drafter.method == "none"


def test_without_profile_and_model_there_is_nothing_to_run() -> None:
    with pytest.raises(ConfigurationError, match="no profile and no model was given") as caught:
        resolve(None, Overrides())
    assert "--model FOLDER" in caught.value.fix
