"""The figures of a past run: its summary's, or those of its last Frames. Pure."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from specpanel.core.monitor.frame import Frame, Quantile


@dataclass(frozen=True, slots=True)
class Value:
    """A figure. ``low`` and ``high`` are its 95 % interval where it has one; ``beyond``: at least that."""

    value: float
    low: float | None = None
    high: float | None = None
    beyond: bool = False


@dataclass(frozen=True, slots=True)
class Figures:
    """``whole_run`` tells figures of a summary from those of the last Frames.

    The latter are the last acceptance length over a window, the last rate at which tokens were made, and
    the last window with finished requests; they have no intervals.
    """

    whole_run: bool
    acceptance_length: Value | None = None
    draft_acceptance_rate: Value | None = None
    tokens_per_s: Value | None = None
    tpot_p50_ms: Value | None = None
    tpot_p99_ms: Value | None = None
    ttft_p50_ms: Value | None = None
    ttft_p99_ms: Value | None = None


def number(found: object, *path: str | int) -> float | None:
    """The number at a place in tables and lists; None where there is none, or another thing."""
    for step in path:
        if isinstance(found, dict) and isinstance(step, str):
            found = found.get(step)
        elif isinstance(found, list) and isinstance(step, int) and -len(found) <= step < len(found):
            found = found[step]
        else:
            return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        return float(found) if math.isfinite(found) else None
    except OverflowError:
        return None


def figures_of_summary(summary: Mapping[str, Any]) -> Figures | None:
    """Figures of the last leg of a ``summary`` line, whatever version of specpanel wrote it."""
    legs = summary.get("legs")
    leg = legs[-1] if isinstance(legs, list) and legs else None
    if not isinstance(leg, dict):
        return None
    length = number(leg, "acceptance", "acceptance_length")
    interval = (
        number(leg, "acceptance", "acceptance_length_interval", "low"),
        number(leg, "acceptance", "acceptance_length_interval", "high"),
    )
    return Figures(
        whole_run=True,
        acceptance_length=None if length is None else Value(length, *interval),
        draft_acceptance_rate=_present(number(leg, "acceptance", "draft_acceptance_rate")),
        tokens_per_s=_present(number(leg, "output_tokens_per_s")),
        tpot_p50_ms=_share(leg.get("tpot_ms"), 0.5),
        tpot_p99_ms=_share(leg.get("tpot_ms"), 0.99),
        ttft_p50_ms=_share(leg.get("ttft_ms"), 0.5),
        ttft_p99_ms=_share(leg.get("ttft_ms"), 0.99),
    )


def _share(quantiles: object, share: float) -> Value | None:
    for quantile in quantiles if isinstance(quantiles, list) else []:
        value = number(quantile, "value_ms")
        if number(quantile, "share") == share and value is not None:
            return Value(value, number(quantile, "low_ms"), number(quantile, "high_ms"))
    return None


_WANTED = ("acceptance_length", "tokens_per_s", "tpot_p50_ms", "ttft_p50_ms")


def figures_of_frames(newest_first: Iterator[Frame]) -> Figures | None:
    """The last figures there were; an idle server's last rate is the one it had at work."""
    found: dict[str, Value] = {}
    for frame in newest_first:
        for name, value in _of_frame(frame).items():
            if value is not None:
                found.setdefault(name, value)
        if all(name in found for name in _WANTED):
            break
    return Figures(whole_run=False, **found) if found else None


def _of_frame(frame: Frame) -> Mapping[str, Value | None]:
    speculation, engine, latency = frame.speculation, frame.engine, frame.latency
    # Not the lifetime figure: the server may have got it before this recording began.
    length = speculation.acceptance_length if speculation else None
    speed = engine.generation_tokens_per_s if engine else None
    tpot, ttft = (latency.tpot, latency.ttft) if latency else (None, None)
    return {
        "acceptance_length": _present(length),
        "tokens_per_s": _present(speed or None),
        "tpot_p50_ms": _at_least(tpot.p50 if tpot else None),
        "tpot_p99_ms": _at_least(tpot.p99 if tpot else None),
        "ttft_p50_ms": _at_least(ttft.p50 if ttft else None),
        "ttft_p99_ms": _at_least(ttft.p99 if ttft else None),
    }


def _present(value: float | None) -> Value | None:
    return None if value is None else Value(value)


def _at_least(quantile: Quantile | None) -> Value | None:
    return None if quantile is None else Value(quantile.value_ms, beyond=quantile.beyond)
