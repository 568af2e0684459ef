"""Bad input: one clear sentence, a fix, the right exit status, nothing started and nothing left."""

import os
import sys
import threading
from collections.abc import Iterator
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from fakes.engine.workbench import FAKE_PYTHON, Workbench
from ports import free_port

from specpanel.app.cli import main
from specpanel.core.settings.paths import servers_folder


@pytest.fixture
def specpanel(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator["CommandLine"]:
    """The command line in this process, in a folder of the test's own."""
    for name, value in bench.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(bench.folder)
    yield CommandLine(monkeypatch, capsys)
    assert list(servers_folder().glob("*")) == [], "something wrote a state file"
    bench.assert_nothing_left()


class CommandLine:
    """Runs ``specpanel`` as its entry point does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str | Path) -> tuple[int, str]:
        """Exit status and what stood on standard error."""
        self._monkeypatch.setattr(sys, "argv", ["specpanel", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        captured = self._capsys.readouterr()
        assert "Traceback" not in captured.err + captured.out
        return int(left.value.code or 0), captured.err


RUN = ("run", "--model", "model", "--python", str(FAKE_PYTHON))

# What is typed, the exit status, and what the sentence and its fix must name.
BAD: dict[str, tuple[tuple[str, ...], int, tuple[str, ...]]] = {
    "checkpoint that is not there": (("promote", "/nowhere"), 2, ("/nowhere", "config.json")),
    "result that is not there": (("results", "show", "zzz"), 2, ("zzz", "results list")),
    "unknown method": ((*RUN, "--drafter", "telepathy"), 2, ("telepathy", "ngram")),
    "method almost right": ((*RUN, "--drafter", "egle3"), 2, ("Did you mean eagle3",)),
    "K of 0": ((*RUN, "--drafter", "ngram", "--k", "0"), 2, ("--k", "greater than 0")),
    "K below 0": ((*RUN, "--drafter", "ngram", "--k", "-3"), 2, ("--k", "greater than 0")),
    "K too large": ((*RUN, "--drafter", "ngram", "--k", "1000"), 2, ("--k", "128")),
    "K three": ((*RUN, "--drafter", "ngram", "--k", "three"), 2, ("--k", "valid integer")),
    "K without a drafter": ((*RUN, "--k", "4"), 2, ("--k", "no method", "ngram")),
    "model without config.json": (
        ("run", "--model", "empty", "--python", str(FAKE_PYTHON)),
        2,
        ("config.json", "Hugging Face"),
    ),
    "model whose config is no JSON": (
        ("run", "--model", "./scribble", "--python", str(FAKE_PYTHON)),
        2,
        ("config.json", "not JSON"),
    ),
    "no model at all": (("run",), 2, ("no model", "--model")),
    "port too large": ((*RUN, "--port", "99999"), 2, ("--port", "65535")),
    "port 0": ((*RUN, "--port", "0"), 2, ("--port",)),
    "port http": ((*RUN, "--port", "http"), 2, ("--port", "valid integer")),
    "profile that is not TOML": (
        ("run", "./broken.toml"),
        2,
        ("broken.toml", "not TOML", "line 1"),
    ),
    "profile that is binary": (("run", "./binary.toml"), 2, ("binary.toml", "UTF-8")),
    "profile with a typo": (("run", "./typo.toml"), 2, ("typo.toml", "line 3", "dtype")),
    "profile without a name": (("run", ""), 2, ("called ''", "profile list")),
    "recording without a name": (("watch", "--replay", ""), 2, ("''", "specpanel runs")),
    "chart of nothing named": (("plot", ""), 2, ("''", "specpanel runs")),
    "unknown profile": (("run", "demo-ngrm"), 2, ("demo-ngrm", "demo-ngram")),
    "profile file that is not there": (("run", "./nowhere.toml"), 2, ("nowhere.toml",)),
    "unknown setting": ((*RUN, "--set", "engine.prot=1"), 2, ("engine.prot", "engine.port")),
    "setting without a name": ((*RUN, "--set", "=x"), 2, ("--set engine.port=8001",)),
    "setting without =": ((*RUN, "--set", "engine.port"), 2, ("there is no =",)),
    "unknown flag": ((*RUN, "--prot", "1"), 2, ("--prot",)),
    "unknown command": (("fly",), 2, ("fly",)),
    "baseline without a drafter": ((*RUN, "--baseline"), 2, ("--baseline", "--drafter")),
    "baseline on another's server": (
        ("run", "--attach", "http://127.0.0.1:1", "--baseline"),
        2,
        ("--baseline", "--attach"),
    ),
    "no requests": ((*RUN, "--requests", "0"), 2, ("--requests",)),
    "time backwards": ((*RUN, "--duration", "-1"), 2, ("--duration",)),
    "more requests than can be counted": ((*RUN, "-n", "9" * 30), 2, ("--requests", "1000000000")),
    "time without end": ((*RUN, "--duration", "inf"), 2, ("--duration", "finite")),
    "rate that is no number": ((*RUN, "--rate", "nan"), 2, ("--rate",)),
    "capture into a folder": ((*RUN, "--capture", "."), 1, ("is no file", "traffic.capture")),
    "prompts that are not there": ((*RUN, "--prompts", "none.jsonl"), 2, ("none.jsonl",)),
    "interpreter that is not there": (
        ("run", "--model", "model", "--python", "/no/python"),
        2,
        ("/no/python", "engine.python"),
    ),
    "interpreter that is none": (
        ("run", "--model", "model", "--python", "/bin/false"),
        2,
        ("/bin/false", "engine.python"),
    ),
    "port for vLLM behind --": ((*RUN, "--", "--port", "1"), 2, ("--port", "--")),
    "arguments for nobody": (("ps", "--", "--port"), 2, ("specpanel ps",)),
    "watch without a URL": (("watch",), 2, ("URL", "--replay")),
    "watch with both": (("watch", "http://127.0.0.1:1", "--replay", "x"), 2, ("one of them",)),
    "URL with a bad port": (("watch", "http://127.0.0.1:99999"), 2, ("99999", "65535")),
    "URL that is none": (("watch", "ftp://127.0.0.1"), 2, ("ftp://127.0.0.1",)),
    "recording that is not there": (("watch", "--replay", "none.ndjson"), 2, ("none.ndjson",)),
    "recording that is none": (("watch", "--replay", "broken.toml"), 1, ("broken.toml",)),
    "recording in a folder that is a file": (
        (*RUN, "--record", "broken.toml/x"),
        1,
        ("broken.toml/x", "--record"),
    ),
    "MLA of a model that is not known": (("mla", "explain", "nope"), 2, ("'nope'", "glm-5")),
    "MLA without a GPU": (("mla", "explain", "glm-5"), 2, ("--gpu is missing", "B200")),
    "MLA of a model without it": (("mla", "explain", "model", "--gpu", "B200"), 2, ("llama",)),
    "MLA in too many chunks": (
        ("mla", "explain", "glm-5", "--gpu", "B200", "--prompt-tokens", "9000000", "--chunk", "1"),
        2,
        ("9,000,000", "too many steps"),
    ),
    "panel without a terminal": ((), 2, ("terminal", "specpanel run")),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_sentence(
    specpanel: CommandLine, bench: Workbench, case: str
) -> None:
    (bench.folder / "empty").mkdir()
    (bench.folder / "scribble").mkdir()
    (bench.folder / "scribble" / "config.json").write_text("model, please")
    (bench.folder / "broken.toml").write_text("this = is = no toml\n")
    (bench.folder / "binary.toml").write_bytes(b"\xff\xfe\x00\x01")
    (bench.folder / "typo.toml").write_text('[target]\nmodel = "m"\ndtpye = "auto"\n')
    arguments, code, named = BAD[case]
    got, err = specpanel(*arguments)
    assert got == code, err
    for word in named:
        assert word in err


@pytest.mark.parametrize(
    "arguments", [("watch",), ("run", "--requests", "2", "--attach")], ids=["watch", "attach"]
)
def test_address_where_nothing_answers_is_told(
    specpanel: CommandLine, arguments: tuple[str, ...]
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    code, err = specpanel(*arguments, url)
    assert code == 1
    assert f"nothing answers at {url} (connection refused" in err
    assert "specpanel ps" in err


@pytest.mark.parametrize(
    "arguments", [("watch",), ("run", "--requests", "2", "--attach")], ids=["watch", "attach"]
)
def test_server_that_is_not_vllm_is_told(
    specpanel: CommandLine, bench: Workbench, arguments: tuple[str, ...]
) -> None:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", free_port()), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        code, err = specpanel(*arguments, f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert code == 1
    assert "is not vLLM" in err


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("SPECPANEL_TYPO", "1", "SPECPANEL_TYPO is no setting"),
        ("SPECPANEL_PORT", "99999", "SPECPANEL_PORT"),
        ("SPECPANEL_DRAFTER", "telepathy", "SPECPANEL_DRAFTER"),
        ("SPECPANEL_ENGINE__PROT", "1", "SPECPANEL_ENGINE__PROT"),
    ],
)
def test_variable_that_cannot_be_is_told_by_its_name(
    specpanel: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    named: str,
) -> None:
    monkeypatch.setenv(name, value)
    code, err = specpanel(*RUN)
    assert code == 2
    assert named in err


def test_state_folder_that_cannot_be_is_told_by_its_name(
    specpanel: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("afile").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(Path("afile").absolute()))
    status, said = specpanel(*RUN, "--drafter", "ngram", "--requests", "1", "--no-record")
    assert status == 2
    assert "afile" in said
    assert "XDG_STATE_HOME" in said


def test_environment_without_vllm_is_told_with_what_to_install(
    specpanel: CommandLine, bench: Workbench
) -> None:
    bare = bench.folder / "bare"
    bare.write_text(f'#!/bin/sh\nexec {os.fspath(sys.executable)} -S "$@"\n')
    bare.chmod(0o755)
    code, err = specpanel("run", "--model", "model", "--python", bare, "--port", str(free_port()))
    assert code == 1
    assert f"vLLM is not installed in {bare}" in err


def test_flags_for_vllm_that_it_does_not_know_are_told_in_its_own_words(bench: Workbench) -> None:
    panel = bench.run("--", "--specualtive-tokens", "3")
    assert panel.end() == 1
    assert "--specualtive-tokens" in panel.err
    assert panel.of_kind("launched")[0]["log"] in panel.err
    bench.assert_nothing_left()


def test_everything_that_is_wrong_with_a_profile_is_told_at_once(specpanel: CommandLine) -> None:
    Path("two.toml").write_text('schema_version = 1\n[drafter]\nmethod = "ngrm"\n')
    status, said = specpanel("check", "./two.toml")
    assert status == 2
    assert "target is missing" in said
    assert "Did you mean ngram?" in said
