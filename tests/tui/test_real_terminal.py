"""The panel in a real pseudo-terminal, seen through a terminal emulator."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tui.terminal import Terminal, put_down

pytestmark = pytest.mark.terminal

PROGRAM = Path(__file__).with_name("panel_program.py")


@pytest.fixture
def terminals() -> Iterator[Callable[..., Terminal]]:
    started: list[Terminal] = []

    def start(*arguments: str, **options: object) -> Terminal:
        terminal = Terminal(str(PROGRAM), *arguments, **options)  # type: ignore[arg-type]
        started.append(terminal)
        return terminal

    yield start
    for terminal in started:
        put_down(terminal.child)


def test_it_paints_follows_keys_and_a_resize_and_gives_the_screen_back(
    terminals: Callable[..., Terminal], tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    terminal = terminals("--history", "320", "--every", "0.3", "--report", str(report))
    terminal.sees("Acceptance length")
    terminal.sees("serving :8250")
    terminal.until(lambda: any(0x2800 < ord(char) <= 0x28FF for char in terminal.text()))
    terminal.child.send("z")
    terminal.until(lambda: "Tokens/s" not in terminal.text())
    terminal.child.send("z")
    terminal.sees("Tokens/s")
    terminal.child.send("?")
    terminal.sees("Freeze the picture; sampling goes on")
    terminal.child.send("q")
    terminal.until(lambda: "sampling goes on" not in terminal.text())
    terminal.screen.resize(24, 80)
    terminal.child.setwinsize(24, 80)
    terminal.sees("acc length")
    terminal.child.send("q")
    assert terminal.ends() == 0
    assert b"\x1b[?1049l" in terminal.raw
    assert json.loads(report.read_text()) == {"done": ["cleaned up"], "code": 0}


def test_a_failure_is_shown_and_printed_again_when_the_screen_is_back(
    terminals: Callable[..., Terminal],
) -> None:
    terminal = terminals("--fail")
    terminal.sees("The server [/foo] could not start")
    terminal.child.send("\r")
    terminal.until(lambda: "could not start" not in terminal.text())
    terminal.child.send("q")
    assert terminal.ends() == 1
    after = terminal.raw.rsplit(b"\x1b[?1049l", 1)[1]
    assert b"specpanel: The server [/foo] could not start" in after
    assert b"Free port 8250 [draft]" in after


def test_no_colour_is_obeyed(terminals: Callable[..., Terminal]) -> None:
    terminal = terminals("--history", "60", NO_COLOR="1")
    terminal.sees("Acceptance length")
    for red, green, blue in re.findall(rb"[34]8;2;(\d+);(\d+);(\d+)[;m]", terminal.raw):
        assert red == green == blue


def test_f14_an_old_locale_gets_ascii(terminals: Callable[..., Terminal]) -> None:
    terminal = terminals("--history", "60", LC_ALL="en_US.ISO-8859-1")
    terminal.sees("Acceptance length")
    terminal.sees("filling the feed")
    assert terminal.text().isascii()
    terminal.child.send("?")
    terminal.sees("esc closes")
    assert terminal.text().isascii()


def test_f14_a_dumb_terminal_gets_one_sentence_and_status_2(
    terminals: Callable[..., Terminal],
) -> None:
    terminal = terminals(TERM="dumb")
    assert terminal.ends() == 2
    assert b"specpanel watch" in terminal.raw
    assert b"\x1b[?1049h" not in terminal.raw
