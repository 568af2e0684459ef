"""Real vLLM, started by specpanel itself, shared by the tests that can share it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ports import free_port

from specpanel.core.engine import identity

HERE = Path(__file__).parent
START_DEADLINE_S = 300.0
FAULT = "fault"  # the property of a report that names what its test has shown


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder starts a real vLLM, unless it says that it belongs to the faults."""
    for item in items:
        if HERE in item.path.parents and not item.get_closest_marker("faults"):
            item.add_marker(pytest.mark.engine)
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(1200))


@pytest.fixture
def shown(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Note the fault that a test has shown to be survived: ``shown(fault, lost_s=…, said=…)``."""

    def note(fault: str, *, lost_s: float | None = None, said: str = "") -> None:
        lost = "" if lost_s is None else f"{lost_s:.2f} s lost"
        last = said.strip().rpartition("\n")[2]
        record_property(FAULT, f"{fault:<60} {lost:<12} {last}".rstrip())

    return note


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name every fault that was shown to be survived, and what it cost."""
    passed = terminalreporter.getreports("passed")
    faults = [text for one in passed for name, text in one.user_properties if name == FAULT]
    if faults:
        terminalreporter.section("faults that were survived, nothing orphaned")
        for text in faults:
            terminalreporter.write_line(text)


@pytest.fixture(scope="session")
def eventually() -> Callable[..., Any]:
    """Wait for a condition: ``eventually(condition, seconds, what)`` gives its first true value."""

    def wait(condition: Callable[[], Any], seconds: float, what: str) -> Any:
        tick = threading.Event()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if value := condition():
                return value
            tick.wait(0.1)
        return pytest.fail(f"not within {seconds:g} s: {what}")

    return wait


@pytest.fixture
def port() -> str:
    """A port that was free a moment ago."""
    return str(free_port())


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def summary(self) -> dict[str, Any]:
        last = self.lines[-1]
        assert last["kind"] == "summary"
        return last


class Specpanel:
    """The command line as a person has it, with folders of its own."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment

    def start(self, *arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "specpanel.app", *arguments],
            stdin=subprocess.DEVNULL,
            env=self.environment,
            **streams,
        )

    def run(self, *arguments: str, seconds: float = 600.0) -> Finished:
        child = self.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=60)
            pytest.fail(f"{arguments} took longer than {seconds:g} s:\n{err.decode()[-2000:]}")
        return Finished(child.returncode, out.decode(), err.decode())


@pytest.fixture(scope="session")
def specpanel(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Specpanel]:
    """The command line over the real model; at the end nothing of it may still run."""
    home = tmp_path_factory.mktemp("engine_home")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SPECPANEL_")},
        "XDG_CACHE_HOME": str(demo_model.parents[2]),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_DATA_HOME": str(home / "data"),
    }
    panel = Specpanel(environment)
    yield panel
    left = panel.run("ps", "--json")
    panel.run("stop", "--all", "--timeout", "5")
    assert left.out == "", f"servers left behind:\n{left.out}"


@pytest.fixture
def newcomer(specpanel: Specpanel, tmp_path: Path) -> Iterator[Specpanel]:
    """The command line of somebody with neither servers nor profiles nor recordings."""
    environment = {
        **specpanel.environment,
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
    }
    panel = Specpanel(environment)
    yield panel
    panel.run("stop", "--all", "--timeout", "5")


@dataclass(frozen=True)
class Server:
    """A server that specpanel started and left running."""

    name: str
    url: str
    pid: int
    id: str
    run: Finished
    recording: Path


@pytest.fixture(scope="session")
def server(specpanel: Specpanel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One real vLLM with the n-gram drafter for every test that only looks at one."""
    recording = tmp_path_factory.mktemp("recordings") / "run.ndjson"
    port = free_port()
    run = specpanel.run(
        *("run", "demo-ngram", "--port", str(port), "--requests", "4", "--keep-running"),
        *("--json", "--record", str(recording), "--set", "traffic.max_tokens=32"),
        seconds=START_DEADLINE_S,
    )
    assert run.code == 0, run.err
    (found,) = (json.loads(line) for line in specpanel.run("ps", "--json").out.splitlines())
    yield Server(found["name"], found["url"], found["pid"], found["id"], run, recording)
    stopped = specpanel.run("stop", found["name"])
    assert stopped.code == 0, stopped.err
    assert identity.members(found["id"], found["pid"], found["start_mark"]) == []
