"""The panel in a real terminal over servers that lie: no hang, and no byte of theirs is obeyed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.engine.workbench import Workbench
from tui.terminal import Terminal, put_down

pytestmark = pytest.mark.terminal

# A title, a cleared screen, a colour, a return, the same in the eight-bit form, and a link.
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[41mred\r\x9b2J\x1b]8;;http://evil\x1b\\"
OBEYED = (b"\x1b]0;owned", b"\x1b[41m", b"\xc2\x9b2J", b"\x9b2J", b"\x1b]8;;")
TOLD = {
    "endless": "larger than 32 MiB",
    "drip": "no answer for",
    "500": "answers 500",
    "huge": "● serving",
}


@pytest.fixture
def bench(tmp_path: Path, own_folders: Path) -> Iterator[Workbench]:
    bench = Workbench(tmp_path / "bench")
    try:
        yield bench
    finally:
        bench.clear()


@pytest.mark.parametrize("metrics", TOLD)
def test_f01_a_lying_server_is_told_and_the_panel_answers_and_leaves(
    bench: Workbench, metrics: str
) -> None:
    script = {"metrics": metrics, "name": f"model {ESCAPES}", "error": f"said {ESCAPES}"}
    _, url = bench.serve(script=script)
    panel = Terminal("-m", "specpanel.app", "watch", url, "--tui", columns=160)
    try:
        panel.sees(TOLD[metrics])
        panel.child.send("?")
        panel.sees("esc closes them")
        panel.child.send("\x1b")
        panel.until(lambda: "esc closes them" not in panel.text())
        panel.child.send("q")
        assert panel.ends() == 0
    finally:
        put_down(panel.child)
    assert not [sequence for sequence in OBEYED if sequence in panel.raw]
    assert b"Traceback" not in panel.raw
