"""AMD devices through amdsmi, with the driver's own files for what it does not give.

Lives in the reader process. amdsmi must fit the ROCm of the machine: what ROCm itself installed is taken
before what pip did, and where neither works the files alone are read.
"""

import importlib
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from specpanel.core.devices import amd_words as words
from specpanel.core.devices.amd_cards import (
    AmdCard,
    arranged,
    cards_of_files,
    gather_whole,
    say_where,
)
from specpanel.core.devices.amd_figures import AmdsmiFigures, mapping
from specpanel.core.devices.amd_sysfs import SysfsCard, find_cards
from specpanel.core.devices.blackbox import BlackBox
from specpanel.core.devices.calls import Calls, Failed
from specpanel.core.devices.fields import to_number, to_text
from specpanel.core.devices.gathering import Gathered
from specpanel.core.devices.records import (
    Device,
    DeviceInventory,
    DeviceLibrary,
    DeviceReading,
    LibraryState,
    Tier,
)
from specpanel.core.devices.system import is_wsl, unreadable_nodes

NAME = "amdsmi"
FILES = "sysfs"
_REST_S = 10.0


class AmdBackend:
    """amdsmi and sysfs as one `Backend`.

    Args:
        without: why amdsmi is not to be tried; None to try it.
    """

    name = NAME

    def __init__(self, box: BlackBox, root: Path, without: str | None = None) -> None:
        self._call = Calls(NAME, box, words.code_of)
        self._files_call = Calls(FILES, box, lambda error: getattr(error, "errno", None))
        self._root = root
        self._without = without
        self._smi: Any = None
        self._figures: AmdsmiFigures | None = None
        self._cards: list[AmdCard] = []

    def probe(self) -> DeviceInventory:
        files = find_cards(self._root)
        if not files and not (self._root / "dev/kfd").exists() and not is_wsl(self._root):
            reason = "no AMD driver: no /dev/kfd"
            return DeviceInventory((), (DeviceLibrary(NAME, "amd", "absent", reason=reason),))
        library = self._open()
        if library.state == "used":
            self._cards = self._find(files)
            if not self._cards:
                library = replace(library, state="failed", reason="amdsmi lists no device")
        if library.state != "used":
            self._cards = cards_of_files(files)
            denied = unreadable_nodes(self._root)
            if denied:
                library = replace(library, reason=f"{library.reason}; {denied}")
        tiers: tuple[Tier, ...] = ("fast", "slow", "processes")
        for tier in tiers:  # what each call costs here is known only after it was made
            self.read(tier)
        self._call.measuring = self._files_call.measuring = False
        libraries = [replace(library, costs=self._call.costs())]
        if files:
            libraries.append(
                DeviceLibrary(
                    FILES,
                    "amd",
                    "used",
                    version=os.uname().release,
                    costs=self._files_call.costs(),
                )
            )
        return DeviceInventory(tuple(card.device for card in self._cards), tuple(libraries))

    def read(self, tier: Tier) -> tuple[DeviceReading, ...]:
        # A partitioned card's figures are made of what its partitions say, so they come first.
        parts_first = sorted(self._cards, key=lambda card: bool(card.parts))
        found = {card.device.uuid: self._read(card, tier) for card in parts_first}
        return tuple(found[card.device.uuid] for card in self._cards)

    # Opening and finding

    def _open(self) -> DeviceLibrary:
        if self._without is not None:
            return DeviceLibrary(NAME, "amd", "failed", reason=self._without)
        home = Path(os.environ.get("ROCM_PATH") or self._root / "opt/rocm") / "share/amd_smi"
        if (home / "amdsmi").is_dir():
            sys.path.insert(0, str(home))
        try:
            self._smi = importlib.import_module("amdsmi")
        except Exception as error:  # noqa: BLE001 - KeyError, OSError, AttributeError: a reason
            reason = words.import_failure(error)
            absent = isinstance(error, ModuleNotFoundError)
            fix = None if absent else "Install the amdsmi that came with this machine's ROCm."
            state: LibraryState = "absent" if absent else "failed"
            return DeviceLibrary(NAME, "amd", state, reason=reason, fix=fix)
        binding = to_text(getattr(self._smi, "__version__", None))
        begun = self._one("amdsmi_init")
        if isinstance(begun, Failed):
            reason = words.init_failure(begun.code, begun.text, wsl=is_wsl(self._root))
            return DeviceLibrary(NAME, "amd", "failed", binding=binding, reason=reason)
        found = self._one("amdsmi_get_lib_version")
        self._figures = AmdsmiFigures(self._smi, self._call, self._root)
        version = None
        if isinstance(found, Mapping):
            version = ".".join(str(found.get(part)) for part in ("major", "minor", "release"))
        return DeviceLibrary(NAME, "amd", "used", version=version, binding=binding)

    def _function(self, name: str) -> Any:
        return getattr(self._smi, name, None)

    def _one(self, name: str, *arguments: Any, of: str = "") -> Any:
        return self._call("slow", self._function(name), *arguments, of=of)

    def _find(self, files: tuple[SysfsCard, ...]) -> list[AmdCard]:
        handles = self._one("amdsmi_get_processor_handles")
        if isinstance(handles, Failed):
            return []
        by_bus = {card.bus_id: card for card in files}
        cards = [self._card(number, handle, by_bus) for number, handle in enumerate(handles)]
        cards.sort(key=lambda card: str(card.device.bus_id))
        return arranged(cards)

    def _card(self, number: int, handle: Any, by_bus: dict[str, SysfsCard]) -> AmdCard:
        label = str(number)
        bus_id = (_text(self._one("amdsmi_get_gpu_device_bdf", handle, of=label)) or label).lower()
        files = by_bus.get(bus_id) or by_bus.get(bus_id.rpartition(".")[0] + ".0")
        asic = mapping(self._one("amdsmi_get_gpu_asic_info", handle, of=label))
        numbers = mapping(self._one("amdsmi_get_gpu_enumeration_info", handle, of=label))
        name = to_text(asic.get("market_name")) or (files.name if files else f"AMD GPU {number}")
        uuid = to_text(numbers.get("hip_uuid")) or _text(
            self._one("amdsmi_get_gpu_device_uuid", handle, of=label)
        )
        target = to_text(asic.get("target_graphics_version"))
        partition = "/".join(
            part
            for call in ("amdsmi_get_gpu_compute_partition", "amdsmi_get_gpu_memory_partition")
            if (part := _text(self._one(call, handle, of=label)))
        )
        render, hip = to_number(numbers.get("drm_render")), to_number(numbers.get("hip_id"))
        unified = words.is_unified(name, target) or bool(files and files.unified)
        device = Device(
            uuid=uuid or f"amd-{bus_id}",
            vendor="amd",
            kind="gpu",
            index=number,
            name=name,
            bus_id=bus_id,
            memory_kind="unified" if unified else "own",
            partition=partition or None,
            hip_index=number if hip is None else int(hip),
            node=None if render is None else f"/dev/dri/renderD{int(render)}",
            graphics_target=target or (files.target if files else None),
        )
        return AmdCard(device, handle, replace(files, unified=unified) if files else None)

    # Reading

    def _read(self, card: AmdCard, tier: Tier) -> DeviceReading:
        now_s = time.monotonic()
        if now_s < card.rest_until_s and (tier in card.last or card.asleep is not None):
            return card.asleep or card.last[tier]
        card.asleep = None
        gathered = Gathered(card.device.uuid)
        if card.parts:
            gather_whole(card, tier, gathered)
        elif card.files is not None and card.files.asleep:
            gathered.state, gathered.reason = "asleep", "suspended; reading would wake it"
        else:
            self._gather(card, tier, gathered, now_s)
        reading = gathered.reading()
        card.last[tier] = reading
        if gathered.state == "asleep":
            card.asleep = reading
        return reading

    def _gather(self, card: AmdCard, tier: Tier, gathered: Gathered, now_s: float) -> None:
        if card.handle is not None and self._figures is not None:
            self._figures.gather(card, tier, gathered)
        if gathered.state == "asleep":
            card.rest_until_s = now_s + _REST_S
            return
        if card.files is not None and (card.main is None or card.handle is None):
            read_files = card.files.gather
            self._files_call(tier, read_files, tier, gathered, of=card.device.label)
        if card.main is not None:
            say_where(card, tier, gathered)
        idle = gathered.values.get("utilisation_percent") == 0
        if tier == "fast" and idle and card.files is not None and card.files.may_sleep:
            card.rest_until_s = now_s + _REST_S


def _text(answer: Any) -> str | None:
    return None if isinstance(answer, Failed) else to_text(answer)
