"""The machine and who can reach it: devices, memory, exposure, folders that are not what they seem."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pace import cheapest_s

from specpanel.core.checkpoints.config import parse_config
from specpanel.core.checkpoints.weights import Weights, read_weights
from specpanel.core.devices.free_memory import DeviceMemory, MemoryOutlook
from specpanel.core.devices.records import Device, DeviceProcess
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.preflight.finding import Finding
from specpanel.core.preflight.gather import gather, model_state
from specpanel.core.preflight.gpu_capabilities import capability_of
from specpanel.core.preflight.rules import check
from specpanel.core.preflight.surroundings import (
    DeviceState,
    ModelState,
    PortState,
    Surroundings,
)
from specpanel.core.preflight.visible import as_states, visible_now
from specpanel.core.settings.profile import Profile

GIB = 1024**3
TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "dtype": "bfloat16",
}
FACTS = InterpreterFacts(
    *("/venv/bin/python", "3.12.1", "vllm", "0.32.0", "cuda", "serve", "/venv/bin/vllm"),
    frozenset({"vllm", "triton"}),
)
H200 = DeviceState("NVIDIA H200", 141 * GIB, 140 * GIB, (9, 0))


def around(*devices: DeviceState, weights_gib: float = 130, **more: Any) -> Surroundings:
    folder = Path("/models/t")
    weights = Weights("safetensors", round(weights_gib * GIB), 30)
    target = ModelState(str(folder), "folder", parse_config(TARGET, folder), weights)
    return Surroundings(
        interpreter=FACTS,
        platform="cuda",
        port=PortState(8000, free=True),
        target=target,
        devices=devices or None,
        **more,
    )


def profile(**sections: Any) -> Profile:
    target = {"model": "/models/t"} | sections.pop("target", {})
    return Profile.model_validate({"target": target, **sections})


def told(launch: Profile, place: Surroundings) -> dict[str, Finding]:
    return {finding.code: finding for finding in check(launch, place)}


def test_weights_larger_than_a_device_are_an_error() -> None:
    found = told(profile(), around(H200))
    assert found["weights-too-large"].severity == "error"
    split = profile(engine={"tensor_parallel_size": 2})
    assert told(split, around(H200, H200)) == {}


def test_more_ranks_than_devices_are_refused_with_the_number_that_there_is() -> None:
    launch = profile(engine={"tensor_parallel_size": 4})
    finding = told(launch, around(H200, H200))["too-few-devices"]
    assert finding.mend == (("engine.tensor_parallel_size", 2),)
    pipeline = profile(engine={"tensor_parallel_size": 1, "arguments": ["-pp", "2"]})
    assert "too-few-devices" in told(pipeline, around(H200))


def test_d29_a_context_that_does_not_fit_is_told_with_the_longest_that_does() -> None:
    # 141 * 0.92 - 125 - 2 GiB leave 2.7 GiB for 327680 bytes a token.
    found = told(profile(), around(H200, weights_gib=125))
    finding = found["kv-cache-too-small"]
    assert finding.severity == "error"
    ((dotted, longest),) = finding.mend
    assert dotted == "target.max_model_len"
    assert 8000 < longest < 9000
    assert told(profile(target={"max_model_len": longest}), around(H200, weights_gib=125)) == {}


def test_what_fails_only_by_the_guess_of_activations_is_a_warning() -> None:
    # 3.7 GiB are needed; 2.7 are left by the guess, 4.7 without it.
    launch = profile(target={"max_model_len": 12288})
    finding = told(launch, around(H200, weights_gib=125))["kv-cache-too-small"]
    assert finding.severity == "warning"


def test_d02_s17_memory_that_somebody_holds_names_the_holder_and_the_share_that_is_left() -> None:
    busy = replace(H200, free_bytes=100 * GIB, holders=("python (pid 911) 41 GiB",))
    finding = told(profile(target={"max_model_len": 8192}), around(busy, weights_gib=60))[
        "device-busy"
    ]
    assert finding.severity == "error"
    assert finding.mend == (("engine.gpu_memory_utilization", 0.7),)
    assert finding.evidence == ("python (pid 911) 41 GiB",)


def test_a_driver_that_does_not_answer_is_the_machines_fault() -> None:
    place = around(device_problem="driver and library versions differ")
    assert "driver and library versions differ" in told(profile(), place)["device-driver"].text


def test_no_device_for_a_vllm_that_needs_one_is_told_with_the_reason() -> None:
    states, problem = as_states(MemoryOutlook((), "libnvidia-ml.so.1 is not there"), "cuda")
    found = told(profile(), replace(around(), devices=states, device_problem=problem))
    assert "libnvidia-ml.so.1 is not there" in found["no-device"].text
    states, problem = as_states(MemoryOutlook((), "versions differ", blocked=True), "cuda")
    found = told(profile(), replace(around(), devices=states, device_problem=problem))
    assert set(found) == {"device-driver"}


def test_devices_are_seen_in_vllms_order_with_their_memory_and_generation() -> None:
    device = Device("GPU-1", "nvidia", "gpu", 3, "NVIDIA H200")
    holder = DeviceProcess(911, "VLLM::Worker", 70 * GIB)
    outlook = MemoryOutlook((DeviceMemory(device, 100, 141, holders=(holder,)),))
    states, problem = as_states(outlook, "cuda")
    held = ("VLLM::Worker (pid 911) 70.0 GiB",)
    assert states == (DeviceState("NVIDIA H200", 141, 100, (9, 0), held),)
    assert problem is None
    assert visible_now(profile(), "cpu") == (None, None)


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("NVIDIA H200", (9, 0)),
        ("NVIDIA GH200 480GB", (9, 0)),
        ("NVIDIA B200", (10, 0)),
        ("NVIDIA L40S", (8, 9)),
        ("NVIDIA L4", (8, 9)),
        ("NVIDIA A100-SXM4-80GB", (8, 0)),
        ("NVIDIA A10G", (8, 6)),
        ("NVIDIA GeForce RTX 5090", (12, 0)),
        ("NVIDIA GB10", (12, 1)),
        ("AMD Instinct MI300X", None),
    ],
)
def test_capabilities_are_told_by_name(name: str, capability: tuple[int, int] | None) -> None:
    assert capability_of(name) == capability


def exposed(host: str, *arguments: str, **environment: str) -> dict[str, Finding]:
    engine = {"host": host, "arguments": list(arguments), "environment": environment}
    return told(profile(engine=engine), around())


def test_listening_beyond_this_machine_without_a_key_is_told() -> None:
    assert set(exposed("0.0.0.0")) == {"listens-beyond"}
    assert set(exposed("127.0.0.1")) == set()
    assert set(exposed("127.0.0.2")) == set()


def test_a_key_does_not_guard_metrics_and_is_not_for_the_command_line() -> None:
    assert set(exposed("0.0.0.0", VLLM_API_KEY="x")) == {"metrics-unguarded"}
    assert set(exposed("0.0.0.0", "--api-key", "x")) == {"metrics-unguarded"}
    on_the_line = exposed("0.0.0.0", "--api-key", "x", "y")
    assert set(on_the_line) == {"metrics-unguarded", "key-in-arguments"}
    assert "x" not in on_the_line["key-in-arguments"].text.split()
    inherited = around(variables={"VLLM_API_KEY": "***"})
    assert "listens-beyond" not in told(profile(engine={"host": "0.0.0.0"}), inherited)


def test_developer_mode_beyond_this_machine_is_an_error_key_or_not() -> None:
    found = exposed("0.0.0.0", VLLM_API_KEY="x", VLLM_SERVER_DEV_MODE="1")
    assert found["developer-mode-exposed"].severity == "error"
    assert "developer-mode-exposed" not in exposed("127.0.0.1", VLLM_SERVER_DEV_MODE="1")
    assert "developer-mode-exposed" not in exposed("0.0.0.0", VLLM_SERVER_DEV_MODE="0")


@pytest.mark.parametrize(("host", "told_of"), [("0.0.0.0", True), ("127.0.0.1", False)])
def test_a_swappable_drafter_beyond_this_machine_is_an_error(host: str, told_of: bool) -> None:
    head = {"method": "eagle3", "model": "/models/head", "k": 3}
    found = told(profile(engine={"host": host, "swappable": True}, drafter=head), around())
    assert ("developer-mode-exposed" in found) == told_of


def test_secrets_of_the_environment_are_never_kept() -> None:
    around_it = gather(profile(), None, inherited={"VLLM_API_KEY": "hunter2", "HOME": "/h"})
    assert dict(around_it.variables) == {"VLLM_API_KEY": "***"}


# -- folders ---------------------------------------------------------------------------------


def safetensors(tensors: dict[str, tuple[str, list[int], int]]) -> bytes:
    """A file with that header and nothing behind it: type, shape and size of each tensor."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, (kind, shape, size) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(place)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(TARGET))
    return tmp_path


