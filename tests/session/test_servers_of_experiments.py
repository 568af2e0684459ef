"""A server that an experiment or a training needs is marked, and asked about before it is stopped."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.engine.workbench import new_record

from specpanel.app.cli import main
from specpanel.core.engine.command import Command
from specpanel.core.engine.ownership import command_in, need_of, owner_of
from specpanel.core.engine.process import (
    ServerProcess,
    running_at,
    running_servers,
    start_server,
    stop_server,
)
from specpanel.core.settings.profile import Profile

SLEEPS = Command(("sleep", "600"), {}, ())


@pytest.fixture
def experiment(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A living process that looks like ``specpanel compare``."""
    program = tmp_path / "specpanel"
    program.write_text("import time\ntime.sleep(600)\n")
    process = subprocess.Popen([sys.executable, program, "compare", "a", "b"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def server(
    experiment: "subprocess.Popen[bytes]", own_folders: Path, tmp_path: Path
) -> Iterator[ServerProcess]:
    profile = Profile.model_validate({"name": "measured", "target": {"model": "m"}})
    record = new_record(profile, tmp_path, owner_pid=experiment.pid)
    running = start_server(record, SLEEPS, os.environ)
    yield running
    stop_server(running.record, 5.0, reap=lambda: running.exit_code)


def said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["specpanel", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    out, err = capsys.readouterr()
    return int(left.value.code or 0), out, err


def test_ps_names_who_needs_a_server_and_stop_asks_first(
    server: ServerProcess,
    experiment: "subprocess.Popen[bytes]",
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = f"an experiment (specpanel compare, pid {experiment.pid})"
    assert f"used by {words}" in said(monkeypatch, capsys, "ps")[1]
    assert '"loses_all": true' in said(monkeypatch, capsys, "ps", "--json")[1]

    code, out, err = said(monkeypatch, capsys, "stop", "measured")
    assert (code, out) == (2, "")
    assert f"measured belongs to {words}, which fails without it" in err
    assert "--yes" in err
    assert server.exit_code is None

    code, out, err = said(monkeypatch, capsys, "stop", "measured", "--yes", "--timeout", "7")
    assert code == 0, err
    assert "it gets 7 s to end by itself" in err, "it is said at once what is waited for"
    assert "stopped measured" in out
    assert running_servers() == []


def test_a_server_is_found_however_this_machine_is_called(server: ServerProcess) -> None:
    port = server.record.port
    for host in ("127.0.0.1", "localhost", "[::1]"):
        found = running_at(f"http://{host}:{port}")
        assert found is not None
        assert found.name == "measured"
    assert running_at(f"http://127.0.0.1:{port + 1}") is None
    assert running_at(f"http://example.org:{port}") is None


def test_a_server_whose_starter_is_gone_or_replaced_belongs_to_nobody(
    server: ServerProcess, experiment: "subprocess.Popen[bytes]"
) -> None:
    record = server.record
    assert owner_of(record) is not None
    older = record.model_copy(update={"started_unix": time.time() - 3600})
    assert owner_of(older) is None, "that pid had another process when the server was started"
    experiment.kill()
    experiment.wait()
    assert owner_of(record) is None


def test_the_command_is_read_from_the_words_of_a_process() -> None:
    assert command_in(["/venv/bin/python3", "/venv/bin/specpanel", "train", "mine"]) == "train"
    assert command_in(["python", "-P", "-m", "specpanel.app", "promote", "/x"]) == "promote"
    assert command_in(["/venv/bin/specpanel", "--no-mouse"]) is None
    assert command_in(["python", "-m", "pytest", "specpanel_tests"]) is None
    assert command_in([]) is None


def test_a_sweep_of_another_program_is_an_experiment_that_needs_its_server() -> None:
    words = ["/venv/bin/specpanel", "run", "mine"]
    assert need_of("run", words) == "a run"
    assert need_of("run", [*words, "--with", "guidellm"]) == "an experiment"
    assert need_of("run", [*words, "--with=guidellm"]) == "an experiment"
    assert need_of("watch", words) is None
