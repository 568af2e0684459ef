"""AMD's cards, partitions and dies: how what amdsmi lists belongs together. No call is made here."""

from dataclasses import dataclass, field, replace
from typing import Any

from specpanel.core.devices import amd_words as words
from specpanel.core.devices.amd_sysfs import SysfsCard
from specpanel.core.devices.calls import Failed
from specpanel.core.devices.fields import FAST, SLOW
from specpanel.core.devices.gathering import Gathered
from specpanel.core.devices.records import Device, DeviceReading, Tier


@dataclass(slots=True)
class AmdCard:
    """A device: a handle of amdsmi, a folder of files, or both. A card with partitions has neither."""

    device: Device
    handle: Any = None
    files: SysfsCard | None = None
    parts: list["AmdCard"] = field(default_factory=list)
    main: "AmdCard | None" = (
        None  # for a partition or a second die: where the package's figures are
    )
    rest_until_s: float = 0.0  # not asked before, because asking keeps or makes it awake
    asleep: DeviceReading | None = None
    last: dict[Tier, DeviceReading] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    refused: dict[str, Failed] = field(default_factory=dict)


def cards_of_files(files: tuple[SysfsCard, ...]) -> list[AmdCard]:
    cards = []
    for number, card in enumerate(files):
        device = Device(
            uuid=card.uuid,
            vendor="amd",
            kind="gpu",
            index=number,
            name=card.name,
            bus_id=card.bus_id,
            memory_kind="unified" if card.unified else "own",
            partition=card.partition,
            hip_index=number,
            node=card.node,
            graphics_target=card.target,
        )
        cards.append(AmdCard(device, None, card))
    return cards


def arranged(cards: list[AmdCard]) -> list[AmdCard]:
    """Cards in the order of the bus, with their partitions behind them and dies told of each other."""
    slots: dict[str, list[AmdCard]] = {}
    for card in cards:
        slots.setdefault(str(card.device.bus_id).rpartition(".")[0], []).append(card)
    found: list[AmdCard] = []
    cards_so_far = 0
    pair: AmdCard | None = None
    seen: set[str] = set()
    for slot, parts in slots.items():
        if len(parts) > 1:
            found += _partitioned(slot, parts, cards_so_far, seen)
            cards_so_far += 1
            continue
        (card,) = parts
        card.device = replace(card.device, index=cards_so_far)
        if words.has_two_dies(card.device.name):
            card.device = replace(card.device, kind="die")
            if pair is None:
                pair = card
            else:
                card.main, pair = pair, None
                card.device = replace(card.device, power_shared_with_uuid=card.main.device.uuid)
        cards_so_far += 1
        found.append(card)
    return found


def _partitioned(slot: str, parts: list[AmdCard], index: int, seen: set[str]) -> list[AmdCard]:
    first = parts[0].device
    whole = Device(
        uuid=f"card-{slot}",
        vendor="amd",
        kind="gpu",
        index=index,
        name=first.name,
        bus_id=first.bus_id,
        memory_kind=first.memory_kind,
        partition=first.partition,
        graphics_target=first.graphics_target,
    )
    for number, part in enumerate(parts):
        uuid = part.device.uuid if part.device.uuid not in seen else f"{part.device.uuid}/{number}"
        seen.add(uuid)
        part.device = replace(
            part.device,
            uuid=uuid,
            kind="partition",
            index=number,
            parent_uuid=whole.uuid,
            parent_index=index,
        )
        part.main = parts[0] if number else None
    return [AmdCard(whole, parts=parts), *parts]


def say_where(card: AmdCard, tier: Tier, gathered: Gathered) -> None:
    """Name the device that has a figure for the whole package, where this one has none."""
    if card.main is None or tier == "processes":
        return
    die = card.device.kind == "die"
    told = f"shared with GPU {card.main.device.label}"
    for name in FAST if tier == "fast" else SLOW:
        shared = name in ("power_w", "power_limit_w", "power_source") if die else True
        if shared and not gathered.has(name):
            gathered.absent[name] = told


def gather_whole(card: AmdCard, tier: Tier, gathered: Gathered) -> None:
    """The figures of a partitioned card, from what its partitions said last."""
    readings = [reading for part in card.parts if (reading := part.last.get(tier)) is not None]
    if tier == "processes":
        gathered.missing("processes", "in its partitions")
        return
    if tier == "fast":
        for name in ("utilisation_percent", "memory_activity_percent"):
            gathered.missing(name, "in its partitions")
        # Each partition may claim the memory of the whole card, so nothing is added up. With one
        # memory for all of them the claims are one figure; with several nobody tells the card's.
        one_memory = "NPS1" in (card.device.partition or "NPS1")
        for name in ("memory_used_bytes", "memory_total_bytes"):
            sizes = [size for reading in readings if (size := getattr(reading, name)) is not None]
            if sizes and one_memory:
                gathered.put(name, max(sizes))
            else:
                gathered.missing(name, "in its partitions")
        return
    for name in SLOW:
        value = getattr(readings[0], name) if readings else None
        if value is not None:
            gathered.put(name, value)
        else:
            gathered.missing(name, readings[0].absent.get(name, "not given") if readings else "")
