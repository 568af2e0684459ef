"""What every backend of the reader process offers: who is there, and what they do now."""

from typing import Protocol

from specpanel.core.devices.records import DeviceInventory, DeviceReading, Tier


class Backend(Protocol):
    """One way to read devices (NVML, amdsmi, sysfs). Lives in the reader process only.

    A call may block for as long as the driver pleases: the deadline is kept by the process outside.
    """

    name: str

    def probe(self) -> DeviceInventory:
        """Open the libraries and name the devices. Never raises: what fails becomes a reason."""

    def read(self, tier: Tier) -> tuple[DeviceReading, ...]:
        """The fields of one tier for every device, in the order of ``probe``; other fields are None.

        One device that fails is a reading with a state and a reason; it never costs the others.
        """