def test_headers_tell_types_and_shapes_without_reading_a_tensor(folder: Path) -> None:
    tensors = {"fc.weight": ("BF16", [4, 8], 64), "d2t": ("I64", [3], 24), "s": ("F8_E4M3", [5], 5)}
    (folder / "model.safetensors").write_bytes(safetensors(tensors))
    found = read_weights(folder)
    assert found is not None
    assert found.bytes_by_type == {"BF16": 64, "I64": 24, "F8_E4M3": 5}
    assert found.shape_of("fc.weight") == (4, 8)
    assert (found.has("d2t"), found.has("t2d")) == (True, False)


def test_an_index_names_the_files_and_a_missing_one_is_an_error(folder: Path) -> None:
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model-1.safetensors").write_bytes(safetensors({"a": ("BF16", [2], 4)}))
    (folder / "consolidated.safetensors").write_bytes(bytes(100))
    found = read_weights(folder)
    assert found is not None
    assert (found.files, found.missing) == (1, ("model-2.safetensors",))
    place = replace(around(), target=model_state(str(folder)))
    finding = told(profile(), place)["weights-missing"]
    assert "1 of the target's 2 weight files are missing" in finding.text


def test_a_folder_without_weights_is_an_error_unless_vllm_makes_them_up(folder: Path) -> None:
    place = replace(around(), target=model_state(str(folder)))
    assert told(profile(), place)["weights-missing"].severity == "error"
    dummy = profile(engine={"arguments": ["--load-format=dummy"]})
    assert "weights-missing" not in told(dummy, place)


