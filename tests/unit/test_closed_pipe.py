"""Who has read enough of a help text or a list makes no error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RECORDING = str(
    next((Path(__file__).parents[2] / "docs" / "recordings").glob("demo-ngram-*.ndjson"))
)
SCRIPT = Path(sys.executable).with_name("specpanel")


def test_a_closed_standard_output_is_no_error() -> None:
    ended = subprocess.run(
        ["sh", "-c", '"$0" --version >&-', SCRIPT], stderr=subprocess.PIPE, text=True, timeout=120
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_full_disk_under_standard_output_is_told() -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [SCRIPT, "profile", "list"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120
        )
    assert ended.returncode == 1
    assert ended.stderr.startswith("specpanel: standard output cannot be written: No space left")


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--help"),
        ("profile", "list"),
        ("--version",),
        ("runs", "compare", RECORDING, RECORDING),  # not the experiment of that name
    ],
    ids=["help", "list", "version", "runs compare"],
)
def test_a_closed_pipe_ends_a_text_without_an_error(arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [SCRIPT, *arguments], stdout=writing, stderr=subprocess.PIPE, text=True, timeout=120
        )
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, "")
