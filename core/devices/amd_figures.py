"""What amdsmi says of one device, call by call."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from specpanel.core.devices import amd_words as words
from specpanel.core.devices.amd_cards import AmdCard
from specpanel.core.devices.calls import Calls, Failed
from specpanel.core.devices.fields import measure
from specpanel.core.devices.gathering import Gathered
from specpanel.core.devices.records import Tier
from specpanel.core.devices.system import real_processes

_MEBI = 2**20
_SENSORS = (("junction", ("JUNCTION", "HOTSPOT")), ("edge", ("EDGE",)), ("memory", ("VRAM",)))
_MEMORY_SENSORS = ("VRAM", "HBM_0")


class AmdsmiFigures:
    """Gathers one tier of one device. ``smi`` is the module, whatever release of it this is."""

    def __init__(self, smi: Any, call: Calls, root: Path) -> None:
        self._smi = smi
        self._call = call
        self._root = root

    def gather(self, card: AmdCard, tier: Tier, gathered: Gathered) -> None:
        if tier == "fast":
            self._fast(card, gathered)
        elif tier == "slow":
            self._slow(card, gathered)
        else:
            self._processes(card, gathered)

    def _ask(
        self, card: AmdCard, gathered: Gathered, tier: Tier, name: str, *arguments: Any
    ) -> Any:
        if name in card.refused:
            return card.refused[name]
        if gathered.state != "ok":
            return Failed(words.BUSY, "asleep")
        answer = self._call(
            tier, getattr(self._smi, name, None), card.handle, *arguments, of=card.device.label
        )
        if not isinstance(answer, Failed):
            return answer
        answer = replace(answer, text=words.words_of(answer.code, answer.text))
        if answer.code == words.BUSY:
            gathered.state, gathered.reason = "asleep", "busy: it sleeps, and reading would wake it"
        elif not arguments and answer.code in (words.NOT_SUPPORTED, words.NOT_YET_IMPLEMENTED):
            card.refused[name] = answer
        return answer

    def _fast(self, card: AmdCard, gathered: Gathered) -> None:
        activity = self._ask(card, gathered, "fast", "amdsmi_get_gpu_activity")
        given = mapping(activity)
        for name in ("gfx_activity", "umc_activity", "mm_activity"):
            value, _ = measure("utilisation_percent", given.get(name))
            if value is not None:
                gathered.vendor_fields[name] = value
        busy = _item(activity, "gfx_activity", "gfx_busy_inst") if given else activity
        gathered.figure("utilisation_percent", busy)
        gathered.figure("memory_activity_percent", _item(activity, "umc_activity"))
        usage = self._ask(card, gathered, "fast", "amdsmi_get_gpu_vram_usage")
        if card.device.memory_kind == "unified" and card.files is not None:
            return  # the files know of the memory that is shared with the host as well
        gathered.figure("memory_used_bytes", _item(usage, "vram_used"), unit=_MEBI)
        gathered.figure("memory_total_bytes", _item(usage, "vram_total"), unit=_MEBI)

    def _slow(self, card: AmdCard, gathered: Gathered) -> None:
        power = self._ask(card, gathered, "slow", "amdsmi_get_power_info")
        # Which of them holds the power depends on the generation; the others are "N/A" or 65535.
        for name in words.POWER_FIELDS:
            value, _ = measure("power_w", _item(power, name), unit=1.0)
            if value is not None:
                gathered.vendor_fields[name] = value
            if not gathered.has("power_w") and gathered.figure(
                "power_w", _item(power, name), unit=1.0
            ):
                gathered.put("power_source", name)
        if not gathered.figure("power_limit_w", _item(power, "power_limit")):
            cap = self._ask(card, gathered, "slow", "amdsmi_get_power_cap_info")
            gathered.figure("power_limit_w", _item(cap, "power_cap"))
        self._temperatures(card, gathered)
        for kind, field_name in (("GFX", "core_clock_mhz"), ("MEM", "memory_clock_mhz")):
            clock = self._typed(card, gathered, "amdsmi_get_clock_info", "AmdSmiClkType", kind)
            gathered.figure(field_name, _item(clock, "clk", "cur_clk"))
        self._throttling(card, gathered)

    def _temperatures(self, card: AmdCard, gathered: Gathered) -> None:
        for source, names in _SENSORS:
            if any(self._warmth(card, gathered, "temperature_c", name) for name in names):
                gathered.put("temperature_source", source)
                break
        for name in _MEMORY_SENSORS:
            if self._warmth(card, gathered, "memory_temperature_c", name):
                break

    def _warmth(self, card: AmdCard, gathered: Gathered, field_name: str, sensor: str) -> bool:
        now = getattr(getattr(self._smi, "AmdSmiTemperatureMetric", None), "CURRENT", None)
        answer = self._typed(
            card, gathered, "amdsmi_get_temp_metric", "AmdSmiTemperatureType", sensor, now
        )
        return gathered.figure(field_name, answer)

    def _typed(
        self, card: AmdCard, gathered: Gathered, name: str, kind: str, member: str, *more: Any
    ) -> Any:
        """A call that takes a member of one of amdsmi's enumerations, where this release has it."""
        refused = f"{name} {member}"
        chosen = getattr(getattr(self._smi, kind, None), member, None)
        if chosen is None:
            return Failed(words.NOT_SUPPORTED, "not supported")
        if refused in card.refused:
            return card.refused[refused]
        answer = self._ask(card, gathered, "slow", name, chosen, *more)
        if isinstance(answer, Failed) and answer.code == words.NOT_SUPPORTED:
            card.refused[refused] = answer
        return answer

    def _throttling(self, card: AmdCard, gathered: Gathered) -> None:
        name = "throttle_reasons"
        metrics = self._ask(card, gathered, "slow", "amdsmi_get_gpu_metrics_info")
        if not isinstance(metrics, Mapping):
            gathered.missing(name, getattr(metrics, "text", "not given"))
            return
        before = card.limits
        card.limits, grew = words.limits_that_grew(before, metrics)
        if card.limits and not before:
            gathered.missing(name, "known from the second reading on")
        elif card.limits:
            gathered.put(name, tuple(grew))
        elif isinstance(metrics.get("throttle_status"), bool):
            gathered.put(name, ("throttled",) if metrics["throttle_status"] else ())
        else:
            gathered.missing(name, "not given")

    def _processes(self, card: AmdCard, gathered: Gathered) -> None:
        listed = self._ask(card, gathered, "processes", "amdsmi_get_gpu_process_list")
        if not isinstance(listed, list | tuple):
            gathered.missing("processes", getattr(listed, "text", "not given"))
            return
        entries = []
        for one in listed:
            facts = mapping(one)
            memory = mapping(facts.get("memory_usage")).get("vram_mem", facts.get("mem"))
            entries.append((facts.get("pid"), memory))
        here, wrong = real_processes(entries, memory_total_bytes=None, root=self._root)
        gathered.put("processes", here)
        if wrong:
            gathered.absent["processes"] = wrong


def mapping(answer: Any) -> Mapping[str, Any]:
    """A vendor's mapping, or an empty one where the answer is none (a failure, "N/A")."""
    return answer if isinstance(answer, Mapping) else {}


def _item(answer: Any, *names: str) -> Any:
    """The first of ``names`` that a mapping holds; a failure stays the failure it is."""
    if isinstance(answer, Failed):
        return answer
    given = mapping(answer)
    return next((given[name] for name in names if name in given), None)
