"""What tokens cost in plain units: device time, energy, and draft tokens thrown away. Pure."""

from dataclasses import dataclass

from specpanel.core.speculation.contrast import Sums


@dataclass(frozen=True, slots=True)
class Cost:
    """``device_s_per_1000_tokens`` is wall time times devices; on a CPU the machine counts as one device.

    ``joules_per_1000_tokens`` is None, with ``energy_absent`` as the reason, where power is not known.
    ``rejected_tokens_per_s`` is None where nothing was drafted.
    """

    output_tokens: int
    elapsed_s: float
    tokens_per_s: float | None
    rejected_tokens_per_s: float | None
    device_s_per_1000_tokens: float | None
    joules_per_1000_tokens: float | None
    energy_absent: str | None


@dataclass(frozen=True, slots=True)
class PowerFound:
    """``mean_w`` of all devices together over the measured time; ``absent`` says why there is none."""

    mean_w: float | None
    absent: str | None


def cost_of(
    total: Sums,
    *,
    devices: int | None = 1,
    mean_power_w: float | None = None,
    power_absent: str | None = None,
) -> Cost:
    """The cost of what was measured.

    Args:
        devices: how many the launch used; None counts as one.
        mean_power_w: mean power of all of them while it was measured, in watts; None where not known.
        power_absent: why it is not known.
    """
    tokens, elapsed = total.output_tokens, total.elapsed_s
    measured = tokens > 0 and elapsed > 0
    device_s = elapsed * (devices or 1) / tokens * 1000 if measured else None
    joules = None
    if measured and mean_power_w is not None:
        joules = mean_power_w * elapsed / tokens * 1000
    rejected = None
    if total.draft_tokens > 0 and elapsed > 0:
        rejected = (total.draft_tokens - total.accepted) / elapsed
    return Cost(
        output_tokens=tokens,
        elapsed_s=elapsed,
        tokens_per_s=tokens / elapsed if measured else None,
        rejected_tokens_per_s=rejected,
        device_s_per_1000_tokens=device_s,
        joules_per_1000_tokens=joules,
        energy_absent=None if joules is not None else power_absent or "power was not measured",
    )
