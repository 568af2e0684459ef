"""The files of the amdgpu driver, in a folder with the kernel's own names and units."""

from pathlib import Path

import pytest
from fakes.devices.machine import script, write_files

from specpanel.core.devices.amd_sysfs import SysfsCard, find_cards
from specpanel.core.devices.gathering import Gathered
from specpanel.core.devices.system import HostMemory, host_memory, real_processes

DEVICE = "sys/class/drm/card0/device"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_files(tmp_path, script("amd_files_only")["files"])
    return tmp_path


def only_card(root: Path) -> SysfsCard:
    (card,) = find_cards(root)
    return card


def slow(card: SysfsCard) -> Gathered:
    gathered = Gathered("u")
    card.gather("slow", gathered)
    return gathered


def test_cards_of_others_and_connectors_are_passed_over(root: Path) -> None:
    write_files(
        root,
        {
            "sys/class/drm/card1/device/vendor": "0x10de",
            "sys/class/drm/card0-HDMI-A-1/device/vendor": "0x1002",
            "sys/class/drm/version": "drm 1.1.0",
        },
    )
    assert [card.bus_id for card in find_cards(root)] == ["0000:03:00.0"]


def test_cards_stand_in_the_order_of_the_bus_and_not_of_the_driver(root: Path) -> None:
    write_files(
        root,
        {
            "sys/class/drm/card9/device/vendor": "0x1002",
            "sys/class/drm/card9/device/uevent": "PCI_SLOT_NAME=0000:01:00.0\n",
        },
    )
    assert [card.bus_id for card in find_cards(root)] == ["0000:01:00.0", "0000:03:00.0"]


def test_units_of_the_kernel_become_ours(root: Path) -> None:
    values = slow(only_card(root)).values
    assert (values["power_w"], values["power_limit_w"]) == (31, 339)
    assert (values["temperature_c"], values["memory_temperature_c"]) == (43, 50)
    assert (values["core_clock_mhz"], values["memory_clock_mhz"]) == (500, 96)


def test_newer_cards_have_their_power_under_another_name(root: Path) -> None:
    (root / f"{DEVICE}/hwmon/hwmon2/power1_average").unlink()
    write_files(root, {f"{DEVICE}/hwmon/hwmon2/power1_input": "77000000"})
    gathered = slow(only_card(root))
    assert (gathered.values["power_w"], gathered.values["power_source"]) == (
        77,
        "hwmon power1_input",
    )


@pytest.mark.parametrize("gone", ["temp2_label", "temp2_input"])
def test_a_card_without_a_junction_gives_its_edge(root: Path, gone: str) -> None:
    (root / f"{DEVICE}/hwmon/hwmon2/{gone}").unlink()
    values = slow(only_card(root)).values
    assert (values["temperature_c"], values["temperature_source"]) == (41, "hwmon edge")


def test_a_file_that_cannot_be_understood_is_an_absent_figure(root: Path) -> None:
    write_files(root, {f"{DEVICE}/gpu_busy_percent": "busy", f"{DEVICE}/mem_busy_percent": "999"})
    gathered = Gathered("u")
    only_card(root).gather("fast", gathered)
    assert gathered.absent == {
        "utilisation_percent": "not given",
        "memory_activity_percent": "out of range",
    }


def test_what_amdsmi_gave_is_not_overwritten(root: Path) -> None:
    gathered = Gathered("u")
    gathered.put("power_w", 300.0)
    only_card(root).gather("slow", gathered)
    assert gathered.values["power_w"] == 300


def test_the_hosts_memory_is_read_or_not_known(tmp_path: Path) -> None:
    assert host_memory(tmp_path) == HostMemory(None, None)
    write_files(tmp_path, {"proc/meminfo": "MemTotal: 8 kB\nMemAvailable: 3 kB\n"})
    assert host_memory(tmp_path) == HostMemory(8192, 3072)


def test_a_process_with_more_memory_than_the_device_has_is_misread(tmp_path: Path) -> None:
    entries = [(1, 2**50), (2, 2**50)]
    found, wrong = real_processes(entries, memory_total_bytes=2**40, root=tmp_path)
    assert (found, wrong) == ((), "process list unreliable: update the vendor's Python package")


def test_an_empty_process_list_is_reliable(tmp_path: Path) -> None:
    assert real_processes([], memory_total_bytes=None, root=tmp_path) == ((), None)
