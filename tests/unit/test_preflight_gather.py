"""Preflight's look at the machine: real sockets, real folders, real memory."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from specpanel.core.preflight.gather import gather, model_state, port_state
from specpanel.core.preflight.surroundings import DeviceState
from specpanel.core.settings.profile import Profile

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576}


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model.safetensors").write_bytes(b"x" * 100)
    return tmp_path


def test_a_taken_port_is_told_with_its_owner_and_the_next_free_one(listener):
    port = listener.getsockname()[1]
    state = port_state("127.0.0.1", port)
    assert not state.free
    assert state.problem is None
    assert state.owner_pid == os.getpid()
    assert state.owner_name
    assert state.next_free is not None
    assert state.next_free > port
    assert port_state("127.0.0.1", state.next_free).free


def test_a_port_is_free_again_once_its_owner_is_gone():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert port_state("127.0.0.1", port).free


def test_looking_at_a_port_leaves_nobody_listening():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert port_state("127.0.0.1", port).free
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=2)


def test_an_address_that_is_not_this_machines_says_why():
    state = port_state("192.0.2.1", 8231)  # reserved for documentation
    assert not state.free
    assert state.problem


def test_a_folder_is_read_with_its_weights(checkpoint):
    state = model_state(str(checkpoint))
    assert state.kind == "folder"
    assert state.config is not None
    assert state.config.hidden_size == 576
    assert state.weight_bytes == 100


def test_a_folder_comes_before_a_hub_id_of_the_same_name(checkpoint, monkeypatch):
    monkeypatch.chdir(checkpoint.parent.parent)
    name = f"{checkpoint.parent.name}/{checkpoint.name}"
    assert model_state(name).kind == "folder"
    assert model_state("nobody/no-such-model").kind == "hub"


@pytest.mark.parametrize("name", ["/nowhere/at/all", "./x", "~/no-such-folder-here"])
def test_a_missing_folder_is_unusable_with_a_reason(name):
    state = model_state(name)
    assert state.kind == "unusable"
    assert state.problem is not None
    assert "does not exist" in state.problem
    assert state.fix


def test_everything_is_gathered_for_a_profile(checkpoint, listener):
    profile = Profile.model_validate(
        {
            "target": {"model": str(checkpoint)},
            "engine": {"platform": "cpu", "port": listener.getsockname()[1]},
            "drafter": {"method": "eagle3", "model": "/nowhere"},
        }
    )
    around = gather(profile, None, disk_folder=checkpoint / "not" / "yet")
    assert around.platform == "cpu"
    assert around.target.kind == "folder"
    assert around.drafter is not None
    assert around.drafter.kind == "unusable"
    assert not around.port.free
    assert around.free_memory_bytes is not None
    assert around.free_memory_bytes > 0
    assert around.free_disk_bytes is not None
    assert around.free_disk_bytes > 0
    assert around.cpu_nodes is not None
    assert around.cpu_nodes >= 1
    assert around.cores is not None
    assert around.cores >= 1


def test_on_a_gpu_the_hosts_memory_is_not_taken_for_the_devices(checkpoint):
    profile = Profile.model_validate(
        {"target": {"model": str(checkpoint)}, "engine": {"platform": "cuda"}}
    )
    assert gather(profile, None).free_memory_bytes is None
    devices = [DeviceState("a", 10, 7), DeviceState("b", 10, 5), DeviceState("c")]
    around = gather(profile, None, devices=devices)
    assert around.free_memory_bytes == 5
    assert around.devices == tuple(devices)
    assert gather(profile, None).drafter is None


def test_a_model_of_the_hub_is_judged_by_the_copy_in_the_cache(tmp_path: Path) -> None:
    snapshot = tmp_path / "hub" / "models--lab--tiny" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(CONFIG))
    launch = Profile.model_validate(
        {
            "target": {"model": "lab/tiny"},
            "engine": {"environment": {"HF_HOME": str(tmp_path)}, "platform": "cpu"},
        }
    )
    target = gather(launch, None).target
    assert (target.kind, target.weights) == ("hub", None)
    assert target.config is not None
    assert target.config.hidden_size == 576
    (snapshot / "config.json").write_text("not JSON")
    assert gather(launch, None).target.config is None
