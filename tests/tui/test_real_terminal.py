"""The panel in a real pseudo-terminal, seen through a terminal emulator."""

import json
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pyte
import pytest

pytestmark = pytest.mark.terminal

PROGRAM = Path(__file__).with_name("panel_program.py")
DEADLINE_S = 20.0


class Terminal:
    """A program on a pseudo-terminal and the screen it has drawn."""

    def __init__(
        self, *arguments: str, columns: int = 120, rows: int = 40, **environment: str
    ) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        env = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
        self.raw = b""
        self.child = pexpect.spawn(
            sys.executable,
            [str(PROGRAM), *arguments],
            dimensions=(rows, columns),
            env={**env, **environment},
            timeout=DEADLINE_S,
        )

    def text(self) -> str:
        return "\n".join(self.screen.display)

    def read(self) -> bool:
        """Takes what has been written; ``False`` at the end."""
        try:
            data = self.child.read_nonblocking(65536, timeout=0.1)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.raw += data
        # The emulator prints the parameters of private sequences that it does not know.
        self._stream.feed(re.sub(rb"\x1b\[[<>=][0-9;]*[a-zA-Z]", b"", data))
        return True

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            alive = self.read()
            if not condition() and (not alive or time.monotonic() > deadline):
                pytest.fail(f"never came true; the screen:\n{self.text()}")

    def sees(self, text: str) -> None:
        self.until(lambda: text in self.text())

    def ends(self) -> int:
        deadline = time.monotonic() + DEADLINE_S
        while self.read():
            assert time.monotonic() < deadline, self.text()
        self.child.close()
        return int(
            self.child.exitstatus if self.child.exitstatus is not None else -self.child.signalstatus
        )


@pytest.fixture
def terminals() -> Iterator[Callable[..., Terminal]]:
    started: list[Terminal] = []

    def start(*arguments: str, **options: object) -> Terminal:
        terminal = Terminal(*arguments, **options)  # type: ignore[arg-type]
        started.append(terminal)
        return terminal

    yield start
    for terminal in started:
        terminal.child.close(force=True)


def test_it_paints_follows_keys_and_a_resize_and_gives_the_screen_back(
    terminals: Callable[..., Terminal], tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    terminal = terminals("--history", "320", "--every", "0.3", "--report", str(report))
    terminal.sees("Acceptance length")
    terminal.sees("127.0.0.1:8250")
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
    assert json.loads(report.read_text()) == {"choices": ["cleaned up"], "code": 0}


def test_a_server_of_ours_is_asked_about_and_can_be_left_running(
    terminals: Callable[..., Terminal], tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    terminal = terminals("--history", "20", "--owns", "--report", str(report))
    terminal.sees("serving")
    terminal.child.send("\x03")
    terminal.sees("leave it running")
    terminal.child.send("\r")
    assert terminal.ends() == 0
    assert json.loads(report.read_text())["choices"] == ["leave", "cleaned up"]


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_panel_cleanly_and_leaves_the_server(
    terminals: Callable[..., Terminal], tmp_path: Path, number: signal.Signals
) -> None:
    report = tmp_path / "report.json"
    terminal = terminals("--history", "20", "--owns", "--report", str(report))
    terminal.sees("serving")
    terminal.child.kill(number)
    assert terminal.ends() == 130
    assert json.loads(report.read_text())["choices"] == ["leave", "cleaned up"]


def test_a_terminal_that_has_gone_ends_the_panel_and_leaves_the_server(
    terminals: Callable[..., Terminal], tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    terminal = terminals("--history", "20", "--owns", "--report", str(report))
    terminal.sees("serving")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, terminal.child.child_fd)  # closes our end of the terminal, keeps the number
    os.close(nowhere)
    deadline = time.monotonic() + DEADLINE_S
    while terminal.child.isalive() and time.monotonic() < deadline:
        select.select([], [], [], 0.05)
    assert not terminal.child.isalive(), "the panel still runs"
    assert json.loads(report.read_text())["choices"] == ["leave", "cleaned up"]


def test_no_colour_is_obeyed(terminals: Callable[..., Terminal]) -> None:
    terminal = terminals("--history", "60", NO_COLOR="1")
    terminal.sees("Acceptance length")
    for red, green, blue in re.findall(rb"[34]8;2;(\d+);(\d+);(\d+)[;m]", terminal.raw):
        assert red == green == blue


def test_an_old_locale_gets_ascii(terminals: Callable[..., Terminal]) -> None:
    terminal = terminals("--history", "60", LC_ALL="en_US.ISO-8859-1")
    terminal.sees("Acceptance length")
    terminal.sees("filling the feed")
    assert terminal.text().isascii()
    terminal.child.send("?")
    terminal.sees("esc closes this")
    assert terminal.text().isascii()


def test_a_dumb_terminal_gets_one_sentence_and_status_2(terminals: Callable[..., Terminal]) -> None:
    terminal = terminals(TERM="dumb")
    assert terminal.ends() == 2
    assert b"specpanel watch" in terminal.raw
    assert b"\x1b[?1049h" not in terminal.raw
