"""Public reports about AMD telemetry (B01 to B23), each through the real reader process.

The answers of amdsmi are scripted after the reports (tests/fakes/devices); the driver's files have the
kernel's names and units. No AMD hardware was used.
"""

import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest
from fakes.devices.machine import (
    SITE,
    build,
    device_answers,
    library,
    read,
    reading,
    script,
    until,
    watched,
    write_files,
)

from specpanel.core.devices import reader as reader_program
from specpanel.core.devices import words
from specpanel.core.devices.arrangement import totals
from specpanel.core.devices.free_memory import outlook
from specpanel.core.devices.visibility import visible_devices
from specpanel.core.engine.command import build_command
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.settings.profile import Profile

ROOT = Path(__file__).resolve().parents[2]
GIB = 2**30


def test_b01_na_in_the_place_of_a_number_is_an_absent_figure(tmp_path: Path) -> None:
    found = script("mi300x_spx")
    power = dict.fromkeys(
        ("socket_power", "current_socket_power", "average_socket_power", "power_limit"), "N/A"
    )
    device_answers(found, "amdsmi")["amdsmi_get_power_info"] = power
    sample, _ = read(found, tmp_path)
    figures = reading(sample, "0")
    assert (figures.power_w, figures.absent["power_w"]) == (None, "not given")
    assert figures.utilisation_percent == 91


@pytest.mark.parametrize(
    ("name", "watts", "limit", "source"),
    [
        ("mi300x_spx", 717, 750, "current_socket_power"),
        ("mi250_dies", 94, 560, "average_socket_power"),
        ("apu", 54, None, "hwmon power1_average"),
    ],
)
def test_b02_s11_power_is_taken_from_where_the_generation_has_it_and_the_source_is_named(
    name: str, watts: float, limit: float | None, source: str, tmp_path: Path
) -> None:
    sample, _ = read(name, tmp_path)
    figures = reading(sample, "0")
    assert (figures.power_w, figures.power_source) == (pytest.approx(watts), source)
    assert figures.power_limit_w == (None if limit is None else pytest.approx(limit))


def test_b02_the_vendors_own_names_stand_beside_the_common_ones(tmp_path: Path) -> None:
    sample, _ = read("mi300x_spx", tmp_path)
    fields = reading(sample, "0").vendor_fields
    assert (fields["gfx_activity"], fields["umc_activity"]) == (91, 44)
    assert fields["current_socket_power"] == 717
    assert "average_socket_power" not in fields


def test_b04_s11_the_two_dies_of_a_package_have_one_power(tmp_path: Path) -> None:
    sample, _ = read("mi250_dies", tmp_path)
    assert [device.kind for device in sample.devices] == ["die"] * 4
    assert [one.power_w for one in sample.readings] == [94, None, 96, None]
    assert words.power(reading(sample, "1")) == "n/a (shared with GPU 0)"
    assert totals(sample).power_w == 190
    assert totals(sample).memory_total_bytes == 4 * 65520 * 2**20


def test_b05_s11_amdsmi_without_its_library_is_a_sentence_and_prints_nothing(
    tmp_path: Path,
) -> None:
    environment = build(script("amdsmi_no_library"), tmp_path)
    ran = subprocess.run(
        [Path(sys.executable).with_name("specpanel"), "devices"],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "Unable to find" not in ran.stdout
    assert "RX 7900 XTX" in ran.stdout  # from the driver's files


async def test_b05_the_reason_is_kept_and_so_is_what_the_library_printed(tmp_path: Path) -> None:
    async with watched("amdsmi_no_library", tmp_path) as watch:
        await until(watch, lambda one: one.state == "ok" and bool(watch.said))
        assert watch.inventory is not None
        amdsmi = library(watch.inventory, "amdsmi")
        assert amdsmi.reason == "amdsmi is installed, and its library libamd_smi.so is missing"
        assert "Unable to find libamd_smi.so" in watch.said


def test_b07_amdsmi_is_an_extra_and_no_dependency(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert not [name for name in project["dependencies"] if name.startswith("amdsmi")]
    assert project["optional-dependencies"]["amd"]
    sample, inventory = read("amd_files_only", tmp_path)
    assert library(inventory, "amdsmi").reason == "the Python package amdsmi is not installed"
    assert reading(sample, "0").power_w == 31


def test_b07_what_rocm_installed_is_taken_before_what_pip_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = script("mi300x_spx")
    write_files(
        tmp_path,
        {"rocm/share/amd_smi/amdsmi/__init__.py": 'raise OSError("the one of ROCm")\n'},
    )
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "rocm"))
    _, inventory = read(found, tmp_path)
    amdsmi = library(inventory, "amdsmi")
    assert "the one of ROCm" in (amdsmi.reason or "")


