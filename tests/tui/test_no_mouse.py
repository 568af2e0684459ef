"""``--no-mouse``: the terminal keeps its mouse, so that text can be selected and copied."""

import os
import sys
from pathlib import Path

import pexpect
import pytest
from tui.synthetic import synthetic_frames
from tui.terminal import put_down

from specpanel.core.monitor.recording import frame_line

pytestmark = pytest.mark.terminal

SCRIPT = Path(sys.executable).with_name("specpanel")
MOUSE_ON = b"\x1b[?1000h"


@pytest.mark.parametrize("flags", [[], ["--no-mouse"]])
def test_the_mouse_is_taken_unless_it_is_refused(tmp_path: Path, flags: list[str]) -> None:
    recording = tmp_path / "recording.ndjson"
    frames = synthetic_frames(20)
    recording.write_text("".join(frame_line(frame) + "\n" for frame in frames))
    child = pexpect.spawn(
        str(SCRIPT),
        ["watch", "--replay", str(recording), "--speed", "0", "--tui", *flags],
        dimensions=(40, 120),
        env={**os.environ, "TERM": "xterm-256color"},
        timeout=60,
    )
    try:
        child.expect_exact(b"Acceptance length")
        assert (MOUSE_ON in child.before) is not bool(flags)
        child.send(b"q")
        child.expect(pexpect.EOF)
    finally:
        put_down(child)