def test_pickles_and_code_are_findings(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"x")
    config = TARGET | {"auto_map": {"AutoConfig": "configuration.C"}}
    (folder / "config.json").write_text(json.dumps(config))
    place = replace(around(), target=model_state(str(folder)))
    found = told(profile(), place)
    assert found["pickle-weights"].severity == "warning"
    assert found["remote-code"].severity == "note"
    trusting = told(profile(target={"trust_remote_code": True}), place)["remote-code"]
    assert trusting.severity == "warning"
    assert trusting.mend == (("target.trust_remote_code", None),)


def test_a_damaged_header_counts_by_its_size(folder: Path) -> None:
    for damage in (b"", b"\xff" * 100, (10**9).to_bytes(8, "little") + b"{}", b"\x02" + bytes(7)):
        (folder / "model.safetensors").write_bytes(damage)
        found = read_weights(folder)
        assert found is not None
        assert (found.total_bytes, dict(found.bytes_by_type)) == (len(damage), {})


def test_a_local_model_is_judged_in_under_300_ms_of_processor_time(folder: Path) -> None:
    tensors = {f"model.layers.{n}.w": ("BF16", [8, 8], 0) for n in range(5000)}
    (folder / "model.safetensors").write_bytes(safetensors(tensors))
    (folder / "tokenizer.json").write_bytes(b'{"model": {}}' + bytes(12_000_000))
    launch = Profile.model_validate(
        {
            "target": {"model": str(folder)},
            "drafter": {"method": "draft_model", "model": str(folder)},
            "engine": {"platform": "cpu", "port": 20310},
        }
    )
    assert cheapest_s(lambda: check(launch, gather(launch, FACTS)), 0.3) < 0.3
    assert check(launch, gather(launch, FACTS))
