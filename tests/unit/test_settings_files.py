"""Profiles on disk: every kind of broken file has its sentence, and none hides another."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from specpanel.core.errors import ConfigurationError, ExitCode
from specpanel.core.settings.files import (
    PRESETS,
    catalogue,
    find_profile,
    profile_text,
    read_profile,
    write_profile,
)
from specpanel.core.settings.overrides import Overrides
from specpanel.core.settings.paths import profiles_folder
from specpanel.core.settings.profile import Profile

GOOD = '[target]\nmodel = "/m"\n'


def written(folder: Path, content: str | bytes, name: str = "mine") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.toml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(path: Path, overrides: Overrides | None = None) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        read_profile(path, overrides)
    assert caught.value.exit_code == ExitCode.USAGE
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("preset", sorted(PRESETS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_preset_is_a_profile_with_a_description(preset: Path) -> None:
    profile = read_profile(preset)
    assert profile.name == preset.stem
    assert profile.description


def test_the_presets_are_those_that_were_promised() -> None:
    demos = {"demo-ngram", "demo-suffix", "demo-draft-model", "demo-plain"}
    gpu = {"qwen3-8b-eagle3", "qwen3-8b-dflash", "deepseek-v3.2-mtp"}
    assert demos | gpu <= {path.stem for path in PRESETS.glob("*.toml")}


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ('[target]\nmodel = "/m"\n[engine]\nport = 70000\n', 4, "engine.port: should be less than"),
        ('[target]\nmodel = "/m"\n[engine]\nport = "x"\n', 4, "should be a valid integer"),
        ('[target]\nmodel = "/m"\n\n[engine]\nprt = 1\n', 5, "there is no such setting"),
        ('[target]\nmodel = ""\n', 2, "target.model: String should have at least 1 character"),
        ('engine.port = 0\n[target]\nmodel = "/m"\n', 1, "greater than or equal to 1"),
        (f'{GOOD}[drafter]\nmethod = "ngran"\n', 3, "'ngran' is no drafter"),
        (f"{GOOD}[drafter]\nk = 3\n", 3, "the drafter has no method"),
        (f'{GOOD}[drafter]\nmethod = "ngram"\nk = 0\n', 5, "should be greater than 0 (it is 0)"),
        (f'{GOOD}[drafter]\nmethod = "ngram"\nk = "three"\n', 5, "(it is 'three')"),
        (f'{GOOD}[drafter]\nmethod = "eagle3"\n', 3, "drafter.model is missing"),
        (f'{GOOD}[drafter]\nmethod = "ngram"\nmodel = "/d"\n', 5, "drafter ngram has no model"),
        (
            f'{GOOD}[drafter]\nmethod = "ngram"\nprompt_lookup_min = 5\nprompt_lookup_max = 4\n',
            3,
            "prompt_lookup_min (5) is above prompt_lookup_max (4)",
        ),
        (f"[tarffic]\nrequests = 1\n{GOOD}", 1, "tarffic: there is no such setting"),
        (f"[tarffic.more]\nrequests = 1\n{GOOD}", 1, "tarffic: there is no such setting"),
        (f"tarffic.requests = 1\n{GOOD}", 1, "tarffic: there is no such setting"),
        (f"schema_version = 2\nnew = 1\n{GOOD}", 1, "this file needs a newer specpanel"),
        (f"name = 'other'\n{GOOD}", 1, "name is 'other', but the file is called 'mine'"),
        (f"engine = 3\n{GOOD}", 1, "engine: should be a table of settings (it is 3)"),
        (f"drafter = 'ngram'\n{GOOD}", 1, "drafter: should be a table of settings"),
        (f"{GOOD}[engine.environment]\nOMP = 1\n", 4, "engine.environment.OMP: should be a valid"),
        (f'{GOOD}[engine.environment]\n"A B" = "1"\n', 3, "'A B' cannot be the name of an env"),
        (f"{GOOD}[engine]\narguments = 'a \"'\n", 4, "No closing quotation"),
        (f'description = "a\u2028b\u0085c"\n{GOOD}[engine]\nport = 0\n', 5, "engine.port"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_told_with_file_line_and_reason(
    content: str, line: int, reason: str, tmp_path: Path
) -> None:
    path = written(tmp_path, content)
    message = refusal(path).message
    assert message.startswith(f"{path}, line {line}: ")
    assert reason in message


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[target\n", "is not TOML: Expected ']' at the end of a table declaration (at line 1"),
        ('[target]\nmodel = "/m"\nmodel = "/n"\n', "Cannot overwrite a value (at line 3"),
        ("{'target': 1}", "is not TOML"),
        (b"\xff\xfe[target]", "is not a text in UTF-8"),
        (b"#" * ((1 << 20) + 1), "is too large for a profile (1048577 bytes)"),
        ("a = " + "[" * 20_000, "cannot be read: it is nested too deeply"),
        ("a = " + "1" * 5000, "cannot be read: Exceeds the limit"),
        ("", "target is missing"),
        (b"\0", "is not TOML"),
    ],
    ids=["table", "twice", "json", "utf-16", "large", "deep", "digits", "empty", "nul"],
)
def test_a_file_that_is_no_profile_is_told_with_its_path(
    content: str | bytes, reason: str, tmp_path: Path
) -> None:
    path = written(tmp_path, content)
    message = refusal(path).message
    assert message.startswith(str(path))
    assert reason in message


def test_what_cannot_be_opened_is_told(tmp_path: Path) -> None:
    folder, loop, pipe = (tmp_path / f"{name}.toml" for name in ("folder", "loop", "pipe"))
    folder.mkdir()
    loop.symlink_to(loop)
    os.mkfifo(pipe)
    assert "folder.toml is not a file" in refusal(folder).message
    assert "loop.toml cannot be read: " in refusal(loop).message
    assert "pipe.toml is not a file" in refusal(pipe).message
    assert "there is no profile at" in refusal(tmp_path / "none.toml").message


def test_an_empty_file_is_told_how_to_name_a_model(tmp_path: Path) -> None:
    assert "--model FOLDER" in refusal(written(tmp_path, "")).fix


def test_a_file_name_that_cannot_be_a_profiles_name_is_told(tmp_path: Path) -> None:
    error = refusal(written(tmp_path, GOOD, "my profile"))
    assert "'my profile' cannot be the name of a profile" in error.message
    assert "Call the file by letters" in error.fix


def test_a_mark_at_the_beginning_and_foreign_line_ends_are_no_fault(tmp_path: Path) -> None:
    text = "\ufeff" + GOOD.replace("\n", "\r\n")
    assert read_profile(written(tmp_path, text)).target.model == "/m"


def test_more_faults_than_one_are_counted(tmp_path: Path) -> None:
    path = written(tmp_path, f"{GOOD}[engine]\nport = 0\nhost = ''\nmax_num_seqs = 0\n")
    assert refusal(path).message.endswith("(and 2 more)")


def test_values_of_variables_and_arguments_are_never_told(tmp_path: Path) -> None:
    number = written(tmp_path, f"{GOOD}[engine.environment]\nHF_TOKEN = 12345\n")
    text = written(tmp_path, f"{GOOD}[engine]\narguments = '--api-key s3cret \"'\n", "text")
    assert "12345" not in refusal(number).message
    assert "s3cret" not in refusal(text).message


def test_a_huge_value_is_cut(tmp_path: Path) -> None:
    assert len(refusal(written(tmp_path, f'{GOOD}dtype = "{"x" * 9999}"\n')).message) < 400


@pytest.mark.parametrize(
    ("values", "sources", "message", "fix"),
    [
        ({"engine.port": 0}, {"engine.port": "--port"}, "--port: should be greater", ""),
        ({"drafter.k": "x"}, {"drafter.k": "SPECPANEL_K"}, "SPECPANEL_K: the drafter none has", ""),
        ({"drafter.method": "mtq"}, {"drafter.method": "--drafter"}, "--drafter: 'mtq'", "mtp"),
        (
            {"drafter.method": "eagle3"},
            {"drafter.method": "--drafter"},
            "--drafter: drafter.model is missing",
            "--draft-model FOLDER",
        ),
    ],
)
def test_a_fault_of_a_flag_or_variable_is_told_as_such(
    values: dict[str, Any], sources: dict[str, str], message: str, fix: str, tmp_path: Path
) -> None:
    path = written(tmp_path, f'{GOOD}[drafter]\nmethod = "none"\n')
    error = refusal(path, Overrides(values, sources))
    assert error.message.startswith(message)
    assert str(path) not in error.message
    assert fix in error.fix


def test_k_without_a_drafter_is_told_as_the_flags_fault(tmp_path: Path) -> None:
    error = refusal(written(tmp_path, GOOD), Overrides({"drafter.k": 3}, {"drafter.k": "--k"}))
    assert error.message == "--k: the drafter has no method"


def test_one_broken_file_hides_no_other() -> None:
    folder = profiles_folder()
    written(folder, "[target", "broken")
    written(folder, "a = " + "[" * 20_000, "deep")
    written(folder, GOOD, "good")
    os.mkfifo(folder / "pipe.toml")
    found = {file.name: file for file in catalogue()}
    assert {"broken", "deep", "good", "pipe", "demo-ngram"} <= set(found)
    assert [name for name, file in found.items() if file.error] == ["broken", "deep", "pipe"]
    assert all((file.profile is None) == (file.error is not None) for file in found.values())


def test_a_file_of_yours_hides_the_preset_of_that_name() -> None:
    mine = written(profiles_folder(), GOOD, "demo-ngram")
    found = {file.name: file for file in catalogue()}
    assert found["demo-ngram"].origin == "yours"
    assert find_profile("demo-ngram") == mine
    assert [file.name for file in catalogue()].count("demo-ngram") == 1


def test_a_profile_is_found_by_path_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "ü b", GOOD)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_profile(str(path)) == path
    assert find_profile("~/ü b/mine.toml") == path


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("demo-ngrm", "Did you mean demo-ngram"),
        ("zzz", "specpanel profile list shows all"),
        ("", "specpanel profile list"),
        ("x" * 300, "specpanel profile list"),
        ("/nowhere/x.toml", "specpanel profile list"),
        ("~nobody-of-that-name/x.toml", "specpanel profile list"),
        ("/" + "x" * 300 + ".toml", "specpanel profile list"),
    ],
    ids=["near", "far", "empty", "long", "path", "home", "long path"],
)
def test_a_profile_that_is_not_there_is_told_with_what_is(name: str, fix: str) -> None:
    with pytest.raises(ConfigurationError, match="there is no profile") as caught:
        find_profile(name)
    assert fix in caught.value.fix


# --- writing ----------------------------------------------------------------------------------------

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
SOME = TEXT.filter(bool)
COUNT = st.integers(1, 4096)
SECONDS = st.floats(0.001, 1e6)
MODELS = st.fixed_dictionaries({"model": SOME}, optional={"k": st.integers(1, 128)})
SPLIT = st.fixed_dictionaries({}, optional={"draft_tensor_parallel_size": COUNT})


def method(name: str, settings: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[Any]:
    return settings.map(lambda found: {"method": name, **found})


NGRAM = st.fixed_dictionaries(
    {"k": st.integers(1, 128)},
    optional={"prompt_lookup_min": st.just(1), "prompt_lookup_max": COUNT.filter(lambda n: n > 1)},
)
SUFFIX = st.fixed_dictionaries(
    {},
    optional={
        "k": st.integers(1, 128),
        "suffix_decoding_max_tree_depth": COUNT,
        "suffix_decoding_max_spec_factor": st.floats(0, 10),
        "suffix_decoding_min_token_prob": st.floats(0, 1),
    },
)
DRAFTERS = st.one_of(
    st.just({"method": "none"}),
    method("ngram", NGRAM),
    method("ngram_gpu", NGRAM),
    method("suffix", SUFFIX),
    method("dflash", MODELS),
    method("dspark", st.one_of(MODELS, st.just({"k": 5}))),
    method("custom", st.just({"proposer": "mine.Proposer", "k_by_batch_size": ["1-4:3", "5-9:0"]})),
    method("mtp", st.one_of(MODELS, st.just({}))),
    *(
        method(name, st.builds(lambda one, two: one | two, MODELS, SPLIT))
        for name in ("draft_model", "pard", "eagle", "eagle3", "p_eagle", "dflash2", "medusa")
    ),
)
PROFILES = st.fixed_dictionaries(
    {
        "name": NAMES,
        "target": st.fixed_dictionaries(
            {"model": SOME},
            optional={"served_name": SOME, "dtype": st.just("float32"), "quantization": TEXT},
        ),
        "drafter": DRAFTERS,
    },
    optional={
        "description": TEXT,
        "engine": st.fixed_dictionaries(
            {},
            optional={
                "port": st.integers(1, 65535),
                "gpu_memory_utilization": st.floats(0.01, 1),
                "enforce_eager": st.booleans(),
                "per_request_metrics": st.booleans(),
                "environment": st.dictionaries(
                    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,9}", fullmatch=True), TEXT, max_size=3
                ),
                "arguments": st.lists(TEXT, max_size=4),
                "stop_timeout_s": SECONDS,
            },
        ),
        "mla": st.fixed_dictionaries({}, optional={"force_sparse_mqa": st.booleans()}),
        "traffic": st.fixed_dictionaries(
            {},
            optional={
                "duration_s": SECONDS,
                "kinds": st.lists(SOME, max_size=3),
                "prompts": st.just("/a b/ü.jsonl"),
                "temperature": st.floats(0, 2),
            },
        ),
    },
).map(Profile.model_validate)


@settings(deadline=None)
@given(profile=PROFILES)
def test_what_is_written_is_read_as_the_same_profile(
    profile: Profile, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / f"{profile.name}.toml"
    path.write_text(profile_text(profile), encoding="utf-8")
    try:
        assert read_profile(path) == profile
    finally:
        path.unlink()


def test_a_written_profile_says_its_format_first_and_leaves_defaults_out() -> None:
    profile = Profile.model_validate({"target": {"model": "/m"}})
    assert profile_text(profile).splitlines()[0] == "schema_version = 1"
    assert "engine" not in profile_text(profile)
    assert 'method = "none"' in profile_text(profile)


def named(name: str, model: str = "/m") -> Profile:
    return Profile.model_validate({"name": name, "target": {"model": model}})


def test_a_profile_is_written_where_it_is_found_again() -> None:
    path = write_profile(named("new"))
    assert find_profile("new") == path
    assert read_profile(path) == named("new")


def test_a_profile_is_replaced_only_when_asked() -> None:
    path = write_profile(named("new"))
    with pytest.raises(ConfigurationError, match="there is already a profile called new") as caught:
        write_profile(named("new", "/other"))
    assert "--force" in caught.value.fix
    assert read_profile(path).target.model == "/m"
    write_profile(named("new", "/other"), overwrite=True)
    assert read_profile(path).target.model == "/other"


def test_a_profile_that_cannot_be_written_leaves_the_old_one_whole() -> None:
    path = write_profile(named("new"))
    traffic = named("new").traffic.model_copy(update={"prompts": Path("/\udcff")})
    no_text = named("new").model_copy(update={"traffic": traffic})
    with pytest.raises(ConfigurationError, match=r"new\.toml cannot be written"):
        write_profile(no_text, overwrite=True)
    assert read_profile(path) == named("new")
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_that_cannot_be_made_is_told() -> None:
    profiles_folder().parent.mkdir(parents=True)
    profiles_folder().write_text("in the way", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"new\.toml cannot be written: .+"):
        write_profile(named("new"))


FULL = """
import resource, signal, sys
from specpanel.core.errors import ConfigurationError
from specpanel.core.settings.files import write_profile
from specpanel.core.settings.profile import Profile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (40, 40))  # as a disk that is full after 40 bytes
profile = Profile.model_validate({"name": "new", "target": {"model": "/other"}})
try:
    write_profile(profile, overwrite=True)
except ConfigurationError as error:
    sys.stdout.write(str(error))
"""


def test_a_disk_that_fills_up_leaves_the_old_profile_and_nothing_else() -> None:
    path = write_profile(named("new"))
    done = subprocess.run(
        [sys.executable, "-c", FULL], capture_output=True, text=True, check=True, timeout=60
    )
    assert "new.toml cannot be written: File too large" in done.stdout
    assert read_profile(path) == named("new")
    assert list(path.parent.iterdir()) == [path]


def test_settings_may_be_left_empty(tmp_path: Path) -> None:
    engine = {"arguments": [], "environment": {}}
    table = {"target": {"model": "/m"}, "engine": engine, "traffic": {"kinds": []}}
    profile = read_profile(written(tmp_path, tomli_w.dumps(table)))
    assert (profile.engine.arguments, profile.engine.environment) == ((), {})
    assert profile.traffic.kinds == ()
