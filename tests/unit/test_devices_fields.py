"""One reading of every vendor's number, one table of what can be true."""

import ctypes
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpanel.core.devices.fields import FIELDS, TIER_FIELDS, measure, to_number, to_text
from specpanel.core.devices.records import DeviceReading


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        (97, 97.0),
        (61.5, 61.5),
        ("97", 97.0),
        (b"12.5", 12.5),
        ("0x2f", 47.0),
        ("[N/A]", None),
        ("N/A", None),
        ("[Not Supported]", None),
        ("", None),
        (b"\xf8\xff", None),
        (None, None),
        (True, None),
        (float("nan"), None),
        (float("inf"), None),
        ({"value": 12, "unit": "%"}, 12.0),
        ({"value": "N/A", "unit": "%"}, None),
        ({"gfx_busy_inst": [{"value": 0, "unit": "%"}, "N/A"]}, 0.0),
        ([10, "N/A", 20], 15.0),
        ([], None),
        (ctypes.c_uint(7), 7.0),
        (object(), None),
    ],
)
def test_a_number_is_read_in_every_shape_that_a_vendor_gives_it(
    answer: Any, number: float | None
) -> None:
    assert to_number(answer) == number


@given(
    name=st.sampled_from(sorted(FIELDS)),
    value=st.one_of(st.floats(), st.integers(-(2**70), 2**70), st.text(), st.binary()),
)
def test_no_answer_gives_a_figure_outside_its_range(name: str, value: Any) -> None:
    figure, why = measure(name, value)
    rule = FIELDS[name]
    assert (figure is None) == (why is not None)
    assert figure is None or rule.low <= figure <= rule.high


@pytest.mark.parametrize("sentinel", [0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 2**64 - 1.0])
@pytest.mark.parametrize("name", ["utilisation_percent", "power_w", "temperature_c"])
def test_not_available_written_as_a_number_is_no_figure(name: str, sentinel: float) -> None:
    assert measure(name, sentinel) == (None, "not given")


def test_a_number_of_bytes_may_be_65535() -> None:
    assert measure("memory_used_bytes", 65535) == (65535, None)


@pytest.mark.parametrize("answer", [750, 750_000, 750_000_000])
def test_a_limit_is_in_watts_whatever_unit_a_release_of_amdsmi_gave_it_in(answer: int) -> None:
    assert measure("power_limit_w", answer)[0] == pytest.approx(750)


def test_a_limit_of_zero_is_no_limit_known() -> None:
    assert measure("power_limit_w", 0)[0] is None


def test_a_unit_that_is_known_is_not_guessed() -> None:
    # 1500 mW are 1.5 W, although 1500 would be a possible number of watts.
    assert measure("power_w", 1500, unit=1e-3)[0] == 1.5


def test_what_is_out_of_range_is_dropped_and_not_clamped() -> None:
    assert measure("utilisation_percent", 808334905) == (None, "out of range")


def test_every_field_of_a_tier_and_of_the_table_is_one_of_a_reading() -> None:
    fields = set(DeviceReading.__slots__)
    assert set(FIELDS) <= fields
    assert {name for names in TIER_FIELDS.values() for name in names} <= fields


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("NVIDIA H200", "NVIDIA H200"),
        (b"NVIDIA H200\0", "NVIDIA H200"),
        (b"\xf8\xff", None),
        ("N/A", None),
        (17, "17"),
        (None, None),
    ],
)
def test_a_name_is_read_or_absent(answer: Any, text: str | None) -> None:
    assert to_text(answer) == text
