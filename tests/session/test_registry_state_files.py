"""State files: found again, whatever else lies in their folder."""

import json

import pytest
from fakes.engine.workbench import Workbench, command_for, new_record, wait_for

from specpanel.core.engine import registry
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.engine.process import running_servers, start_server, stop_server
from specpanel.core.errors import NotRunningError
from specpanel.core.settings.paths import servers_folder

UNREADABLE = {
    "broken.json": "{not json",
    "empty.json": "",
    "list.json": "[]",
    "newer.json": json.dumps({"schema_version": 99, "servers": {"a": 1}}),
    "older.json": json.dumps({"schema_version": 0, "pid": 1}),
    "binary.json": "\x00\x01\x02",
}


def test_files_of_other_versions_and_broken_ones_hide_no_server(
    bench: Workbench, fake_facts: InterpreterFacts
) -> None:
    profile = bench.profile()
    record = new_record(profile, bench.folder)
    server = start_server(record, command_for(profile, fake_facts), bench.environment())
    for name, text in UNREADABLE.items():
        (servers_folder() / name).write_text(text)
    (servers_folder() / "folder.json").mkdir()
    wait_for(lambda: "startup complete" in record.log.read_text(), "the start")
    assert [found.id for found in running_servers()] == [record.id]
    panel = bench.start("ps", "--json")
    assert panel.end() == 0
    assert [line["id"] for line in panel.events] == [record.id]
    assert stop_server(server.record, 5.0, reap=lambda: server.exit_code).was_running
    left = {path.name for path in servers_folder().iterdir()}
    assert left == {*UNREADABLE, "folder.json"}, "what is not ours to read is not ours to remove"


def test_file_of_a_newer_version_that_can_be_read_is_still_a_server(bench: Workbench) -> None:
    record = new_record(bench.profile(), bench.folder, schema_version=2)
    registry.save(record)
    path = registry.record_path(record)
    path.write_text(json.dumps({**json.loads(path.read_text()), "colour": "blue"}))
    assert [found.id for found in registry.records()] == [record.id]


def test_state_file_is_never_seen_half_written(bench: Workbench) -> None:
    record = new_record(bench.profile(), bench.folder)
    registry.save(record)
    registry.save(record.model_copy(update={"pid": 7, "start_mark": "x"}))
    assert [path.name for path in servers_folder().iterdir()] == [f"{record.id}.json"]
    assert registry.records()[0].pid == 7


@pytest.mark.parametrize("asked", ["bench", "4242", "8270", ":8270", "abcd"])
def test_server_is_found_by_name_pid_port_or_the_head_of_its_id(
    bench: Workbench, asked: str
) -> None:
    more = {"id": "abcdef0123456789", "pid": 4242, "start_mark": "m", "port": 8270}
    record = new_record(bench.profile(), bench.folder, **more)
    assert registry.find(asked, [record]) is record


def test_unknown_name_is_an_error_that_names_what_runs(bench: Workbench) -> None:
    record = new_record(bench.profile(), bench.folder)
    with pytest.raises(NotRunningError, match=r"no running server is called other.*bench"):
        registry.find("other", [record])


def test_second_server_of_a_profile_gets_a_name_of_its_own() -> None:
    assert registry.free_name("a", set()) == "a"
    assert registry.free_name("a", {"a", "a-2"}) == "a-3"


def test_stop_of_an_unknown_name_exits_3(bench: Workbench) -> None:
    panel = bench.start("stop", "nobody")
    assert panel.end() == 3
    assert "no running server is called nobody" in panel.err
