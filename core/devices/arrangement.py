"""A sample of devices as people read it: slices under their card, and sums that count nothing twice."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specpanel.core.devices.records import Device, DeviceReading, DeviceSample


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A device with its reading; ``depth`` is 1 for a slice under its card.

    ``serving`` says whether the watched server uses the device; None where that is not known.
    """

    device: "Device"
    reading: "DeviceReading | None"
    depth: int
    serving: bool | None


def rows(sample: "DeviceSample") -> tuple[DeviceRow, ...]:
    """One row a device in the order to draw them. A slice whose card is not listed stands alone."""
    reading_by_uuid = {reading.uuid: reading for reading in sample.readings}
    listed = {device.uuid for device in sample.devices}
    slices: dict[str, list[Device]] = {}
    for device in sample.devices:
        if device.parent_uuid in listed:
            slices.setdefault(str(device.parent_uuid), []).append(device)
    found = []
    for device in sample.devices:
        if device.parent_uuid in listed:
            continue
        for depth, one in ((0, device), *((1, part) for part in slices.get(device.uuid, ()))):
            serving = None if sample.server_uuids is None else one.uuid in sample.server_uuids
            found.append(DeviceRow(one, reading_by_uuid.get(one.uuid), depth, serving))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class DeviceTotals:
    """Sums over the cards of a sample; ``None`` where no card gives the figure."""

    cards: int
    power_w: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None


def totals(sample: "DeviceSample", uuids: Iterable[str] | None = None) -> DeviceTotals:
    """Sums over cards, or over those among ``uuids``.

    Slices and partitions are parts of a card that is counted already, and each partition of an AMD card
    may claim the memory of the whole. The two dies of an MI250 have memory of their own and one figure
    of power. Figures of lost and stale devices are not counted.
    """
    wanted = None if uuids is None else set(uuids)
    cards = {
        device.uuid: device
        for device in sample.devices
        if device.kind in ("gpu", "die") and (wanted is None or device.uuid in wanted)
    }
    good = [one for one in sample.readings if one.uuid in cards and one.state == "ok"]
    return DeviceTotals(
        cards=len(cards),
        power_w=_sum(one.power_w for one in good if cards[one.uuid].power_shared_with_uuid is None),
        memory_used_bytes=_whole(one.memory_used_bytes for one in good),
        memory_total_bytes=_whole(one.memory_total_bytes for one in good),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _whole(values: Iterable[int | None]) -> int | None:
    total = _sum(values)
    return None if total is None else int(total)
