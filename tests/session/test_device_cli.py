"""``specpanel devices`` and the devices in ``specpanel doctor``, as a user runs them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.devices.machine import SCRIPTS, build, read, script

from specpanel.app.cli.devices import table

SPECPANEL = Path(sys.executable).with_name("specpanel")


def run(
    command: str, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SPECPANEL, command, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | (environment or {}),
        timeout=60,
    )


def test_a_machine_without_a_device_says_why_and_that_is_no_failure() -> None:
    ran = run("devices", environment={"SPECPANEL_DEVICE_ROOT": "/nowhere"})
    assert ran.returncode == 0
    assert ran.stdout.startswith("no NVIDIA or AMD device found (no NVIDIA driver")


@pytest.mark.parametrize("name", ["h200x8", "h100_mig", "mixed", "mi300x_cpx", "a100_lost", "apu"])
def test_the_table_has_a_line_for_each_device_and_fits_80_columns(
    name: str, tmp_path: Path
) -> None:
    sample, _ = read(name, tmp_path)
    lines = list(table(sample, {}))
    assert max(map(len, lines)) <= 80
    devices = {"h200x8": 8, "h100_mig": 4, "mixed": 3, "mi300x_cpx": 9, "a100_lost": 4, "apu": 1}
    notes = [line for line in lines if line.startswith("GPU ") and ": " in line]
    assert len(lines) - 1 - len(notes) == devices[name]


def test_the_table_shows_figures_states_and_servers(tmp_path: Path) -> None:
    sample, _ = read("h200x8", tmp_path)
    lines = list(table(sample, {sample.devices[3].uuid: ["qwen"]}))
    assert lines[3].endswith("97 % 126.0/140.4 GiB  640/700 W 58 °C  power cap")
    assert lines[4].endswith(" 58 °C  qwen, power cap")


def test_what_is_absent_says_why_in_its_cell_or_below_the_table(tmp_path: Path) -> None:
    sample, _ = read("h100_mig", tmp_path)
    lines = list(table(sample, {}))
    assert "n/a (MIG)" in lines[1]
    assert lines[2].startswith("  0:0 MIG 3g.40gb")
    assert lines[-1] == "GPU 0:0, 0:1: no power, temperature: of the whole card"


def test_watching_as_json_goes_on_until_it_is_interrupted(tmp_path: Path) -> None:
    environment = os.environ | build(script("h200x8"), tmp_path)
    process = subprocess.Popen(
        [SPECPANEL, "devices", "--watch", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    inventory, sample, later = (json.loads(process.stdout.readline()) for _ in range(3))
    process.send_signal(signal.SIGINT)
    assert process.wait(15) == 130
    process.stdout.close()
    assert list(inventory)[:2] == ["schema_version", "kind"]
    kinds = [one["kind"] for one in (inventory, sample, later)]
    assert kinds == ["device_inventory", "device_sample", "device_sample"]
    nvml = inventory["libraries"][0]
    assert (nvml["name"], nvml["driver"]) == ("NVML", "580.95.05")
    assert {cost["call"] for cost in nvml["costs"]} >= {
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetComputeRunningProcesses",
    }
    assert [one["utilisation_percent"] for one in sample["readings"]] == [97.0] * 8
    assert sample["server_uuids"] is None


def test_doctor_tells_what_reads_devices_what_it_costs_and_what_is_broken(tmp_path: Path) -> None:
    found = script("mixed")
    found["pynvml"]["answers"]["nvmlInit"] = {"raise": 18}
    ran = run("doctor", "--json", environment=build(found, tmp_path))
    checks = [json.loads(line) for line in ran.stdout.splitlines()]
    by_name = {check["name"]: check for check in checks}
    assert by_name["devices"]["text"] == "1 x AMD Radeon RX 7900 XTX"
    assert by_name["NVML"]["state"] == "problem"
    assert "different versions" in by_name["NVML"]["text"]
    assert "Reboot" in by_name["NVML"]["fix"]
    assert "Python package 7.0.2" in by_name["amdsmi"]["text"]
    assert by_name["sysfs"]["state"] == "ok"
    assert " ms each, " in by_name["call cost"]["text"]
    assert ran.returncode == 1


def test_every_script_says_what_it_is() -> None:
    for path in SCRIPTS.glob("*.json"):
        assert json.loads(path.read_text(encoding="utf-8"))["about"], path.name
