"""After a stop the next start waits until device memory has come back (d28)."""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from specpanel.core.devices.records import DeviceReading, DeviceSample
from specpanel.core.monitor.frame import Frame, ScrapeSample, ServerSample
from specpanel.core.session.settling import until_memory_is_steady, used_device_bytes

GIB = 1 << 30
FRAME = Frame(
    0.0,
    0.0,
    0,
    ServerSample("stopped", None, "http://h:1", *[None] * 9),
    ScrapeSample("ok", 0.1, 2.0, None),
    *[None] * 6,
)  # fmt: skip


def falling(*gib: float) -> tuple[Callable[[], int | None], list[int]]:
    """Memory that takes these values, one a look, and then stands; and what was looked at."""
    values: Iterator[float] = iter(gib)
    seen: list[int] = []

    def used() -> int:
        seen.append(int(next(values, gib[-1]) * GIB))
        return seen[-1]

    return used, seen


async def wait(used: Callable[[], int | None], stop: asyncio.Event | None = None, **more: float):
    times = {"steady_s": 0.1, "most_s": 5.0, "look_s": 0.01} | more
    return await until_memory_is_steady(used, stop or asyncio.Event(), **times)


async def test_d28_it_waits_as_long_as_memory_comes_back():
    used, seen = falling(71, 60, 40, 12, 1)
    began = time.monotonic()
    assert await wait(used)
    assert seen[:5] == [71 * GIB, 60 * GIB, 40 * GIB, 12 * GIB, 1 * GIB]
    assert time.monotonic() - began >= 0.1


async def test_memory_that_never_stands_still_is_told():
    numbers = iter(range(10_000))
    assert await wait(lambda: next(numbers) * GIB, most_s=0.2) is False


async def test_a_drivers_own_bookkeeping_is_no_change():
    numbers = iter(range(10_000))
    assert await wait(lambda: GIB + next(numbers) % 2 * (1 << 20), most_s=2.0)


async def test_without_devices_nothing_is_waited_for():
    began = time.monotonic()
    assert await wait(lambda: None, steady_s=60.0)
    assert time.monotonic() - began < 5


async def test_an_interrupt_ends_the_wait():
    stop = asyncio.Event()
    stop.set()
    began = time.monotonic()
    await wait(lambda: GIB, stop, steady_s=60.0)
    assert time.monotonic() - began < 5


def test_used_memory_is_the_sum_and_absent_where_one_device_does_not_tell():
    readings = tuple(DeviceReading(str(n), memory_used_bytes=n * GIB) for n in (1, 2))
    sample = DeviceSample(0.0, "ok", readings=readings)
    assert used_device_bytes(replace(FRAME, devices=sample)) == 3 * GIB
    silent = (*readings, DeviceReading("3"))
    assert used_device_bytes(replace(FRAME, devices=replace(sample, readings=silent))) is None
    assert used_device_bytes(FRAME) is None
    assert used_device_bytes(None) is None
