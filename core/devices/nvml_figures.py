"""What NVML says of one device, call by call."""

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from specpanel.core.devices import nvml_words as words
from specpanel.core.devices.calls import Calls, Failed
from specpanel.core.devices.fields import SLOW, measure, to_number
from specpanel.core.devices.gathering import Gathered
from specpanel.core.devices.records import Device, Tier
from specpanel.core.devices.system import host_memory, real_processes

ASK_AGAIN_S = 5.0
_GPU_SENSOR = 0
# The second replaces the first, which CUDA 14 will no longer have.
_TEMPERATURE = ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV")
_CLOCK_SM, _CLOCK_MEM = 1, 2
_FIELD_MEMORY_TEMPERATURE = 82
_MEMORY_WARMTH = ([_FIELD_MEMORY_TEMPERATURE],)
_REFUSED = Failed(words.NOT_SUPPORTED, "not supported")
_MEMORY_V2 = 0x02000028
_MILLI = 1e-3
_UNIFIED_AGAIN_S = 5.0
_OF_THE_CARD = "of the whole card"


@dataclass(slots=True)
class NvmlCard:
    """A card or a slice with its handle, and what was learnt of it on the way."""

    device: Device
    handle: Any
    in_mig: bool = False
    lost: str | None = None
    wait_s: float = ASK_AGAIN_S
    ask_again_s: float = 0.0
    worked: bool = False
    refused: dict[str, Failed] = field(default_factory=dict)  # calls not made again
    unified_used_bytes: float | None = None
    unified_read_s: float = -1e9


