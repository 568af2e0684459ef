"""The panel as a person uses it, in a real terminal, with a real vLLM, by keys alone."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pexpect
import pyte
import pytest
from tui.terminal import put_down

CTRL_R = "\x12"
START_S = 300


class Terminal:
    """A pseudo-terminal with the panel in it, and what its screen shows."""

    def __init__(self, newcomer: Any, eventually: Callable[..., Any]) -> None:
        self.screen = pyte.Screen(120, 40)
        self._stream = pyte.ByteStream(self.screen)
        self._eventually = eventually
        self.child = pexpect.spawn(
            sys.executable,
            ["-m", "specpanel.app"],
            env={**newcomer.environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            dimensions=(40, 120),
            timeout=30,
        )

    def read(self) -> None:
        with contextlib.suppress(pexpect.TIMEOUT, pexpect.EOF):
            self._stream.feed(self.child.read_nonblocking(1 << 16, timeout=0.1))

    @property
    def top(self) -> str:
        return self.screen.display[0]

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    def until(self, shown: Callable[[], bool], seconds: float, what: str) -> None:
        def look() -> bool:
            self.read()
            return shown()

        try:
            self._eventually(look, seconds, what)
        except pytest.fail.Exception:
            pytest.fail(f"not within {seconds:g} s: {what}\n{self.text}")

    def press(self, keys: str, shows: str, seconds: float = 20) -> None:
        self.child.send(keys)
        self.until(lambda: shows in self.text, seconds, f"{keys!r} shows {shows!r}")

    def ended(self) -> int | None:
        self.until(lambda: not self.child.isalive(), 60, "the panel has ended")
        status: int | None = self.child.exitstatus
        return status


@pytest.fixture
def terminals(newcomer: Any, eventually: Callable[..., Any]) -> Iterator[Callable[[], Terminal]]:
    opened: list[Terminal] = []

    def open_one() -> Terminal:
        opened.append(Terminal(newcomer, eventually))
        return opened[-1]

    yield open_one
    for terminal in opened:
        put_down(terminal.child)


@pytest.fixture
def flight(newcomer: Any, port: str) -> str:
    """A profile of the user's own, so that the panel offers it first."""
    made = newcomer.run(
        *("profile", "new", "a-flight", "--from", "demo-ngram", "--set", f"engine.port={port}"),
        *("--set", "traffic.max_tokens=32", "--set", "traffic.warmup=1"),
    )
    assert made.code == 0, made.err
    return "a-flight"


def test_launch_switch_leave_adopt_and_stop_by_keys_alone(
    newcomer: Any, terminals: Callable[[], Terminal], flight: str
) -> None:
    panel = terminals()
    panel.until(lambda: flight in panel.text, 30, "the Launch screen offers the profile")
    panel.press(CTRL_R, "starting", 60)
    panel.until(lambda: "serving" in panel.top, START_S, "the server serves")
    panel.press("2", "lifetime")
    panel.until(lambda: "ngram" in panel.top, 10, "the top bar names the drafter")

    panel.press("s", "a variant of this one")
    panel.child.send("none")
    panel.until(
        lambda: f"{flight}+none" in panel.text, 20, "the variant without a drafter is found"
    )
    panel.press("\r", "drafter.method", 30)
    panel.child.send("\r")
    panel.until(lambda: "⇄" in panel.top, 60, "the new server starts beside the old one")
    panel.until(
        lambda: "serving" in panel.top and "⇄" not in panel.top and "ngram" not in panel.top,
        START_S,
        "the plain server has taken over",
    )
    panel.child.send("S")
    panel.until(lambda: "⇄" in panel.top, 60, "the way back begins")
    panel.until(
        lambda: "serving" in panel.top and "⇄" not in panel.top and "ngram" in panel.top,
        START_S,
        "the n-gram server is back",
    )

    panel.press("6", "startup complete")
    panel.press("q", "Leave it running")
    panel.child.send("l")
    assert panel.ended() == 0
    left = [json.loads(line) for line in newcomer.run("ps", "--json").out.splitlines()]
    assert [server["drafter"] for server in left] == ["ngram"]

    again = terminals()
    again.until(lambda: "serving" in again.top, 60, "the panel adopts the server that runs")
    again.press("x", "Stop")
    again.child.send("y")
    again.until(lambda: "stopped" in again.top or "no server" in again.top, 60, "it is stopped")
    assert newcomer.run("ps", "--json").out == ""
    again.child.send("q")
    assert again.ended() == 0
