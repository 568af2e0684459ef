"""Who has read enough of a help text or a list makes no error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(sys.executable).with_name("specpanel")


@pytest.mark.parametrize("arguments", [("run", "--help"), ("profile", "list")], ids=" ".join)
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