def test_b08_s11_in_wsl_telemetry_is_unavailable_and_serving_is_not_blocked(tmp_path: Path) -> None:
    sample, _ = read("wsl", tmp_path)
    assert "telemetry unavailable in WSL (code 34)" in words.none_found(sample)
    assert not outlook(sample, {}, "amd", {"amd": "telemetry unavailable in WSL"}).blocked


def test_b10_a_card_that_answers_busy_is_asleep(tmp_path: Path) -> None:
    sample, _ = read("navi_asleep", tmp_path)
    figures = reading(sample, "0")
    assert (figures.state, figures.utilisation_percent) == ("asleep", None)


async def test_b10_a_suspended_card_is_not_woken_and_is_read_when_it_wakes(tmp_path: Path) -> None:
    found = script("amd_files_only")
    status = "sys/class/drm/card0/device/power/runtime_status"
    found["files"][status] = "suspended"
    async with watched(found, tmp_path) as watch:
        asleep = await until(watch, lambda one: one.state == "ok")
        assert (asleep.readings[0].state, asleep.readings[0].power_w) == ("asleep", None)
        write_files(tmp_path, {status: "active"})
        awake = await until(watch, lambda one: one.readings[0].state == "ok")
        assert awake.readings[0].utilisation_percent == 3


async def test_b10_an_idle_card_that_may_sleep_is_left_alone_for_a_while(tmp_path: Path) -> None:
    found = script("amd_files_only")
    device = "sys/class/drm/card0/device"
    found["files"] |= {f"{device}/power/control": "auto", f"{device}/gpu_busy_percent": "0"}
    async with watched(found, tmp_path) as watch:
        await until(watch, lambda one: one.state == "ok")
        write_files(tmp_path, {f"{device}/gpu_busy_percent": "50"})
        for _ in range(5):  # answers with which the file was not read
            answered_s = watch.answered_s
            await until(watch, lambda one, then=answered_s: watch.answered_s != then)
        assert watch.sample().readings[0].utilisation_percent == 0


def test_b11_s11_partitions_answer_in_shapes_of_their_own(tmp_path: Path) -> None:
    sample, _ = read("mi300x_cpx", tmp_path)
    assert reading(sample, "0:0").utilisation_percent == 12
    assert reading(sample, "0:2").utilisation_percent == 0
    second = reading(sample, "0:1")
    assert second.utilisation_percent is None
    assert second.absent["utilisation_percent"] == "shared with GPU 0:0"


def test_b13_the_memory_of_a_card_is_counted_once_however_many_partitions_claim_it(
    tmp_path: Path,
) -> None:
    sample, _ = read("mi300x_cpx", tmp_path)
    claims = [one.memory_total_bytes for one in sample.readings]
    assert claims == [196592 * 2**20] * 9
    assert totals(sample).memory_total_bytes == 196592 * 2**20
    assert totals(sample).power_w == 717
    seen = outlook(sample, {"HIP_VISIBLE_DEVICES": "3"})
    assert [(one.device.label, one.shared) for one in seen.devices] == [("0:3", True)]


def test_b14_s11_what_amdsmi_does_not_tell_of_an_apu_comes_from_the_drivers_files(
    tmp_path: Path,
) -> None:
    sample, _ = read("apu", tmp_path)
    figures = reading(sample, "0")
    assert sample.devices[0].memory_kind == "unified"
    assert (figures.temperature_c, figures.temperature_source) == (61, "hwmon edge")
    assert (figures.power_w, figures.utilisation_percent) == (54, 17)
    assert figures.memory_used_bytes == 300 * 2**20 + 20 * GIB
    assert figures.memory_total_bytes == 512 * 2**20 + 62 * GIB


def test_b16_temperature_comes_from_the_junction_before_the_edge(tmp_path: Path) -> None:
    sample, _ = read("navi_sentinels", tmp_path / "junction")
    figures = reading(sample, "0")
    assert (figures.temperature_c, figures.temperature_source) == (43, "junction")
    found = script("navi_sentinels")
    answers = device_answers(found, "amdsmi")
    answers["amdsmi_get_temp_metric:HOTSPOT"] = {"raise": 2}
    answers["amdsmi_get_temp_metric:EDGE"] = 41
    sample, _ = read(found, tmp_path / "edge")
    assert (sample.readings[0].temperature_c, sample.readings[0].temperature_source) == (
        41,
        "edge",
    )


