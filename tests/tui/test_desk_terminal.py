"""``specpanel`` in a real terminal, over a server of its own: what becomes of it when the panel goes."""

import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.engine.workbench import Workbench
from tui.terminal import DEADLINE_S, Terminal, put_down

from specpanel.core.engine.process import running_servers
from specpanel.core.session.history import past_runs
from specpanel.core.settings.files import write_profile

pytestmark = pytest.mark.terminal


@pytest.fixture
def bench(
    tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Workbench]:
    bench = Workbench(tmp_path / "bench")
    for name, value in bench.environment({"start_s": 0.1}).items():
        monkeypatch.setenv(name, value)
    write_profile(bench.profile(port=8318))
    try:
        yield bench
    finally:
        bench.clear()


@pytest.fixture
def terminal(bench: Workbench) -> Iterator[Terminal]:
    """The panel, with its server up."""
    terminal = Terminal("-m", "specpanel.app", "demo", "--profile", "bench")
    terminal.sees("● serving")
    yield terminal
    put_down(terminal.child)


def test_ctrl_c_asks_and_the_server_can_be_left_found_again_and_stopped(
    terminal: Terminal,
) -> None:
    terminal.child.send("\x03")
    terminal.sees("Leave it running")
    terminal.child.send("\r")
    assert terminal.ends() == 0
    assert [record.name for record in running_servers()] == ["bench"]
    again = Terminal("-m", "specpanel.app")
    again.sees("● serving")
    again.child.send("q")
    again.sees("Stop it, and then leave")
    again.child.send("s")
    assert again.ends() == 0
    assert running_servers() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_f05_a_signal_ends_the_panel_cleanly_and_leaves_the_server(
    terminal: Terminal, number: signal.Signals
) -> None:
    terminal.child.kill(number)
    assert terminal.ends() == 130
    assert b"Traceback" not in terminal.raw
    assert [record.name for record in running_servers()] == ["bench"]
    (run,) = past_runs()
    reasons = {
        signal.SIGTERM: "a signal ended the panel",
        signal.SIGHUP: "the terminal of the panel",
    }
    assert run.ended == "left"
    assert (run.why or "").startswith(reasons[number])


def test_an_interrupt_from_outside_asks_like_ctrl_c(terminal: Terminal) -> None:
    terminal.child.kill(signal.SIGINT)
    terminal.sees("Leave it running")
    terminal.child.send("s")
    assert terminal.ends() == 0
    assert running_servers() == []


def test_f04_a_terminal_that_has_gone_ends_the_panel_and_leaves_the_server(
    terminal: Terminal,
) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, terminal.child.child_fd)  # closes our end of the terminal, keeps the number
    os.close(nowhere)
    deadline = time.monotonic() + DEADLINE_S
    while terminal.child.isalive() and time.monotonic() < deadline:
        select.select([], [], [], 0.05)
    assert not terminal.child.isalive(), "the panel still runs"
    assert [record.name for record in running_servers()] == ["bench"]
