"""A server is a session of its own, and its end leaves nothing behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from fakes.engine.workbench import Workbench, command_for, lives, new_record, wait_for

from specpanel.core.engine import identity, registry
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.engine.process import (
    ServerProcess,
    is_running,
    running_servers,
    start_server,
    stop_server,
)
from specpanel.core.errors import LaunchError

READY = "Application startup complete"


def started(
    bench: Workbench, facts: InterpreterFacts, *, until: str = READY, **script: object
) -> ServerProcess:
    """A server whose log holds ``until``."""
    profile = bench.profile()
    record = new_record(profile, bench.folder)
    server = start_server(record, command_for(profile, facts), bench.environment(script))
    wait_for(lambda: until in record.log.read_text(), f"{until!r} in the log")
    return server


def test_server_leads_a_session_of_its_own(bench: Workbench, fake_facts: InterpreterFacts) -> None:
    server = started(bench, fake_facts)
    pid = server.record.pid
    assert pid is not None
    assert os.getsid(pid) == pid != os.getsid(0)
    assert identity.start_mark(pid) == server.record.start_mark


def test_f07_server_has_a_closed_stdin_and_writes_its_log_itself(
    bench: Workbench, fake_facts: InterpreterFacts
) -> None:
    server = started(bench, fake_facts)
    descriptors = Path(f"/proc/{server.record.pid}/fd")
    assert os.readlink(descriptors / "0") == os.devnull
    assert os.readlink(descriptors / "1") == os.readlink(descriptors / "2")
    assert os.readlink(descriptors / "1") == str(server.record.log)


def test_stop_ends_the_whole_session_and_forgets_the_state_file(
    bench: Workbench, fake_facts: InterpreterFacts
) -> None:
    server = started(bench, fake_facts, worker="child")
    assert len(identity.members(server.record.id, server.record.pid, server.record.start_mark)) == 3
    report = server.stop(20.0)
    assert report.was_running
    assert not report.killed
    assert server.exit_code == 0
    bench.assert_nothing_left()


def test_server_that_ignores_sigterm_is_killed_with_all_its_processes(
    bench: Workbench, fake_facts: InterpreterFacts
) -> None:
    server = started(bench, fake_facts, hang_on_sigterm=True, worker="child")
    report = server.stop(0.3)
    assert report.killed
    assert report.took_s >= 0.3
    assert server.exit_code == -signal.SIGKILL
    assert "SIGTERM is ignored" in server.record.log.read_text()
    bench.assert_nothing_left()


def test_hurry_cuts_the_wait_before_the_kill_short(
    bench: Workbench, fake_facts: InterpreterFacts
) -> None:
    server = started(bench, fake_facts, hang_on_sigterm=True)
    hurry = threading.Event()
    stopping = threading.Thread(target=server.stop, args=(600.0, hurry))
    stopping.start()
    wait_for(lambda: "SIGTERM is ignored" in server.record.log.read_text(), "the first SIGTERM")
    hurry.set()
    stopping.join(15.0)
    assert not stopping.is_alive()
    bench.assert_nothing_left()


def test_d01_worker_in_a_session_of_its_own_is_found_by_the_id_and_ended(
    bench: Workbench, fake_facts: InterpreterFacts
) -> None:
    server = started(bench, fake_facts, worker="own session")
    strays = [pid for pid in bench.left() if os.getsid(pid) != server.record.pid]
    assert len(strays) == 1
    report = server.stop(0.3)
    assert report.killed, "the worker ignores SIGTERM"
    bench.assert_nothing_left()


def test_engine_that_outlives_its_server_still_counts_as_running_and_is_ended(
    bench: Workbench, fake_facts: InterpreterFacts
) -> None:
    server = started(bench, fake_facts, engine_outlives=True)
    assert server.record.pid is not None
    os.kill(server.record.pid, signal.SIGKILL)
    wait_for(lambda: server.exit_code == -signal.SIGKILL, "the API server's end")
    assert is_running(server.record)
    assert server.stop(5.0).was_running
    bench.assert_nothing_left()


def test_program_that_cannot_be_run_leaves_no_state_file(
    bench: Workbench, fake_facts: InterpreterFacts
) -> None:
    profile = bench.profile()
    command = command_for(profile, fake_facts)
    missing = type(command)((str(bench.folder / "missing"), *command.argv[1:]), {})
    with pytest.raises(LaunchError, match="could not be started"):
        start_server(new_record(profile, bench.folder), missing, bench.environment())
    assert registry.records() == []


def bystander(bench: Workbench) -> subprocess.Popen[bytes]:
    """A process that has nothing to do with any server; it leads a session of its own, like one."""
    return subprocess.Popen(
        [sys.executable, "-S", "-c", "import signal; signal.pause()"],
        env=bench.environment(),
        start_new_session=True,
    )


@pytest.mark.parametrize("mark", ["another boot/12345", None], ids=["another start", "no start"])
def test_d01_s15_process_that_got_the_pid_of_a_dead_server_is_never_touched(
    bench: Workbench, mark: str | None
) -> None:
    other = bystander(bench)
    record = new_record(bench.profile(), bench.folder, pid=other.pid, start_mark=mark)
    registry.save(record)
    assert identity.members(record.id, record.pid, record.start_mark) == []
    report = stop_server(record, 0.2)
    assert not report.was_running
    assert other.poll() is None
    assert lives(other.pid)
    assert registry.records() == []
    other.kill()
    other.wait()


def test_stop_of_a_dead_server_says_so_and_leaves_the_reused_pid_alone(bench: Workbench) -> None:
    other = bystander(bench)
    registry.save(
        new_record(bench.profile(), bench.folder, pid=other.pid, start_mark="another boot/1")
    )
    panel = bench.start("stop", "bench")
    assert panel.end() == 3
    assert "no running server is called bench" in panel.err
    assert other.poll() is None
    other.kill()
    other.wait()


def test_server_whose_starter_died_before_it_wrote_the_pid_is_found_and_ended(
    bench: Workbench, fake_facts: InterpreterFacts
) -> None:
    gone = subprocess.Popen([sys.executable, "-S", "-c", ""])
    gone.wait()
    profile = bench.profile()
    record = new_record(profile, bench.folder, owner_pid=gone.pid)
    registry.save(record)  # the first write; the second one never came
    command = command_for(profile, fake_facts)
    with record.log.open("wb") as log:
        orphan = subprocess.Popen(
            command.argv,
            env={**bench.environment(), **command.environment, identity.ID_VARIABLE: record.id},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    wait_for(lambda: READY in record.log.read_text(), "the start")
    [found] = running_servers()
    assert found.pid == orphan.pid
    assert stop_server(found, 5.0, reap=orphan.poll).was_running
    bench.assert_nothing_left()


def test_record_of_a_start_that_never_happened_goes_once_its_starter_is_gone(
    bench: Workbench,
) -> None:
    starter = bystander(bench)
    registry.save(new_record(bench.profile(), bench.folder, owner_pid=starter.pid))
    assert running_servers() == []
    assert len(registry.records()) == 1, "its starter lives and may be about to write the pid"
    starter.kill()
    starter.wait()
    assert running_servers() == []
    assert registry.records() == []


def test_dead_server_is_forgotten_by_the_next_look(
    bench: Workbench, fake_facts: InterpreterFacts
) -> None:
    server = started(bench, fake_facts)
    assert [record.id for record in running_servers()] == [server.record.id]
    for pid in bench.left():
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: server.exit_code is not None and not bench.left(), "its end")
    assert running_servers() == []
    bench.assert_nothing_left()


def test_zombie_counts_as_gone(bench: Workbench) -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", ""], env=bench.environment())
    mark = identity.start_mark(child.pid)
    wait_for(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE, "a zombie")
    assert identity.start_mark(child.pid) == mark is not None
    assert not identity.leader_lives(child.pid, mark)
    child.wait()


def test_log_goes_on_when_the_panel_is_killed(bench: Workbench) -> None:
    script = {"chatter_after": "weights", "chatter_s": 60.0}
    panel = bench.run(script=script)
    panel.until("the loading", lambda p: p.said("phase", '"weights"'))
    log = Path(panel.of_kind("launched")[0]["log"])
    panel.process.kill()
    panel.process.wait()
    size = log.stat().st_size
    wait_for(lambda: log.stat().st_size > size + 200, "a log that grows")
    began = time.monotonic()
    assert bench.start("stop", "--all", "--timeout", "5").end() == 0
    assert time.monotonic() - began < 40  # the log would go on for longer
    bench.assert_nothing_left()