def test_b17_s11_65535_and_2_64_minus_1_are_not_available(tmp_path: Path) -> None:
    sample, _ = read("navi_sentinels", tmp_path)
    figures = reading(sample, "0")
    assert figures.utilisation_percent is None
    assert figures.absent["utilisation_percent"] == "not given"
    assert (figures.power_w, figures.power_source) == (31, "average_socket_power")
    assert "mm_activity" not in figures.vendor_fields


_AS_NOBODY = """
import os, sys
from pathlib import Path
import grp
from specpanel.core.devices.system import unreadable_nodes
if os.geteuid() == 0:  # who may open everything
    os.setgid(65534)
    os.setuid(65534)
print(unreadable_nodes(Path(sys.argv[1])))
"""


def test_b19_a_node_that_may_not_be_opened_is_named_with_its_group() -> None:
    """What counts is whether it opens, and not which groups the user is in."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_files(place, {"dev/kfd": "", "dev/dri/renderD128": "", "dev/dri/renderD129": ""})
        place.chmod(0o755)
        (place / "dev/kfd").chmod(0o666)
        (place / "dev/dri/renderD128").chmod(0o666)
        (place / "dev/dri/renderD129").chmod(0)
        group = (place / "dev/dri/renderD129").group()
        ran = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY, folder], capture_output=True, text=True, cwd="/"
        )
    told = f"this user may not open /dev/dri/renderD129 (group {group})"
    assert ran.stdout.strip() == told, ran.stderr


def test_b20_variables_that_contradict_each_other_are_refused(
    tmp_path: Path,
) -> None:
    sample, _ = read("mi300x_spx", tmp_path)
    both = {"ROCR_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0,1"}
    seen = visible_devices(sample.devices, both, "amd")
    assert seen.uuids is None
    assert "ROCR_VISIBLE_DEVICES=1 leaves 1 device" in (seen.problem or "")
    refused = outlook(sample, both, "amd")
    assert (refused.devices, refused.problem) == ((), seen.problem)
    empty = visible_devices(sample.devices, {"HIP_VISIBLE_DEVICES": ""}, "amd")
    assert len(empty.uuids or ()) == 8


def test_b20_a_start_on_amd_tells_hip_what_was_chosen_by_cudas_name() -> None:
    facts = InterpreterFacts(
        python="python",
        python_version="3.12",
        distribution="vllm",
        vllm_version="0.32.0",
        platform="rocm",
        launcher="module",
        console_script=None,
        packages=frozenset(),
    )
    profile = Profile.model_validate({"name": "amd", "target": {"model": "/m"}})
    chosen = build_command(profile, facts, {"CUDA_VISIBLE_DEVICES": "2,3"})
    assert chosen.environment["HIP_VISIBLE_DEVICES"] == "2,3"
    assert "HIP_VISIBLE_DEVICES" not in build_command(profile, facts, {}).environment


def test_b22_calls_that_a_release_does_not_have_cost_their_own_figures_only(
    tmp_path: Path,
) -> None:
    found = script("mi300x_spx")
    found["amdsmi"]["absent_calls"] = [
        "amdsmi_get_power_info",
        "amdsmi_get_gpu_enumeration_info",
        "amdsmi_get_gpu_metrics_info",
        "amdsmi_get_lib_version",
    ]
    answers = device_answers(found, "amdsmi")
    answers["amdsmi_get_gpu_device_uuid"] = 12345678901234567890  # a number in old releases
    found["amdsmi"]["devices"][0]["repeat"] = 1
    sample, inventory = read(found, tmp_path)
    assert library(inventory, "amdsmi").state == "used"
    assert sample.devices[0].uuid == "12345678901234567890"
    figures = reading(sample, "0")
    assert figures.power_w is None
    assert figures.absent["power_w"] == "this release has no such call"
    assert figures.utilisation_percent == 91


def test_b23_no_command_line_of_a_vendor_is_run_so_none_of_its_shapes_matters() -> None:
    """amd-smi's JSON changed its shape between releases; the reader reads files where amdsmi fails."""
    folder = Path(reader_program.__file__).parent
    starting = ("subprocess.", "os.system", "os.popen", "pty.")
    found = {
        path.name
        for path in folder.glob("*.py")
        if any(word in path.read_text(encoding="utf-8") for word in starting)
    }
    assert found == {"child.py"}  # which starts the reader itself
    assert SITE.is_dir()
