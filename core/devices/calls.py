"""Calls into a vendor's library: noted in the black box, timed, and failing as values.

A vendor's exception never travels further than this file. Each kind of failure is told once on
the reader's standard error, never once a second.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from specpanel.core.devices.blackbox import BlackBox
from specpanel.core.devices.records import CallCost, Tier


@dataclass(frozen=True, slots=True)
class Failed:
    """A call that raised. ``code`` is the vendor's number; None where there is none."""

    code: int | None
    text: str


@dataclass(slots=True)
class Calls:
    """Makes the calls of one library.

    ``code_of`` reads the vendor's error number from an exception. Costs are kept while ``measuring``.
    """

    library: str
    box: BlackBox
    code_of: Callable[[Exception], int | None]
    measuring: bool = True
    _took_ms: dict[tuple[str, Tier], list[float]] = field(default_factory=dict)

    def __call__(
        self, tier: Tier, function: Callable[..., Any] | None, *arguments: Any, of: str = ""
    ) -> Any:
        """The answer, or a `Failed`. ``of`` names the device, for the black box.

        A function that this release of the library does not have is a failure like any other.
        """
        if function is None:
            return Failed(None, "this release has no such call")
        name = getattr(function, "__name__", "call")
        self.box.note(f"{self.library}|{name}|{of}")
        began_s = time.perf_counter()
        try:
            return function(*arguments)
        except UnicodeDecodeError:
            return Failed(None, "unreadable text")
        except Exception as error:  # noqa: BLE001 - whatever a vendor raises becomes a reason
            return Failed(self.code_of(error), _one_line(error))
        finally:
            took_ms = (time.perf_counter() - began_s) * 1e3
            self.box.note("")
            if self.measuring:
                self._took_ms.setdefault((name, tier), []).append(took_ms)

    def costs(self) -> tuple[CallCost, ...]:
        """What each call took so far, the dearest first."""
        found = [
            CallCost(name, tier, len(took), round(median(took), 4), round(max(took), 4))
            for (name, tier), took in self._took_ms.items()
        ]
        return tuple(sorted(found, key=lambda cost: -cost.median_ms))


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text[:200] or type(error).__name__
