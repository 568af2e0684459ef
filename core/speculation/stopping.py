"""When an experiment has measured enough. Pure.

The rule looks at how wide an interval is, never at which side of equality it lies: stopping at the first
"significant" look would find a difference between a thing and itself far more often than one time in
twenty.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Reason = Literal["narrow enough", "out of time", "out of requests"]


@dataclass(frozen=True, slots=True)
class Stopping:
    """Stop when every interval is within ``precision`` (0.05: ±5 %), or the budget is spent.

    ``fewest_groups`` are measured before the width counts: the width itself is a guess before.
    """

    precision: float = 0.05
    fewest_groups: int = 12
    budget_s: float | None = None
    requests: int | None = None

    def part(self, share: float) -> "Stopping":
        """The rule of the first ``share`` of the work: what is enough then reaches this rule in the end.

        An interval narrows with the root of what was measured.
        """
        return Stopping(
            precision=self.precision / math.sqrt(share),
            fewest_groups=math.ceil(self.fewest_groups * share),
            budget_s=None if self.budget_s is None else self.budget_s * share,
            requests=None if self.requests is None else math.ceil(self.requests * share),
        )

    def reason(
        self, half_widths: Iterable[float | None], groups: int, elapsed_s: float, requests: int
    ) -> Reason | None:
        """Why to stop now; None to go on.

        Args:
            half_widths: of each ratio, relative; None where it is not known yet.
            groups: different groups measured on all sides.
            requests: sent to each side.
        """
        widths = tuple(half_widths)
        known = [width for width in widths if width is not None]
        if (
            groups >= self.fewest_groups
            and len(known) == len(widths)
            and all(width <= self.precision for width in known)
        ):
            return "narrow enough"
        if self.budget_s is not None and elapsed_s >= self.budget_s:
            return "out of time"
        if self.requests is not None and requests >= self.requests:
            return "out of requests"
        return None
