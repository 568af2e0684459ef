"""A sample as people read it: rows, sums, the texts of cells, and what a launch would find free."""

import pytest

from specpanel.core.devices import words
from specpanel.core.devices.arrangement import rows, totals
from specpanel.core.devices.free_memory import outlook
from specpanel.core.devices.records import Device, DeviceReading, DeviceSample

GIB = 2**30


def card(index: int, **more: object) -> Device:
    facts: dict[str, object] = {"vendor": "nvidia", "kind": "gpu", "name": "NVIDIA H100"} | more
    return Device(f"GPU-{index}", index=index, **facts)  # type: ignore[arg-type]


def slice_of(parent: Device, index: int, kind: str = "mig") -> Device:
    return Device(
        f"MIG-{parent.index}{index}",
        parent.vendor,
        kind,  # type: ignore[arg-type]
        index,
        parent.name,
        parent_uuid=parent.uuid,
        parent_index=parent.index,
        partition="3g.40gb",
    )


def full(device: Device, used: int, total: int, watts: float | None = 300.0) -> DeviceReading:
    return DeviceReading(
        device.uuid, memory_used_bytes=used * GIB, memory_total_bytes=total * GIB, power_w=watts
    )


def sample(*pairs: tuple[Device, DeviceReading], **more: object) -> DeviceSample:
    return DeviceSample(
        0.0,
        "ok",
        devices=tuple(device for device, _ in pairs),
        readings=tuple(reading for _, reading in pairs),
        **more,  # type: ignore[arg-type]
    )


def test_slices_stand_under_their_card_and_say_whether_the_server_uses_them() -> None:
    one, two = card(0), card(1)
    part = slice_of(one, 0)
    found = rows(
        sample((two, full(two, 1, 80)), (part, full(part, 1, 40)), (one, full(one, 1, 80)),
               server_uuids=(part.uuid,))
    )  # fmt: skip
    assert [(row.device.label, row.depth, row.serving) for row in found] == [
        ("1", 0, False),
        ("0", 0, False),
        ("0:0", 1, True),
    ]


def test_what_the_server_uses_is_unknown_until_it_is_known() -> None:
    one = card(0)
    assert rows(sample((one, full(one, 1, 80))))[0].serving is None


def test_sums_count_cards_and_nothing_twice() -> None:
    one, part = card(0), slice_of(card(0), 0)
    dies = [card(number, vendor="amd", kind="die") for number in (2, 3)]
    second = Device(
        "GPU-3", "amd", "die", 3, "AMD MI250X", power_shared_with_uuid="GPU-2", hip_index=3
    )
    found = totals(
        sample(
            (one, full(one, 10, 80)),
            (part, full(part, 9, 40)),
            (dies[0], full(dies[0], 1, 64, 400.0)),
            (second, full(second, 2, 64, 400.0)),
        )
    )
    assert (found.cards, found.power_w) == (3, 700.0)
    assert (found.memory_used_bytes, found.memory_total_bytes) == (13 * GIB, 208 * GIB)


def test_sums_of_nothing_are_absent() -> None:
    lost = card(0)
    assert totals(sample((lost, DeviceReading(lost.uuid, state="lost")))).power_w is None


@pytest.mark.parametrize(
    ("reading", "text"),
    [
        (DeviceReading("u", utilisation_percent=97.0), "97 %"),
        (DeviceReading("u", utilisation_percent=0.0), "0 %"),
        (DeviceReading("u", absent={"utilisation_percent": "MIG"}), "n/a (MIG)"),
        (DeviceReading("u"), "n/a"),
        (DeviceReading("u", state="lost"), "lost"),
        (None, "n/a"),
    ],
)
def test_a_cell_shows_a_figure_or_why_it_is_absent(
    reading: DeviceReading | None, text: str
) -> None:
    assert words.figure(reading, "utilisation_percent", "%") == text


@pytest.mark.parametrize(
    ("reading", "text"),
    [
        (DeviceReading("u", state="stale", age_s=12.2), "stale 12 s"),
        (DeviceReading("u", state="lost"), "LOST"),
        (DeviceReading("u", throttle_reasons=("power cap",)), "power cap"),
        (DeviceReading("u"), ""),
    ],
)
def test_a_state_is_told_in_words(reading: DeviceReading, text: str) -> None:
    assert words.state(reading) == text


def test_a_launch_finds_the_memory_of_the_devices_that_it_may_use() -> None:
    one, two = card(0), card(1)
    seen = sample((one, full(one, 10, 80)), (two, full(two, 30, 80)))
    found = outlook(seen, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert found.least_free_bytes(2) == 50 * GIB
    only = outlook(seen, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0"})
    assert [one.free_bytes for one in only.devices] == [70 * GIB]
    assert only.least_free_bytes(2) is None


def test_a_launch_on_a_slice_finds_the_slices_memory() -> None:
    one = card(0)
    part = slice_of(one, 0)
    found = outlook(
        sample((one, full(one, 10, 80)), (part, full(part, 4, 40))),
        {"CUDA_VISIBLE_DEVICES": part.uuid},
    )
    assert found.least_free_bytes() == 36 * GIB


def test_a_partition_says_that_its_memory_is_claimed_by_others_too() -> None:
    whole = Device("card", "amd", "gpu", 0, "MI300X")
    part = Device("p", "amd", "partition", 0, "MI300X", parent_uuid="card", hip_index=0)
    found = outlook(sample((whole, full(whole, 9, 192)), (part, full(part, 9, 192))), {})
    assert [(one.shared, one.free_bytes) for one in found.devices] == [(True, 183 * GIB)]


def test_a_lost_device_has_no_free_memory_to_promise() -> None:
    one = card(0)
    found = outlook(sample((one, DeviceReading(one.uuid, state="lost", reason="it is lost"))), {})
    assert (found.devices[0].free_bytes, found.devices[0].absent) == (None, "it is lost")
    assert found.least_free_bytes() is None
