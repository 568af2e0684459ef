"""NVIDIA devices through NVML (the Python package nvidia-ml-py, imported as ``pynvml``).

Lives in the reader process. Which call gives which figure stands in docs/devices.md.
"""

import importlib
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from specpanel.core.devices import nvml_words as words
from specpanel.core.devices.blackbox import BlackBox
from specpanel.core.devices.calls import Calls, Failed
from specpanel.core.devices.fields import to_number, to_text
from specpanel.core.devices.gathering import Gathered
from specpanel.core.devices.nvml_figures import NvmlCard, NvmlFigures
from specpanel.core.devices.records import (
    Device,
    DeviceInventory,
    DeviceLibrary,
    DeviceReading,
    LibraryState,
    Tier,
)
from specpanel.core.devices.system import host_memory

NAME = "NVML"
_PROFILE = re.compile(r"\bMIG (\S+)")
_ASK_AGAIN_MOST_S = 60.0
_SLOTS_FOR_MIG = 8


class NvidiaBackend:
    """NVML as a `Backend`. Any figure of any device may fail without costing another."""

    name = NAME

    def __init__(self, box: BlackBox, root: Path) -> None:
        self._call = Calls(NAME, box, lambda error: getattr(error, "value", None))
        self._root = root
        self._nvml: Any = None
        self._cards: list[NvmlCard] = []

    def probe(self) -> DeviceInventory:
        library = self._open()
        if library.state != "used":
            return DeviceInventory((), (library,))
        self._figures = NvmlFigures(self._nvml, self._call, self._root)
        self._cards = self._find()
        if not self._cards:
            counted = self._one("nvmlDeviceGetCount")
            why = "NVML lists no device"
            if isinstance(counted, Failed):
                why = f"NVML cannot count its devices: {words.words_of(counted.code, counted.text)}"
            return DeviceInventory((), (replace(library, reason=why),))
        tiers: tuple[Tier, ...] = ("fast", "slow", "processes")
        for tier in tiers:  # what each call costs here is known only after it was made
            self.read(tier)
        self._call.measuring = False
        return DeviceInventory(
            tuple(card.device for card in self._cards),
            (replace(library, costs=self._call.costs()),),
        )

    def read(self, tier: Tier) -> tuple[DeviceReading, ...]:
        return tuple(self._read(card, tier) for card in self._cards)

    # Opening and finding

    def _open(self) -> DeviceLibrary:
        try:
            self._nvml = importlib.import_module("pynvml")
        except Exception as error:  # noqa: BLE001 - a broken package is a reason, not a crash
            reason = "the Python package nvidia-ml-py is not installed"
            if not isinstance(error, ModuleNotFoundError):
                reason = f"the Python package nvidia-ml-py is broken: {error}"
            return DeviceLibrary(NAME, "nvidia", "absent", reason=reason)
        binding = _binding(self._nvml)
        begun = self._call("slow", self._function("nvmlInit"))
        if isinstance(begun, Failed):
            reason, fix = words.INIT_FAILURES.get(begun.code or 0, (begun.text, ""))
            state: LibraryState = "absent" if begun.code == words.NO_LIBRARY else "failed"
            return DeviceLibrary(
                NAME, "nvidia", state, binding=binding, reason=reason, fix=fix or None
            )
        return DeviceLibrary(
            NAME,
            "nvidia",
            "used",
            version=_text(self._call("slow", self._function("nvmlSystemGetNVMLVersion"))),
            binding=binding,
            driver=_text(self._call("slow", self._function("nvmlSystemGetDriverVersion"))),
        )

    def _function(self, name: str) -> Any:
        return getattr(self._nvml, name, None)

    def _one(self, name: str, *arguments: Any, of: str = "") -> Any:
        return self._call("slow", self._function(name), *arguments, of=of)

    def _find(self) -> list[NvmlCard]:
        count = to_number(_or_none(self._one("nvmlDeviceGetCount"))) or 0
        cards = [self._card(number) for number in range(int(count))]
        if all(card.device.bus_id for card in cards):
            cards.sort(key=lambda card: str(card.device.bus_id))
        found = []
        for number, card in enumerate(cards):
            card.device = replace(card.device, index=number)
            found += [card, *self._slices(card)]
        return found

    def _card(self, number: int) -> NvmlCard:
        label = str(number)
        handle = self._one("nvmlDeviceGetHandleByIndex", number, of=label)
        if isinstance(handle, Failed):
            why = words.LOST.get(handle.code or 0, words.words_of(handle.code, handle.text))
            device = Device(f"nvidia-{number}", "nvidia", "gpu", number, f"GPU {number} (lost)")
            return NvmlCard(device, None, lost=why)
        pci = self._one("nvmlDeviceGetPciInfo", handle, of=label)
        bus_id = None if isinstance(pci, Failed) else to_text(getattr(pci, "busId", None))
        uuid = _text(self._one("nvmlDeviceGetUUID", handle, of=label))
        name = _text(self._one("nvmlDeviceGetName", handle, of=label))
        mode = self._one("nvmlDeviceGetMigMode", handle, of=label)
        cuda = _or_none(self._one("nvmlDeviceGetCudaComputeCapability", handle, of=label))
        in_mig = not isinstance(mode, Failed) and bool(mode) and to_number(mode[0]) == 1
        device = Device(
            uuid=uuid or f"nvidia-{bus_id or number}",
            vendor="nvidia",
            kind="gpu",
            index=number,
            name=name or f"GPU {number} (unreadable name)",
            bus_id=_as_linux(bus_id),
            compute_capability=".".join(str(part) for part in cuda) if cuda else None,
        )
        card = NvmlCard(device, handle, in_mig)
        if self._is_unified(card):
            card.device = replace(device, memory_kind="unified")
        return card

    def _is_unified(self, card: NvmlCard) -> bool:
        info = self._figures.memory(card)
        total = None if isinstance(info, Failed) else to_number(getattr(info, "total", None))
        return words.is_unified(card.device.name, total, host_memory(self._root).total_bytes)

    def _slices(self, card: NvmlCard) -> list[NvmlCard]:
        if not card.in_mig:
            return []
        label = card.device.label
        most = to_number(_or_none(self._one("nvmlDeviceGetMaxMigDeviceCount", card.handle)))
        found: list[NvmlCard] = []
        for number in range(int(most or _SLOTS_FOR_MIG)):
            handle = self._one("nvmlDeviceGetMigDeviceHandleByIndex", card.handle, number, of=label)
            if isinstance(handle, Failed):
                continue  # numbers have holes where no slice was made
            uuid = _text(self._one("nvmlDeviceGetUUID", handle, of=label))
            # The slice's own handle, not its card's: memory is the slice's only through this one.
            own = self._one("nvmlDeviceGetHandleByUUID", uuid, of=label) if uuid else handle
            name = _text(self._one("nvmlDeviceGetName", handle, of=label)) or card.device.name
            profile = _PROFILE.search(name)
            device = Device(
                uuid=uuid or f"{card.device.uuid}-mig-{number}",
                vendor="nvidia",
                kind="mig",
                index=len(found),
                name=name,
                bus_id=card.device.bus_id,
                parent_uuid=card.device.uuid,
                parent_index=card.device.index,
                partition=profile[1] if profile else None,
                compute_capability=card.device.compute_capability,
            )
            found.append(NvmlCard(device, handle if isinstance(own, Failed) else own, True))
        return found

    # Reading

    def _read(self, card: NvmlCard, tier: Tier) -> DeviceReading:
        gathered = Gathered(card.device.uuid)
        if card.lost and not self._found_again(card):
            gathered.state, gathered.reason = "lost", card.lost
            return gathered.reading()
        self._figures.gather(card, tier, gathered)
        if card.lost:
            gathered.state, gathered.reason = "lost", card.lost
        elif gathered.state == "ok" and gathered.values:
            card.worked = True
        return gathered.reading()

    def _found_again(self, card: NvmlCard) -> bool:
        now_s = time.monotonic()
        if now_s < card.ask_again_s:
            return False
        card.wait_s = min(card.wait_s * 2, _ASK_AGAIN_MOST_S)
        card.ask_again_s = now_s + card.wait_s
        if card.handle is None:
            handle = self._one("nvmlDeviceGetHandleByIndex", card.device.index)
            if isinstance(handle, Failed):
                return False
            card.handle = handle
        card.lost = None
        return True


def _as_linux(bus_id: str | None) -> str | None:
    """``00000000:1B:00.0`` as Linux writes it: ``0000:1b:00.0``."""
    if bus_id is None:
        return None
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain[-4:] if domain.startswith('0000') else domain}:{rest}"


def _or_none(answer: Any) -> Any:
    return None if isinstance(answer, Failed) else answer


def _text(answer: Any) -> str | None:
    return None if isinstance(answer, Failed) else to_text(answer)


def _binding(module: Any) -> str | None:
    """The version of the package, from the name of its folder: importlib.metadata would cost 3 MB."""
    home = Path(getattr(module, "__file__", None) or ".").parent
    names = sorted(home.glob("nvidia_ml_py-*.dist-info"))
    return names[-1].name.split("-")[1].removesuffix(".dist") if names else None