class NvmlFigures:
    """Gathers one tier of one device. ``nvml`` is the module ``pynvml``, opened."""

    def __init__(self, nvml: Any, call: Calls, root: Path) -> None:
        self._nvml = nvml
        self._call = call
        self._root = root
        self._opened_again = False
        self._v2 = True

    def gather(self, card: NvmlCard, tier: Tier, gathered: Gathered) -> None:
        if tier == "fast":
            self._fast(card, gathered)
        elif tier == "slow":
            self._slow(card, gathered)
        else:
            self._processes(card, gathered)

    def _ask(
        self,
        card: NvmlCard,
        gathered: Gathered,
        tier: Tier,
        names: tuple[str, ...],
        *arguments: Any,
    ) -> Any:
        """The answer of the first call among ``names`` that driver and package know, or a `Failed`."""
        answer: Any = Failed(None, "this release has no such call")
        if card.lost or gathered.state != "ok":
            return Failed(None, gathered.reason or "not asked")
        for name in names:
            asked = f"{name}{arguments}"
            if asked in card.refused:
                answer = card.refused[asked]
                continue
            answer = self._call(
                tier, getattr(self._nvml, name, None), card.handle, *arguments, of=card.device.label
            )
            if isinstance(answer, Failed) and answer.code == words.UNINITIALIZED:
                answer = self._once_more(card, tier, name, arguments, answer)
            if not isinstance(answer, Failed):
                return answer
            if answer.code in (words.NOT_SUPPORTED, words.NO_FUNCTION):
                card.refused[asked] = answer
            self._judge(card, gathered, answer)
            if card.lost or gathered.state != "ok":
                break
        return replace(answer, text=words.words_of(answer.code, answer.text))

    def _once_more(
        self, card: NvmlCard, tier: Tier, name: str, arguments: tuple[Any, ...], failed: Failed
    ) -> Any:
        """NVML forgot that it was opened: open it once more, once in this process's life."""
        if self._opened_again:
            return failed
        self._opened_again = True
        self._call("slow", getattr(self._nvml, "nvmlInit", None))
        return self._call(
            tier, getattr(self._nvml, name, None), card.handle, *arguments, of=card.device.label
        )

    def _judge(self, card: NvmlCard, gathered: Gathered, failed: Failed) -> None:
        if failed.code in words.LOST:
            card.lost = words.LOST[failed.code]
            card.ask_again_s = time.monotonic() + card.wait_s
        elif failed.code == words.UNKNOWN and card.worked:
            gathered.state, gathered.reason = "stale", words.CONTAINER_LOST

    def _fast(self, card: NvmlCard, gathered: Gathered) -> None:
        rates = self._ask(card, gathered, "fast", ("nvmlDeviceGetUtilizationRates",))
        for name, part in (("utilisation_percent", "gpu"), ("memory_activity_percent", "memory")):
            if isinstance(rates, Failed) and card.in_mig:
                gathered.missing(name, "MIG")
            else:
                gathered.figure(name, _part(rates, part))
        if card.device.memory_kind == "unified":
            self._unified(card, gathered)
            return
        info = self.memory(card, gathered)
        gathered.figure("memory_used_bytes", _part(info, "used"))
        gathered.figure("memory_total_bytes", _part(info, "total"))

    def memory(self, card: NvmlCard, gathered: Gathered | None = None) -> Any:
        """Memory without what the driver keeps for itself (version 2), or with it where there is no other."""
        gathered = gathered or Gathered(card.device.uuid)
        name = ("nvmlDeviceGetMemoryInfo",)
        if self._v2:
            info = self._ask(card, gathered, "fast", name, _MEMORY_V2)
            if not isinstance(info, Failed):
                return info
        info = self._ask(card, gathered, "fast", name)
        if not isinstance(info, Failed):
            self._v2 = False
        return info

    def _unified(self, card: NvmlCard, gathered: Gathered) -> None:
        """What the device uses, by its processes, and what the host could still give it."""
        now_s = time.monotonic()
        if now_s - card.unified_read_s >= _UNIFIED_AGAIN_S:
            card.unified_read_s = now_s
            listed = self._ask(card, gathered, "fast", ("nvmlDeviceGetComputeRunningProcesses",))
            card.unified_used_bytes = None
            if not isinstance(listed, Failed):
                sizes = [to_number(getattr(one, "usedGpuMemory", None)) for one in listed]
                card.unified_used_bytes = sum(size for size in sizes if size is not None)
        available = host_memory(self._root).available_bytes
        if card.unified_used_bytes is None or available is None:
            gathered.missing("memory_used_bytes", "unified memory, and no process list")
            gathered.missing("memory_total_bytes", "unified memory, and no process list")
            return
        gathered.figure("memory_used_bytes", card.unified_used_bytes)
        gathered.figure("memory_total_bytes", card.unified_used_bytes + available)

    def _slow(self, card: NvmlCard, gathered: Gathered) -> None:
        if card.device.kind == "mig":
            for name in SLOW:
                gathered.missing(name, _OF_THE_CARD)
            return
        power = self._ask(card, gathered, "slow", ("nvmlDeviceGetPowerUsage",))
        if gathered.figure("power_w", power, unit=_MILLI):
            gathered.put("power_source", "nvmlDeviceGetPowerUsage")
        limits = ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit")
        limit = self._ask(card, gathered, "slow", limits)
        gathered.figure("power_limit_w", limit, unit=_MILLI)
        warmth = self._ask(card, gathered, "slow", _TEMPERATURE, _GPU_SENSOR)
        if gathered.figure("temperature_c", warmth, unit=1.0):
            gathered.put("temperature_source", "core")
        self._memory_temperature(card, gathered)
        for name, kind in (("core_clock_mhz", _CLOCK_SM), ("memory_clock_mhz", _CLOCK_MEM)):
            gathered.figure(
                name, self._ask(card, gathered, "slow", ("nvmlDeviceGetClockInfo",), kind)
            )
        bits = self._ask(
            card,
            gathered,
            "slow",
            (
                "nvmlDeviceGetCurrentClocksEventReasons",
                "nvmlDeviceGetCurrentClocksThrottleReasons",
            ),
        )
        number = None if isinstance(bits, Failed) else to_number(bits)
        if number is None or not 0 <= number < 2**63:
            gathered.missing("throttle_reasons", getattr(bits, "text", "not given"))
        else:
            gathered.put("throttle_reasons", words.throttle_reasons(int(number)))

    def _memory_temperature(self, card: NvmlCard, gathered: Gathered) -> None:
        name = "memory_temperature_c"
        found = self._ask(card, gathered, "slow", ("nvmlDeviceGetFieldValues",), *_MEMORY_WARMTH)
        if isinstance(found, Failed):
            gathered.missing(name, found.text)
            return
        first = found[0] if found else None
        if first is None or getattr(first, "nvmlReturn", 1) != 0:
            gathered.missing(name, "not supported")
            card.refused[f"nvmlDeviceGetFieldValues{_MEMORY_WARMTH}"] = _REFUSED
            return
        # Memory without a sensor answers 0, which no running memory has.
        value, why = measure(name, getattr(first.value, "uiVal", None), unit=1.0)
        if value:
            gathered.put(name, value)
        else:
            gathered.missing(name, why or "not supported")

    def _processes(self, card: NvmlCard, gathered: Gathered) -> None:
        if card.in_mig and card.device.kind == "gpu":
            gathered.missing("processes", "in its slices")
            return
        listed = self._ask(card, gathered, "processes", ("nvmlDeviceGetComputeRunningProcesses",))
        if isinstance(listed, Failed):
            if listed.code == words.NOT_FOUND:  # nothing runs
                gathered.put("processes", ())
            else:
                gathered.missing("processes", listed.text)
            return
        info = self.memory(card, gathered)
        total = None if isinstance(info, Failed) else to_number(getattr(info, "total", None))
        if card.device.memory_kind == "unified":
            total = host_memory(self._root).total_bytes
        entries = [
            (getattr(one, "pid", None), getattr(one, "usedGpuMemory", None)) for one in listed
        ]
        here, wrong = real_processes(
            entries, memory_total_bytes=int(total) if total else None, root=self._root
        )
        gathered.put("processes", here)
        if wrong:
            gathered.absent["processes"] = wrong


def _part(answer: Any, name: str) -> Any:
    return answer if isinstance(answer, Failed) else getattr(answer, name, answer)
