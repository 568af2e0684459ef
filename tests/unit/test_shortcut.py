"""Words that only open the panel need no parser; all others are the parser's, and both say the same."""

import json
import subprocess
import sys
from functools import partial

import pytest

from specpanel.app.cli.shortcut import shortcut

URL = "http://127.0.0.1:9"
# Runs the command as the console script does, without a terminal, and names the modules it left behind.
COMMAND = """
import json, sys
sys.argv = ["specpanel", *sys.argv[1:]]
from specpanel.app.cli import main
try:
    main()
    status = 0
except SystemExit as end:
    status = end.code
print(json.dumps([status, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def _said(*arguments: str) -> tuple[int, str, set[str]]:
    ran = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    status, modules = json.loads(ran.stdout)
    return status, ran.stderr, set(modules)


@pytest.mark.parametrize(
    "words",
    [
        ["watch", URL, "--tui"],
        ["watch", "--tui", URL, "--no-mouse"],
        ["watch", "--replay", __file__, "--speed", "2.5", "--tui"],
        ["watch", "--tui", "--replay", __file__],
        ["--no-mouse"],
        [],
    ],
    ids=lambda words: " ".join(words).replace(__file__, "FILE"),
)
def test_words_that_only_open_the_panel_are_understood_without_the_parser(
    words: list[str],
) -> None:
    assert isinstance(shortcut(words), partial)


@pytest.mark.parametrize(
    "words",
    [
        ["watch", "--tui", "--replay", "last"],  # a run's name, not a file
        ["--help"],
        ["watch"],
        ["watch", URL],
        ["watch", "--tui"],
        ["watch", URL, "--tui", "--tui"],
        ["watch", URL, "--tui", "--help"],
        ["watch", URL, "--tui", "--record", "a"],
        ["watch", URL, URL, "--tui"],
        ["watch", "--replay", "a", "--tui", "--speed", "-1"],
        ["watch", "--replay", "a", "--tui", "--speed", "nan"],
        ["watch", "--replay", "a", "--tui", "--speed"],
        ["watch", "--replay", "--tui"],
        ["watch", "--replay=a", "--tui"],
        ["run", "demo"],
        ["--no-mouse", "watch", URL, "--tui"],
    ],
    ids=" ".join,
)
def test_all_other_words_are_left_to_the_parser(words: list[str]) -> None:
    assert shortcut(words) is None


def test_a_shell_that_asks_for_completions_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_SPECPANEL_COMPLETE", "complete_bash")
    assert shortcut([]) is None


def test_both_ways_say_the_same_and_the_short_one_loads_no_parser() -> None:
    status, told, modules = _said("watch", URL, "--tui")
    parsed_status, parsed_told, parsed_modules = _said("--no-mouse", "watch", URL, "--tui")
    assert (status, told) == (parsed_status, parsed_told)
    assert status == 2
    assert "needs a terminal" in told
    assert "typer" in parsed_modules
    assert modules & {"typer", "click", "pydantic"} == set()
