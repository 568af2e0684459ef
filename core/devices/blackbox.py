"""What the reader process was doing when it went silent or died: a page of memory that both sides see.

The reader writes each vendor call into it before making the call, which costs a microsecond. A process
that hangs in a driver or is killed by a signal can say nothing any more; the page still can.
"""

import mmap
import os
import struct
import tempfile
from dataclasses import dataclass

_SIZE = 4096
_HEADER = struct.Struct("<QH")  # number of the call, length of its name
_LONGEST = _SIZE - _HEADER.size


@dataclass(frozen=True, slots=True)
class LastCall:
    """``number`` grows with every call, so that a change says that the reader is alive.

    ``name`` is ``library|call|device``; empty between calls.
    """

    number: int
    name: str

    @property
    def library(self) -> str:
        return self.name.partition("|")[0]

    @property
    def words(self) -> str:
        """``nvmlDeviceGetPowerUsage of GPU 3``, or "its own code" between calls."""
        _, call, device = (*self.name.split("|"), "", "", "")[:3]
        if not call:
            return "its own code"
        return f"{call} of GPU {device}" if device else call


def open_page() -> int:
    """A file descriptor of a new page, for this process and the child that inherits it."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("specpanel-devices")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, _SIZE)
    return descriptor


class BlackBox:
    """One side's view of the page. The reader notes, the watch looks."""

    def __init__(self, descriptor: int | None) -> None:
        self._page = mmap.mmap(-1 if descriptor is None else descriptor, _SIZE)
        self._number = 0

    def note(self, name: str) -> None:
        """A call begins; an empty name says that it came back."""
        self._number += 1
        encoded = name.encode("utf-8", "replace")[:_LONGEST]
        # The name first: a reader between the two writes sees the old number and looks again later.
        self._page[_HEADER.size : _HEADER.size + len(encoded)] = encoded
        _HEADER.pack_into(self._page, 0, self._number, len(encoded))

    def look(self) -> LastCall:
        number, length = _HEADER.unpack_from(self._page, 0)
        name = self._page[_HEADER.size : _HEADER.size + min(length, _LONGEST)]
        return LastCall(number, name.decode("utf-8", "replace"))

    def close(self) -> None:
        self._page.close()
