"""The small parts of the reader: pace, black box, lines, tiers put together, costs of calls."""

import json
import os

import pytest

from specpanel.core.devices.blackbox import BlackBox, open_page
from specpanel.core.devices.calls import Calls, Failed
from specpanel.core.devices.gathering import merged
from specpanel.core.devices.pacing import Pace
from specpanel.core.devices.records import (
    CallCost,
    Device,
    DeviceInventory,
    DeviceLibrary,
    DeviceProcess,
    DeviceReading,
)
from specpanel.core.devices.wire import Answer, Inventory, decoded, encoded, question

READING = DeviceReading(
    "GPU-1",
    "stale",
    "why",
    3.0,
    97.0,
    None,
    5,
    6,
    throttle_reasons=("power cap",),
    processes=(DeviceProcess(7, "vllm", None), DeviceProcess(8, None, 4)),
    vendor_fields={"gfx_activity": 97.0, "mode": "text"},
    absent={"power_w": "not supported"},
)


def test_a_tier_is_due_again_after_its_period() -> None:
    pace = Pace(2.0)
    assert pace.due(0.0)
    pace.done(10.0, 0.001)
    assert not pace.due(11.0)
    assert pace.due(11.9)  # the one who asks has a clock of its own


def test_a_tier_that_is_dear_every_time_slows_itself_down() -> None:
    pace = Pace(1.0)
    for began_s in (0.0, 1.0, 2.0):
        pace.done(began_s, 0.100)
    assert pace.slowed_to_s == 5.0
    assert not pace.due(6.0)
    assert pace.due(7.0)


def test_one_slow_answer_is_no_habit() -> None:
    pace = Pace(1.0)
    for began_s, took_s in ((0.0, 0.001), (1.0, 45.0), (50.0, 0.001)):
        pace.done(began_s, took_s)
    assert pace.slowed_to_s is None
    assert pace.due(51.0)


def test_the_page_names_the_call_that_the_other_side_is_in() -> None:
    page = open_page()
    try:
        theirs, ours = BlackBox(page), BlackBox(page)
        assert ours.look().words == "its own code"
        theirs.note("NVML|nvmlDeviceGetPowerUsage|3")
        assert ours.look().words == "nvmlDeviceGetPowerUsage of GPU 3"
        assert ours.look().library == "NVML"
        number = ours.look().number
        theirs.note("")
        assert (ours.look().name, ours.look().number) == ("", number + 1)
        theirs.note("ü" * 5000)  # longer than the page
        assert ours.look().name.startswith("üü")
    finally:
        os.close(page)


def test_what_the_reader_says_is_read_as_it_was_written() -> None:
    library = DeviceLibrary(
        "NVML", "nvidia", "used", "13", costs=(CallCost("nvmlInit", "slow", 1, 2.0, 3.0),)
    )
    inventory = DeviceInventory((Device("GPU-1", "nvidia", "gpu", 0, "H200"),), (library,))
    for message in (Inventory(inventory, 17, "python"), Answer((READING,), 1.5, {"slow": 4.0})):
        assert decoded(encoded(message).encode()) == message


@pytest.mark.parametrize(
    "line", [b"Unable to find libamd_smi.so", b"{}", b"[1]", b'{"kind":"answer"}', b"\xff"]
)
def test_a_line_that_is_not_the_readers_is_no_message(line: bytes) -> None:
    assert decoded(line) is None


def test_a_question_is_one_line() -> None:
    assert json.loads(question(processes=True)) == {"do": "read", "processes": True}
    assert question(processes=True).count(b"\n") == 1


def test_one_tier_leaves_the_others_figures_alone() -> None:
    fast = DeviceReading("u", utilisation_percent=50.0, absent={"memory_used_bytes": "no"})
    slow = DeviceReading("u", power_w=300.0)
    both = merged(merged(None, fast, "fast"), slow, "slow")
    assert (both.utilisation_percent, both.power_w) == (50.0, 300.0)
    later = merged(both, DeviceReading("u", absent={"power_w": "out of range"}), "slow")
    assert (later.power_w, later.utilisation_percent) == (None, 50.0)
    assert later.absent == {"memory_used_bytes": "no", "power_w": "out of range"}


def test_a_reading_that_failed_as_a_whole_keeps_the_figures_it_had() -> None:
    known = DeviceReading("u", utilisation_percent=50.0)
    stale = merged(known, DeviceReading("u", state="stale", reason="gone"), "fast")
    assert (stale.state, stale.reason, stale.utilisation_percent) == ("stale", "gone", 50.0)
    assert merged(stale, DeviceReading("u", utilisation_percent=1.0), "fast").state == "ok"


@pytest.mark.parametrize("state", ["lost", "asleep"])
def test_a_device_that_is_lost_or_asleep_has_no_figures(state: str) -> None:
    new = DeviceReading("u", state=state, reason="why")  # type: ignore[arg-type]
    found = merged(DeviceReading("u", utilisation_percent=50.0), new, "fast")
    assert (found.utilisation_percent, found.state) == (None, state)


def test_a_call_that_raises_is_a_value_with_the_vendors_number() -> None:
    class VendorError(Exception):
        value = 15

    def broken() -> None:
        raise VendorError("GPU is\n lost")

    page = open_page()
    try:
        call = Calls("NVML", BlackBox(page), lambda error: getattr(error, "value", None))
        assert call("fast", broken) == Failed(15, "GPU is lost")
        assert call("fast", None).text == "this release has no such call"
        assert call("fast", lambda: 5) == 5
        assert {cost.calls for cost in call.costs()} == {1}
    finally:
        os.close(page)
