"""Which devices a program may use, by its environment: CUDA's and ROCm's own rules."""

import pytest

from specpanel.core.devices.records import Device, DeviceProcess, DeviceReading
from specpanel.core.devices.visibility import (
    contradiction,
    devices_wanted,
    hip_environment,
    used_by,
    visible_devices,
)


def nvidia(index: int, uuid: str, name: str = "NVIDIA H200") -> Device:
    return Device(uuid, "nvidia", "gpu", index, name, bus_id=f"0000:{index}b:00.0")


def amd(index: int, uuid: str) -> Device:
    return Device(uuid, "amd", "gpu", index, "AMD Instinct MI300X", hip_index=index)


FOUR = tuple(nvidia(number, f"GPU-{number}abcdef0-1111") for number in range(4))
AMD_FOUR = tuple(amd(number, f"GPU-{number}fedcba0") for number in range(4))
MIG = (
    nvidia(0, "GPU-aaaa0000"),
    Device("MIG-11110000-a", "nvidia", "mig", 0, "MIG 3g.40gb", parent_uuid="GPU-aaaa0000"),
    Device("MIG-22220000-b", "nvidia", "mig", 1, "MIG 3g.40gb", parent_uuid="GPU-aaaa0000"),
    nvidia(1, "GPU-bbbb0000"),
)
BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def numbers(devices: tuple[Device, ...], uuids: tuple[str, ...] | None) -> list[int]:
    assert uuids is not None
    index_by_uuid = {device.uuid: device.index for device in devices}
    return [index_by_uuid[uuid] for uuid in uuids]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, [0, 1, 2, 3]),
        ("2,0", [2, 0]),
        (" 1 , 3 ", [1, 3]),
        ("", []),
        ("GPU-3abcdef0-1111", [3]),
        ("GPU-3a", [3]),
        ("gpu-1abc,0", [1, 0]),
        ("1,1", [1]),
        ("-1", []),
        ("1,9,2", [1]),
        ("NoDevFiles", []),
    ],
)
def test_cuda_shows_the_devices_that_its_variable_names(
    value: str | None, found: list[int]
) -> None:
    environment = BY_BUS | ({} if value is None else {"CUDA_VISIBLE_DEVICES": value})
    assert numbers(FOUR, visible_devices(FOUR, environment, "nvidia").uuids) == found


def test_a_name_that_is_not_here_is_told() -> None:
    visible = visible_devices(FOUR, BY_BUS | {"CUDA_VISIBLE_DEVICES": "1,9"}, "nvidia")
    assert visible.problem == "CUDA_VISIBLE_DEVICES names 9, which is not here"


def test_the_beginning_of_two_uuids_names_neither() -> None:
    twins = (nvidia(0, "GPU-aa11"), nvidia(1, "GPU-aa22"))
    visible = visible_devices(twins, BY_BUS | {"CUDA_VISIBLE_DEVICES": "GPU-aa"}, "nvidia")
    assert visible.uuids == ()


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("MIG-2222", ("MIG-22220000-b",)),
        ("0", ("MIG-11110000-a",)),  # one program sees one slice, the first
        ("1", ("GPU-bbbb0000",)),
    ],
)
def test_slices_are_named_by_uuid_and_a_card_in_mig_mode_is_its_first_slice(
    value: str, found: tuple[str, ...]
) -> None:
    environment = BY_BUS | {"CUDA_VISIBLE_DEVICES": value}
    assert visible_devices(MIG, environment, "nvidia").uuids == found


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, [0, 1, 2, 3]),
        ({"HIP_VISIBLE_DEVICES": "2,1"}, [2, 1]),
        ({"CUDA_VISIBLE_DEVICES": "3"}, [3]),
        ({"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "1"}, [3]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-1fedcba0"}, [1]),
        ({"HIP_VISIBLE_DEVICES": ""}, [0, 1, 2, 3]),
    ],
)
def test_hip_counts_among_what_rocr_leaves(environment: dict[str, str], found: list[int]) -> None:
    assert numbers(AMD_FOUR, visible_devices(AMD_FOUR, environment, "amd").uuids) == found


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, "contradict each other"),
        ({"ROCR_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0,1"}, "leaves 1 device"),
    ],
)
def test_variables_that_contradict_each_other_are_not_interpreted(
    environment: dict[str, str], words: str
) -> None:
    assert words in (contradiction(environment) or "")
    assert visible_devices(AMD_FOUR, environment, "amd").uuids is None


@pytest.mark.parametrize(
    ("environment", "added"),
    [
        ({"CUDA_VISIBLE_DEVICES": "1"}, {"HIP_VISIBLE_DEVICES": "1"}),
        ({"CUDA_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": ""}, {"HIP_VISIBLE_DEVICES": "1"}),
        ({"CUDA_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"}, {}),
        ({"CUDA_VISIBLE_DEVICES": ""}, {}),
        ({"CUDA_VISIBLE_DEVICES": "1", "ROCR_VISIBLE_DEVICES": "0,2"}, {}),
        ({}, {}),
    ],
)
def test_a_start_on_amd_tells_hip_what_was_chosen_by_cudas_name(
    environment: dict[str, str], added: dict[str, str]
) -> None:
    assert hip_environment(environment) == added


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ([], 1),
        (["vllm", "serve", "m", "--tensor-parallel-size", "4"], 4),
        (["-tp", "2", "-pp=3"], 6),
        (["--tensor_parallel_size=2", "--data-parallel-size", "2"], 4),
        (["-tp", "many"], None),
    ],
)
def test_a_command_line_tells_how_many_devices_it_wants(
    arguments: list[str], count: int | None
) -> None:
    assert devices_wanted(arguments) == count


def used(devices: tuple[Device, ...], **given: object) -> tuple[str, ...] | None:
    facts: dict[str, object] = {"environment": BY_BUS, "arguments": [], "pids": [7]} | given
    readings = facts.pop("readings", ())
    return used_by(devices, readings, **facts)  # type: ignore[arg-type]


def test_a_server_of_the_cpu_build_uses_no_device() -> None:
    assert used(FOUR, environment=BY_BUS | {"VLLM_CPU_KVCACHE_SPACE": "1"}) == ()


def test_a_server_uses_the_first_devices_that_it_sees() -> None:
    environment = BY_BUS | {"CUDA_VISIBLE_DEVICES": "3,1,0"}
    found = used(FOUR, environment=environment, arguments=["-tp", "2"])
    assert numbers(FOUR, found) == [3, 1]


def test_a_process_on_a_device_is_proof_against_every_rule() -> None:
    reading = DeviceReading(FOUR[2].uuid, processes=(DeviceProcess(7, "vllm", None),))
    assert numbers(FOUR, used(FOUR, readings=(reading,))) == [2]


def test_what_cannot_be_told_is_not_guessed() -> None:
    assert used((*FOUR, *AMD_FOUR)) is None
    assert used(FOUR, arguments=["-tp", "8"]) is None
    assert used(FOUR, arguments=["--device-ids", "9"]) is None
