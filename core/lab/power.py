"""Mean power of the devices that an arm uses, while its blocks are measured."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from specpanel.core.devices.records import DeviceSample
from specpanel.core.devices.watch import DeviceWatch
from specpanel.core.speculation.cost import PowerFound

PERIOD_S = 1.0
ON_A_CPU = "the power of a CPU is not known here: no device reader tells it"
_FEWEST_SHARE = 0.8  # of the measured time that readings must cover

Used = Callable[[DeviceSample], Sequence[str] | None]
"""The devices that count, by uuid; None where that is not known."""


@dataclass(slots=True)
class PowerLog:
    """Readings over time. ``watts`` is None where a device did not tell its power at that moment."""

    reason: str | None = None  # why there never is one
    times_s: list[float] = field(default_factory=list)
    watts: list[float | None] = field(default_factory=list)

    def take(self, time_s: float, watts: float | None) -> None:
        self.times_s.append(time_s)
        self.watts.append(watts)

    def over(self, spans: Sequence[tuple[float, float]]) -> PowerFound:
        """The mean over some spans of time, each reading standing for the time until the next one."""
        if self.reason is not None:
            return PowerFound(None, self.reason)
        whole = sum(end - begin for begin, end in spans)
        joules = covered_s = 0.0
        for place, (began_s, watts) in enumerate(zip(self.times_s, self.watts, strict=True)):
            if watts is None:
                continue
            following = self.times_s[place + 1 : place + 2]
            until_s = following[0] if following else began_s + PERIOD_S
            for begin, end in spans:
                shared_s = min(end, until_s) - max(begin, began_s)
                if shared_s > 0:
                    joules += watts * shared_s
                    covered_s += shared_s
        if whole <= 0 or covered_s < _FEWEST_SHARE * whole:
            told = covered_s / whole if whole > 0 else 0.0
            return PowerFound(None, f"the devices told their power for {told:.0%} of the time only")
        return PowerFound(joules / covered_s, None)


def watts_of(sample: DeviceSample, used: Sequence[str] | None) -> float | None:
    """The power of these devices together, in watts; None where one of them does not tell its own."""
    if not used or sample.state != "ok":
        return None
    told = {reading.uuid: reading.power_w for reading in sample.readings}
    shared = {device.uuid: device.power_shared_with_uuid for device in sample.devices}
    counted = {shared.get(uuid) or uuid for uuid in used}
    watts = [told.get(uuid) for uuid in counted]
    known = [each for each in watts if each is not None]
    return sum(known) if len(known) == len(watts) else None


@asynccontextmanager
async def metered(used: Used, *, watch: DeviceWatch | None = None) -> AsyncIterator[PowerLog]:
    """Read the devices once a second until the end."""
    devices = watch or DeviceWatch()
    log = PowerLog()
    tasks = [asyncio.create_task(_follow(devices, used, log))]
    if watch is None:
        tasks.append(asyncio.create_task(devices.run()))
    try:
        yield log
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


async def _follow(devices: DeviceWatch, used: Used, log: PowerLog) -> None:
    while True:
        sample = devices.sample()
        log.take(time.monotonic(), watts_of(sample, used(sample)))
        await asyncio.sleep(PERIOD_S)
