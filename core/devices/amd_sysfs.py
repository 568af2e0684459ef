"""AMD devices through the files of the amdgpu driver: /sys/class/drm and its hwmon.

File names and units are the kernel's (Documentation/gpu/amdgpu): busy files in percent, memory in bytes,
hwmon in thousandths of a degree, millionths of a watt and hertz. Reading some of them wakes a card that
sleeps, so its state is looked at first.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specpanel.core.devices.amd_words import is_unified
from specpanel.core.devices.fields import to_number
from specpanel.core.devices.gathering import Gathered
from specpanel.core.devices.records import Tier

_AMD = "0x1002"
_MICRO = 1e-6
_MILLI = 1e-3


@dataclass(frozen=True, slots=True)
class SysfsCard:
    """The files of one card. ``folder`` is its PCI device's."""

    folder: Path
    bus_id: str
    unified: bool = False

    def text(self, name: str) -> str | None:
        try:
            return (self.folder / name).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def number(self, name: str) -> float | None:
        return to_number(self.text(name))

    @property
    def asleep(self) -> bool:
        return self.text("power/runtime_status") == "suspended"

    @property
    def may_sleep(self) -> bool:
        return self.text("power/control") == "auto"

    @property
    def uuid(self) -> str:
        unique = self.text("unique_id")
        return f"GPU-{unique.removeprefix('0x')}" if unique else f"amd-{self.bus_id}"

    @property
    def name(self) -> str:
        return self.text("product_name") or f"AMD GPU {self.text('device') or ''}".strip()

    @property
    def partition(self) -> str | None:
        names = (self.text("current_compute_partition"), self.text("current_memory_partition"))
        return "/".join(name for name in names if name) or None

    @property
    def node(self) -> str | None:
        names = sorted(path.name for path in (self.folder / "drm").glob("renderD*"))
        return f"/dev/dri/{names[0]}" if names else None

    @property
    def target(self) -> str | None:
        """``gfx1151`` from the versions of the graphics core that the driver discovered."""
        core = "ip_discovery/die/0/GC/0"
        numbers = [self.number(f"{core}/{part}") for part in ("major", "minor", "revision")]
        if any(number is None for number in numbers):
            return None
        major, minor, revision = (int(number or 0) for number in numbers)
        return f"gfx{major}{minor:x}{revision:x}"

    def gather(self, tier: Tier, gathered: Gathered) -> None:
        """Take what the files give of a tier, where nothing better was there before."""
        if tier == "fast":
            self._fast(gathered)
        elif tier == "slow":
            self._slow(gathered)
        else:
            gathered.missing("processes", "needs amdsmi")

    def _fast(self, gathered: Gathered) -> None:
        _take(gathered, "utilisation_percent", self.text("gpu_busy_percent"))
        _take(gathered, "memory_activity_percent", self.text("mem_busy_percent"))
        for name, end in (("memory_used_bytes", "used"), ("memory_total_bytes", "total")):
            size = self.number(f"mem_info_vram_{end}")
            shared = self.number(f"mem_info_gtt_{end}") if self.unified else None
            if shared is not None:
                gathered.put(name, round((size or 0) + shared))
            else:
                _take(gathered, name, size)

    def _slow(self, gathered: Gathered) -> None:
        for name in ("power1_average", "power1_input"):
            if not gathered.has("power_w"):
                _take(gathered, "power_w", self.hwmon(name), _MICRO)
                if gathered.has("power_w"):
                    gathered.put("power_source", f"hwmon {name}")
        _take(gathered, "power_limit_w", self.hwmon("power1_cap"), _MICRO)
        self._temperatures(gathered)
        for label, name in (("sclk", "core_clock_mhz"), ("mclk", "memory_clock_mhz")):
            _take(gathered, name, self._labelled("freq", label), _MICRO)
        gathered.missing("throttle_reasons", "needs amdsmi")

    def _temperatures(self, gathered: Gathered) -> None:
        for label in ("junction", "edge", "mem"):
            if not gathered.has("temperature_c"):
                _take(gathered, "temperature_c", self._labelled("temp", label), _MILLI)
                if gathered.has("temperature_c"):
                    gathered.put("temperature_source", f"hwmon {label}")
        if not gathered.has("temperature_c"):  # a sensor without a label
            _take(gathered, "temperature_c", self.hwmon("temp1_input"), _MILLI)
            if gathered.has("temperature_c"):
                gathered.put("temperature_source", "hwmon temp1")
        _take(gathered, "memory_temperature_c", self._labelled("temp", "mem"), _MILLI)

    def hwmon(self, name: str) -> str | None:
        """A file of the card's sensor folder, whatever its number is."""
        for folder in sorted((self.folder / "hwmon").glob("hwmon*")):
            try:
                return (folder / name).read_text(encoding="utf-8", errors="replace").strip()
            except OSError:
                continue
        return None

    def _labelled(self, kind: str, label: str) -> str | None:
        for number in range(1, 5):
            if self.hwmon(f"{kind}{number}_label") == label:
                return self.hwmon(f"{kind}{number}_input")
        return None


def _take(gathered: Gathered, name: str, value: object, unit: float = 1.0) -> None:
    if not gathered.has(name):
        gathered.figure(name, value, unit=unit)


def find_cards(root: Path) -> tuple[SysfsCard, ...]:
    """AMD's cards in the order of the PCI bus."""
    found = {card.bus_id: card for card in _cards(root)}
    return tuple(found[bus_id] for bus_id in sorted(found))


def _cards(root: Path) -> Iterator[SysfsCard]:
    for entry in sorted((root / "sys/class/drm").glob("card[0-9]*")):
        folder = entry / "device"
        card = SysfsCard(folder, "")
        if "-" in entry.name or card.text("vendor") != _AMD:
            continue
        bus_id = _bus_id(card)
        yield SysfsCard(folder, bus_id, is_unified(card.name, card.target))


def _bus_id(card: SysfsCard) -> str:
    for line in (card.text("uevent") or "").splitlines():
        if line.startswith("PCI_SLOT_NAME="):
            return line.partition("=")[2].lower()
    return card.folder.resolve().name.lower()
