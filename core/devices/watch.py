"""The panel's side of the reader: keeps one running, and always has a sample to give, with its age."""

import asyncio
import os
import sys
import time
from dataclasses import replace

from specpanel.core.devices.child import Deadlines, ReaderGone, ReaderProcess
from specpanel.core.devices.records import (
    DeviceInventory,
    DeviceReading,
    DeviceSample,
    ReaderState,
)
from specpanel.core.devices.wire import Inventory

PERIOD_S = 1.0
PYTHON_VARIABLE = "SPECPANEL_DEVICE_PYTHON"
# amdsmi has a stand-in (the driver's files), so it is left out when it does nothing but harm.
_AMDSMI_FAILURES = 3


class DeviceWatch:
    """Reads the devices of this machine through a child process until ``run`` is cancelled.

    Nothing here blocks: a hanging driver costs a deadline in the child, and `sample` tells how old its
    figures are.

    Args:
        python: the interpreter of the reader, any Python of 3.10 or newer; absent, the one that
            ``SPECPANEL_DEVICE_PYTHON`` names, else this one.
        deadlines: how long to wait for what.
        period_s: between two questions.
    """

    def __init__(
        self,
        *,
        python: str | None = None,
        deadlines: Deadlines | None = None,
        period_s: float = PERIOD_S,
    ) -> None:
        self._python = python or os.environ.get(PYTHON_VARIABLE) or sys.executable
        self._deadlines = deadlines or Deadlines()
        self._period_s = period_s
        self._state: ReaderState = "starting"
        self._reason: str | None = None
        self._readings: tuple[DeviceReading, ...] = ()
        self.answered_s: float | None = None  # monotonic
        self._asked_s: float | None = None
        self._processes = False
        self._without_amdsmi: str | None = None
        self._amdsmi_failures = 0
        self._news = asyncio.Event()
        self.inventory: DeviceInventory | None = None
        self.starts = 0
        self.pid: int | None = None
        self.said = ""  # what the vendors' libraries printed last
        self.slowed_s: dict[str, float] = {}
        self.took_ms = 0.0  # the newest reading, in the reader

    def want_processes(self, wanted: bool) -> None:
        """Read the lists of processes, every five seconds, while someone looks at them."""
        self._processes = wanted

    def sample(self) -> DeviceSample:
        """What is known now; never waits."""
        now_s = time.monotonic()
        inventory = self.inventory or DeviceInventory()
        age_s = None if self.answered_s is None else now_s - self.answered_s
        state, reason = self._state, self._reason
        late = age_s is not None and age_s >= self._deadlines.silent_s
        if state == "ok" and late:
            state = "stale"
            reason = f"the driver has not answered for {age_s:.0f} s"
        if state == "starting" and self._asked_s is not None:
            waited_s = now_s - self._asked_s
            if waited_s >= self._deadlines.silent_s:
                reason = f"the drivers have not answered for {waited_s:.0f} s"
        readings = self._readings
        if readings and (late or state == "restarting"):
            readings = tuple(_stale(reading, age_s) for reading in readings)
        return DeviceSample(
            time_unix=time.time(),
            state=state,
            age_s=None if age_s is None else round(age_s, 2),
            reason=reason,
            devices=inventory.devices,
            readings=readings,
        )

    async def settled(self, timeout_s: float) -> DeviceSample:
        """The first sample with figures, or with the news that there are none; what there is at the end.

        For commands that ask once; ``run`` must be running.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            pass
        return self.sample()

    async def run(self) -> None:
        """Keep a reader, through crashes and hangs, until cancelled; then end it."""
        wait_s = self._deadlines.again_s
        while True:
            began_s = time.monotonic()
            try:
                await self._one_life()
                wait_s = self._deadlines.again_s
                await asyncio.sleep(self._deadlines.empty_again_s)
            except OSError as error:
                self._state = "none" if self.inventory is None else "restarting"
                self._reason = f"the reader {self._python} cannot be started: {error.strerror}"
                self._news.set()
                await asyncio.sleep(self._deadlines.again_most_s)
            except ReaderGone as gone:
                if time.monotonic() - began_s >= self._deadlines.healthy_s:
                    wait_s = self._deadlines.again_s
                    self._amdsmi_failures = 0
                self._blame(gone)
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, self._deadlines.again_most_s)

    async def _one_life(self) -> None:
        """Until there is nothing to read. Raises ReaderGone when the reader dies or hangs."""
        self._asked_s = time.monotonic()
        starting = asyncio.ensure_future(
            ReaderProcess.start(
                self._python, period_s=self._period_s, without_amdsmi=self._without_amdsmi
            )
        )
        try:
            reader = await asyncio.shield(starting)
        except asyncio.CancelledError:
            await self._end(await starting)  # a child that is half started is still a child
            raise
        self.starts += 1
        self.pid = reader.pid
        try:
            while not isinstance(message := await reader.line(self._deadlines), Inventory):
                pass
            self._take(message.inventory)
            if message.inventory.devices:
                await self._follow(reader)
        finally:
            self.pid = None
            await self._end(reader)

    def _take(self, inventory: DeviceInventory) -> None:
        self.inventory = inventory
        known = {device.uuid for device in inventory.devices}
        self._readings = tuple(reading for reading in self._readings if reading.uuid in known)
        if not inventory.devices:
            self._state, self._reason, self.answered_s = "none", inventory.why_none, None
            self._news.set()

    async def _follow(self, reader: ReaderProcess) -> None:
        due_s = time.monotonic()
        while True:
            answer = await reader.ask(self._deadlines, processes=self._processes)
            self.answered_s = time.monotonic()
            self._readings = answer.readings
            self._state, self._reason = "ok", None
            self.slowed_s = answer.slowed_s
            self.took_ms = answer.took_ms
            self.said = answer.said or self.said
            self._news.set()
            due_s = max(due_s + self._period_s, time.monotonic() - self._period_s)
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))

    def _blame(self, gone: ReaderGone) -> None:
        self._state = "restarting"
        self._reason = f"the device reader is started anew: {gone.words}"
        if gone.last.library != "amdsmi":
            return
        self._amdsmi_failures += 1
        starting = "init" in gone.last.name
        if self._amdsmi_failures >= _AMDSMI_FAILURES or (gone.hung and starting):
            self._without_amdsmi = f"left out: {gone.words}"

    async def _end(self, reader: ReaderProcess) -> None:
        """End the reader, also while being cancelled: nothing of it is left behind."""
        ending = asyncio.ensure_future(reader.end())
        try:
            gone = await asyncio.shield(ending)
        except asyncio.CancelledError:
            if await ending:
                reader.release()
            raise
        if not gone:
            # It hangs in the driver and cannot be killed. A second one would only hang beside it.
            self._state = "stale"
            self._reason = f"the driver does not let go of the reader (pid {reader.pid})"
            await reader.wait()
        reader.release()


def read_once(
    *,
    python: str | None = None,
    deadlines: Deadlines | None = None,
    wait_s: float = 20.0,
    processes: bool = False,
) -> tuple[DeviceSample, DeviceInventory | None]:
    """One sample and the inventory, for commands; blocking. The inventory is None where nothing answered."""

    async def once() -> tuple[DeviceSample, DeviceInventory | None]:
        watch = DeviceWatch(python=python, deadlines=deadlines)
        watch.want_processes(processes)
        running = asyncio.create_task(watch.run())
        try:
            return await watch.settled(wait_s), watch.inventory
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    return asyncio.run(once())


def _stale(reading: DeviceReading, age_s: float | None) -> DeviceReading:
    if reading.state != "ok":
        return reading
    return replace(reading, state="stale", age_s=None if age_s is None else round(age_s, 1))
