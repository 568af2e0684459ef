"""One device's figures of one tier as they come in, and how tiers become one reading."""

from dataclasses import dataclass, field, replace
from typing import Any, cast

from specpanel.core.devices.calls import Failed
from specpanel.core.devices.fields import TIER_FIELDS, measure
from specpanel.core.devices.records import DeviceReading, DeviceState, Tier


@dataclass(slots=True)
class Gathered:
    """Collects figures and the reasons of those that are absent."""

    uuid: str
    state: DeviceState = "ok"
    reason: str | None = None
    values: dict[str, Any] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    vendor_fields: dict[str, float | str] = field(default_factory=dict)

    def figure(self, name: str, answer: Any, *, unit: float | None = None) -> bool:
        """Take the figure ``name`` from an answer; whether it was there."""
        if isinstance(answer, Failed):
            self.missing(name, answer.text)
            return False
        value, why = measure(name, answer, unit=unit)
        if value is None:
            self.missing(name, why or "not given")
            return False
        self.put(name, value)
        return True

    def put(self, name: str, value: Any) -> None:
        self.values[name] = value
        self.absent.pop(name, None)

    def missing(self, name: str, why: str) -> None:
        """``name`` is absent, unless another call gave it already."""
        if self.values.get(name) is None:
            self.absent[name] = why

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def reading(self) -> DeviceReading:
        return DeviceReading(
            uuid=self.uuid,
            state=self.state,
            reason=self.reason,
            vendor_fields=self.vendor_fields,
            absent=self.absent,
            **self.values,
        )


def merged(known: DeviceReading | None, new: DeviceReading, tier: Tier) -> DeviceReading:
    """What is known of a device after one tier was read anew.

    A device that is asleep or lost has no figures. One whose reading failed as a whole ("stale") keeps
    the figures that it had.
    """
    if new.state in ("lost", "asleep"):
        return DeviceReading(uuid=new.uuid, state=new.state, reason=new.reason)
    if known is None:
        return new
    if new.state == "stale":
        return replace(known, state="stale", reason=new.reason)
    names = TIER_FIELDS[tier]
    absent = {name: why for name, why in known.absent.items() if name not in names}
    changed = cast(dict[str, Any], {name: getattr(new, name) for name in names})
    return replace(
        known,
        state="ok",
        age_s=None,
        reason=new.reason or (known.reason if known.state == "ok" and tier != "fast" else None),
        absent={**absent, **{name: why for name, why in new.absent.items() if name in names}},
        vendor_fields={**known.vendor_fields, **new.vendor_fields},
        **changed,
    )
