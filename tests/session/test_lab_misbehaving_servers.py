"""``compare`` and ``breakeven`` over servers that break off, fall silent, or speak to the terminal."""

from pathlib import Path

import pytest
from fakes.engine.workbench import FAKE_PYTHON, Workbench
from ports import free_port

PROFILE = """schema_version = 1
[target]
model = "{model}"
max_model_len = 1024
[engine]
python = "{python}"
port = {port}
cpu_kv_cache_gib = 1
stop_timeout_s = 1
[drafter]
{drafter}
[traffic]
max_tokens = 12
warmup = 1
timeout_s = 2
"""
DRAFTERS = {"plain": 'method = "none"', "ngram": 'method = "ngram"\nk = 4'}
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m\r\x9b31m"
FAULTS = {
    "half a character": ("requests failed", "ended early"),
    "hang": ("requests failed", "timeout after 2 s"),
    "500": ("requests failed", "500"),
}


def files(bench: Workbench) -> list[Path]:
    port = free_port()
    found = []
    for name, drafter in DRAFTERS.items():
        found.append(bench.folder / f"{name}.toml")
        text = PROFILE.format(model=bench.model, python=FAKE_PYTHON, port=port, drafter=drafter)
        found[-1].write_text(text)
    return found


@pytest.mark.parametrize(
    ("command", "fault"),
    [("compare", fault) for fault in FAULTS] + [("breakeven", "500")],
)
def test_an_experiment_over_a_failing_server_says_why_and_leaves_nothing(
    bench: Workbench, command: str, fault: str
) -> None:
    plain, ngram = files(bench)
    given = (plain, ngram, "--block", "4") if command == "compare" else (ngram, "--loads", "1")
    script = {
        "requests": fault,
        "requests_good": 3,
        "step_s": 0.01,
        "metrics": "endless",
        "flood": "binary",
        "error": ESCAPES,
    }
    panel = bench.start(command, *given, script=script)
    assert panel.end() == 1
    for words in FAULTS[fault]:
        assert words in panel.err
    for shown in (panel.out, panel.err):
        text = shown.replace("\n", "")
        assert text.isprintable(), [letter for letter in text if not letter.isprintable()]
    bench.assert_nothing_left()
